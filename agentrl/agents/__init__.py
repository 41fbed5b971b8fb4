"""The episode loop and the parsing of what a policy says."""
