"""Property tests draw the same examples every time and have no deadline on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("credit", deadline=None, derandomize=True)
settings.load_profile("credit")
