"""A process with torch loaded, from which runs are forked to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentrl.testing.chaos_kill import exact_run_data

Orders = Callable[..., "Ended"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: exit code (negative: killed by that signal) and what it printed."""

    code: int
    errors: str


@pytest.fixture(scope="session")
def order() -> Iterator[Orders]:
    """Gives orders to ``forking.py``."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forking.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:  # closes its input at the end, which ends it
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def give(**wanted: Any) -> Ended:
            stdin.write(json.dumps(wanted) + "\n")
            stdin.flush()
            return Ended(**json.loads(stdout.readline()))

        yield give
    assert process.returncode == 0


@pytest.fixture(scope="session")
def uninterrupted(order: Orders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a deterministic run that nobody disturbed."""
    run_dir = tmp_path_factory.mktemp("uninterrupted") / "run"
    ended = order(command="train", run=exact_run_data(run_dir))
    assert ended.code == 0, ended.errors
    return run_dir
