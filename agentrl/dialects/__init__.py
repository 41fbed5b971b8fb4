"""How models write tool calls: one file per dialect, text to calls and calls to text."""
