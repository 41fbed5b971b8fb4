"""A small real run, made once; every test looks at a copy, in which it may plant a violation."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from agentrl.config import RunConfig
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import train

FLAKY = (
    "env={name: 'tests.audit.factories:Flaky', options: {max_rooms: 3, max_steps: 6}}",
    "agent.memory={name: window, options: {steps: 2}}",  # several rows a trajectory
    "rollout.backoff_s=0",
    "evaluation.trials=2",
    "stages.0.updates=8",
)


def flaky_run(run_dir: Path, *more: str) -> RunConfig:
    return tiny_run(run_dir, (*FLAKY, *more))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with retried attempts and lasting infra failures; never to be changed."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("audit") / "run"
    train(flaky_run(path), console=Console(quiet=True))
    return path


class Copy:
    """A copy of the run, and ways to break it behind its back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement on its database."""
        connection = sqlite3.connect(self.path / "store.sqlite", isolation_level=None)
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def one(self, statement: str, *values: Any) -> Any:
        """The first cell of the first row."""
        return self.sql(statement, *values)[0][0]

    def change_event(
        self, kind: str, number: int, change: Callable[[dict[str, Any]], None]
    ) -> None:
        """Change the data of the event ``number`` of its kind."""
        rows = self.sql("SELECT sequence, data FROM events WHERE kind = ? ORDER BY sequence", kind)
        sequence, text = rows[number]
        data = json.loads(text)
        change(data)
        self.sql("UPDATE events SET data = ? WHERE sequence = ?", json.dumps(data), sequence)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Copy:
    path = tmp_path / "copy"
    shutil.copytree(made, path, ignore=shutil.ignore_patterns("checkpoints", "model", "*-shm"))
    return Copy(path)
