"""A run killed at any moment goes on to the very weights it would have had.

Children are killed with SIGKILL at chosen places and at random times; what they leave is resumed,
and killed again. In deterministic mode everything must come out as in a run that nobody disturbed:
weights, optimiser, every sampled token and log-probability, credit, and what the report says.
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agentrl.audit.auditing import audit_run
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.chaos_kill import contents, exact_run_data
from tests.chaos.conftest import Ended, Orders


def assert_undisturbed(run_dir: Path, uninterrupted: Path) -> None:
    found, expected = contents(run_dir), contents(uninterrupted)
    for name, value in expected.items():
        assert found[name] == value, name


def recorded(run_dir: Path) -> Any:
    with SqliteStore(run_dir, read_only=True) as store:
        return store.find(), store.events()


def killed(ended: Ended) -> None:
    assert ended.code == -signal.SIGKILL, ended.errors


def done(ended: Ended) -> None:
    assert ended.code == 0, ended.errors


# A run of 45 cloning updates (checkpoints after 20, 40 and at the end), two panels of four before,
# four iterations of three groups of four in two updates (a checkpoint after the second), two
# validations of three, two panels of four after.
KILLS = [
    ("before", "checkpoint", 1),  # nothing is left but the store
    ("after", "update", 23),  # cloned from 20 on: at 43 the weights have changed, no record of it
    ("before", "append", 3),  # in the panel "before"
    ("after", "append", 5),  # in its greedy half: the two before this one are not played again
    ("after", "append", 7),  # during a rollout
    ("after", "credit", 1),  # between store and update
    ("before", "gradient", 1),
    ("after", "update", 2),  # the last update of the iteration, not yet counted
    ("after", "update recorded", 3),  # in the second iteration, after two updates of the first
    ("before", "weights written", 1),  # in the checkpoint after the second iteration
    ("before", "checkpoint written", 2),  # the first call checks the one it resumes from
    ("after", "checkpoint", 1),
    ("after", "append", 2),  # in the third iteration
    ("before", "pruning", 1),  # at the end of the stage: the new checkpoint is there
    ("after", "append", 6),  # in the panel "after"
    ("before", "report", 1),
]


def test_killed_at_every_kind_of_moment_nothing_changes(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    first, *rest = KILLS
    killed(order(command="train", run=exact_run_data(run_dir), kill=first))
    played: set[str] = set()
    for kill in rest:
        ended = order(command="resume", run_dir=str(run_dir), kill=kill)
        killed(ended)
        with SqliteStore(run_dir, read_only=True) as store:
            now = {line.id for line in store.find()}
        assert played <= now, f"killed {kill}: what was played is gone"
        played = now
    done(order(command="resume", run_dir=str(run_dir)))
    assert_undisturbed(run_dir, uninterrupted)
    with SqliteStore(run_dir, read_only=True) as store:
        assert len(store.events("resume")) == len(KILLS)
    # and it can prove so by itself: nothing lost, doubled or learnt from twice
    audit = audit_run(run_dir)
    assert not audit.violated, audit.violated
    assert not audit.unchecked


def test_killed_at_random_times_nothing_changes(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    # The full form, which spreads the moments over the whole run, is benchmarks/kill_resume.py.
    rng = random.Random(0)
    run_dir = tmp_path / "run"
    for _ in range(5):
        if (run_dir / "config.yaml").exists():
            ended = order(command="resume", run_dir=str(run_dir), delay_s=rng.uniform(0.3, 1.2))
        else:  # killed before there was a run to go on with
            shutil.rmtree(run_dir, ignore_errors=True)
            delay = rng.uniform(0.6, 1.0)
            ended = order(command="train", run=exact_run_data(run_dir), delay_s=delay)
        if ended.code == 0:
            break
        killed(ended)
    if not (run_dir / "config.yaml").exists():
        shutil.rmtree(run_dir, ignore_errors=True)
        done(order(command="train", run=exact_run_data(run_dir)))
    else:
        done(order(command="resume", run_dir=str(run_dir)))
    assert_undisturbed(run_dir, uninterrupted)


def test_a_model_from_a_folder_goes_on_as_exactly(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    def run(name: str) -> dict[str, Any]:
        data = exact_run_data(tmp_path / name)
        data["model"] = {"path": str(uninterrupted / "model"), "device": "cpu"}
        data["stages"] = data["stages"][1:]
        data["stages"][0] |= {"iterations": 3, "learner": {"kl_coefficient": 0.05}}
        data["checkpoints"]["every"] = 1
        return data

    done(order(command="train", run=run("whole")))
    killed(order(command="train", run=run("killed"), kill=("after", "update", 3)))
    killed(order(command="resume", run_dir=str(tmp_path / "killed"), kill=("before", "update", 2)))
    done(order(command="resume", run_dir=str(tmp_path / "killed")))
    assert_undisturbed(tmp_path / "killed", tmp_path / "whole")


def test_a_disk_that_fills_during_a_checkpoint_loses_nothing(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    # The second checkpoint meets a limit of 200,000 bytes a file: the weights fit, the optimiser
    # does not.
    run_dir = tmp_path / "run"
    ended = order(command="train", run=exact_run_data(run_dir), full=(2, 200_000))
    assert ended.code == 1, ended.errors
    text = " ".join(ended.errors.split())
    assert "StoreError: cannot write the checkpoint" in text
    assert "checkpoints/000001', is intact" in text
    assert f"agentrl train --resume {run_dir}" in text
    assert sorted(one.name for one in (run_dir / "checkpoints").iterdir()) == ["000001"]
    done(order(command="resume", run_dir=str(run_dir)))
    assert_undisturbed(run_dir, uninterrupted)


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    killed(order(command="train", run=exact_run_data(run_dir), kill=("before", "report", 1)))
    newest = sorted((run_dir / "checkpoints").iterdir())[-1]
    weights = newest / "learner" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-100] ^= 4
    weights.write_bytes(content)
    before = recorded(run_dir)
    ended = order(command="resume", run_dir=str(run_dir))
    assert ended.code == 1, ended.errors
    text = " ".join(ended.errors.split())
    assert f"the checkpoint '{newest}' is damaged: learner/model/model.safetensors was" in text
    assert recorded(run_dir) == before
    for file in sorted(newest.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    newest.rmdir()
    done(order(command="resume", run_dir=str(run_dir)))
    assert_undisturbed(run_dir, uninterrupted)


@pytest.mark.parametrize("kill", [("after", "append", 20), ("after", "update", 3)])
def test_without_deterministic_mode_nothing_is_lost_or_doubled(
    order: Orders, uninterrupted: Path, tmp_path: Path, kill: tuple[str, str, int]
) -> None:
    run_dir = tmp_path / "run"
    data = exact_run_data(run_dir)
    data["deterministic"] = False
    data["model"] = {"path": str(uninterrupted / "model"), "device": "cpu"}
    data["stages"] = data["stages"][1:]
    killed(order(command="train", run=data, kill=kill))
    done(order(command="resume", run_dir=str(run_dir), overrides=["rollout.concurrency=3"]))
    with SqliteStore(run_dir, read_only=True) as store:
        for iteration in range(1, 5):
            groups = list(store.groups(purpose="train", iteration=iteration))
            assert [len(group.trajectories) for group in groups] == [4, 4, 4]
            lines = [one for group in groups for one in group.trajectories]
            assert all(store.trajectory(one.id).credit is not None for one in lines)
        assert len(store.events("iteration")) == len(store.events("credit")) == 4
        updates = [one.update for one in store.updates()]
        assert updates == list(range(1, len(updates) + 1))
