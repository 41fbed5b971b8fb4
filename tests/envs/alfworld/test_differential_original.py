"""agentrl's engine against ALFWorld's own, the unchanged package, on a few real games."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentrl.envs.alfworld import TASK_TYPES
from agentrl.testing.alfworld_differential import compare_games, draw_games
from agentrl.testing.alfworld_differential_engines import OriginalEngine


@pytest.fixture(scope="module")
def package() -> str:
    """Absent: skip on a developer's machine, fail where CI is set."""
    if find_spec("alfworld") and find_spec("textworld"):
        return "alfworld"
    reason = "the package alfworld is not installed: pip install -e '.[alfworld]' (g++ and make)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def test_a_game_of_every_task_type_is_the_same_on_both_engines(root: Path, package: str) -> None:
    folders = draw_games(root, len(TASK_TYPES))
    comparison = compare_games(root, folders, OriginalEngine, steps=3, odd=0.3)
    assert "\n".join(comparison.wrong()) == ""
    assert comparison.versions[package].startswith("0.4.")
    assert comparison.total.won == len(TASK_TYPES)
