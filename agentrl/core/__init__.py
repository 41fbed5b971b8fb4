"""The records and seams every part of agentrl speaks. Imports the standard library only."""
