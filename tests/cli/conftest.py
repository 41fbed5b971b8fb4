"""The command line in this process, and a small run to look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.core.message import Message
from agentrl.core.trajectory import CreditResult, StopReason
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import act, episode, failed_episode, group

Agentrl = Callable[..., "Ended"]


class Ended:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def agentrl() -> Agentrl:
    """Runs a command; a bug (any exception but an exit) is raised."""

    def run(*arguments: object) -> Ended:
        wide = {"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
        result = CliRunner(env=wide).invoke(
            app, [str(one) for one in arguments], prog_name="agentrl"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of two groups: ``mixed`` has a win, a loss and a crash; ``late`` a loss only."""
    said = replace(
        act("hall", action="go kitchen"),
        answer=Message("assistant", "<action>go kitchen</action>", reasoning="food is there"),
    )
    mixed = group(
        "mixed",
        episode("win", said, ("kitchen", 1.0, "take mug")),
        episode(
            "lose",
            ("hall", 0.0, "go attic"),
            act("attic", 0.0, "dance", valid=False),
            stop_reason=StopReason.MAX_STEPS,
        ),
        failed_episode("crash", ("hall", 0.0)),
    )
    late = group("late", episode("lose", ("hall", 0.0), stop_reason=StopReason.ENV_TRUNCATED))
    directory = tmp_path / "run"
    with SqliteStore(directory) as store:
        for one, iteration in ((mixed, 0), (late, 1)):
            for trajectory in one.trajectories:
                task = replace(one.task, kind="heat" if one is mixed else "cool")
                store.append(trajectory, task=task, iteration=iteration, purpose="train")
        credit = CreditResult(
            [(0.75, 0.5), (-0.25, -1.0), None],
            parts={"episode": [(0.5, 0.5), (-0.5, -1.0), None]},
            groups={"anchor": [(0, 1), (0, 2), None]},
        )
        store.add_credit([mixed], with_diagnostics([mixed], credit))
    return directory
