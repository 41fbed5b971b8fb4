"""Reference data for tests lies outside the project, at AGENTRL_SHARED (default ../shared)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data. Absent: skip on a developer's machine, fail where CI is set."""
    default = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("AGENTRL_SHARED", default))
    if path.is_dir():
        return path
    reason = f"reference data not found at {path}; set AGENTRL_SHARED to its folder"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
