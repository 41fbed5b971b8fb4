"""Environments: each lists its tasks and plays one episode of one task at a time."""
