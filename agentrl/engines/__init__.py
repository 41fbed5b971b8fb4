"""Engines sample tokens from the current policy. Each is one module; none is imported here."""
