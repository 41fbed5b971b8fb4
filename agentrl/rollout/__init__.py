"""Playing many episodes at once: groups, limits, retries, the event loop's own thread."""
