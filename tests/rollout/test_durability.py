"""A rollout killed with SIGKILL: what was played survives, taken or not; the rest is played."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.store.sqlite import SqliteStore
from tests.rollout.playing import corridor, finished, requests, run, runner
from tests.rollout.streaming import GROUPS, SIZE, played_into

ROOT = Path(__file__).resolve().parents[2]


def killed_after(directory: Path, takes: int) -> list[str]:
    """Ids of the groups that a process took before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.rollout.streaming", str(directory), str(takes)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(takes + 1)]
        process.kill()
    assert lines.pop() == "waiting"
    return lines


@pytest.mark.parametrize("takes", [0, 2])
def test_what_was_played_survives_and_only_the_rest_is_played(tmp_path: Path, takes: int) -> None:
    taken = killed_after(tmp_path, takes)
    factory = corridor()
    undisturbed = finished(run(runner(factory).run(requests(factory, GROUPS, SIZE))))
    with SqliteStore(tmp_path) as store:
        store.verify()
        before = {line.id for line in store.find()}
        assert len(before) == 4 * SIZE  # of two groups nothing had ended: they are begun anew
        playing, asked = played_into(store)
        assert all(len(store.played(name)) == SIZE for name in taken)
        groups = run(playing.run(asked))
        counts = playing.stats.counts()
        assert (counts.recorded, counts.finished, counts.groups) == (4 * SIZE, 2 * SIZE, GROUPS)
        assert finished(groups) == undisturbed
        assert store.count() == GROUPS * SIZE
        assert {line.id for line in store.find()} >= before
        assert all(line.attempt == 0 for line in store.find())
