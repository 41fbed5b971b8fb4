"""A run's episodes for people: in the terminal and as one self-contained web page."""
