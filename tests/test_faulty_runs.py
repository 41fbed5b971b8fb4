"""Whole runs whose environment breaks: what stops them, what they leave out, what they record."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch
from rich.console import Console

from agentrl.core.errors import EpisodeError
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import resume, train

QUIET = Console(quiet=True)
FACTORY = """
import threading
from agentrl.envs.toy import ToyFactory
from agentrl.testing.faults import Fault, FaultyFactory

RELEASE = threading.Event()

def always(task): return True
def first(task):
    return [task.payload[one] for one in ("rooms", "start", "key", "door")] == [2, 1, 1, 2]
def never(task): return False

class Breaking(FaultyFactory):
    def __init__(self, kind="raise", at="reset", step=0, attempts=None, chosen="first"):
        self.toy, chosen = ToyFactory(max_rooms=3, max_steps=6), globals()[chosen]
        fault = Fault(kind, at, step=step, attempts=attempts,
                      chooses=lambda task, seed: task.split == "train" and chosen(task))
        super().__init__(self.toy, fault)
    def demonstrate(self, task, *, seed, noise):
        return self.toy.demonstrate(task, seed=seed, noise=noise)

class Blocking(Breaking):
    async def make(self, task, *, seed):
        if task.split == "train" and first(task):
            RELEASE.wait(60.0)
        return await super().make(task, seed=seed)
"""
SHORT = (
    "stages.0.updates=1",
    "stages.1.iterations=4",
    "stages.1.tasks_per_iteration=12",
    "stages.1.group_size=2",
    "stages.1.updates_per_iteration=1",
    "evaluation={tasks: 1, greedy: false, every: 0}",
    "rollout.retries=0",
    "rollout.backoff_s=0",
)


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    (tmp_path / "breaking_env.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "breaking_env", raising=False)


def breaking(**options: object) -> str:
    shown = ", ".join(f"{key}: {value}" for key, value in options.items())
    return f"env={{name: 'breaking_env:Breaking', options: {{{shown}}}}}"


def test_c3_a_poisoned_task_is_set_aside_for_the_rest_of_the_run(tmp_path: Path) -> None:
    # 24 tasks, 48 places: every task comes twice; the first time its group of two fails for good.
    run_dir = tmp_path / "run"
    train(tiny_run(run_dir, [*SHORT, breaking(), "rollout.poison_after=2"]), console=QUIET)
    with SqliteStore(run_dir, read_only=True) as store:
        failed = [line for line in store.find() if line.failure]
        (broken,) = {line.task_id for line in failed}
        (said,) = store.events("poisoned")
        assert said.data == {"task": broken, "failures": 2}
        causes = [line.failure.error for line in failed if line.failure]
        assert causes == ["EnvError"] * 2 + ["PoisonedTaskError"] * 2
        assert not any(line.takes_part for line in failed)
        rollouts = [event.data for event in store.events("rollout")]
        assert [one["requested"] for one in rollouts] == [24] * 4
        assert sum(one["poisoned"] for one in rollouts) == sum(one["failed"] for one in rollouts)
        assert sum(one["failures"].get("reset/EnvError", 0) for one in rollouts) == 2


def test_c2_a_group_below_its_quorum_is_left_out_and_on_record(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    short = [*SHORT, "rollout.quorum=2", "rollout.poison_after=0"]
    train(tiny_run(run_dir, [*short, breaking()]), console=QUIET)
    with SqliteStore(run_dir, read_only=True) as store:
        broken = [one for one in store.groups(purpose="train") if one.trajectories[0].failure]
        assert broken
        assert [event.data["group"] for event in store.events("discarded")] == [
            one.id for one in broken
        ]
        trained = [
            line for line in store.find() if line.purpose == "train" and line.takes_part is not None
        ]
        assert {line.group_id for line in trained}.isdisjoint(one.id for one in broken)
        rollouts = [event.data for event in store.events("rollout")]
        assert sum(one["discarded"] for one in rollouts) == len(broken)
        assert sum(one["groups"] for one in rollouts) == 4 * 12 - len(broken)


@pytest.mark.parametrize("quorum", [0, 1])
def test_c5_when_every_rollout_fails_the_run_stops_and_says_the_first_cause(
    tmp_path: Path, quorum: int
) -> None:
    settings = [*SHORT, breaking(chosen="always"), f"rollout.quorum={quorum}"]
    for give_up_after in (4, 999):
        run_dir = tmp_path / f"run{give_up_after}"
        with pytest.raises(EpisodeError, match=r"First cause: reset/EnvError: planted fault"):
            train(
                tiny_run(run_dir, [*settings, f"rollout.give_up_after={give_up_after}"]),
                console=QUIET,
            )
        with SqliteStore(run_dir, read_only=True) as store:
            assert store.events("finished") == []
            assert all(line.failure for line in store.find() if line.purpose == "train")


def test_c3_a_task_that_blocks_for_good_stops_the_run_and_not_the_resumed_one(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    settings = [
        *SHORT,
        "stages.1.iterations=2",  # every task once
        "env={name: 'breaking_env:Blocking', options: {chosen: never}}",
        "rollout.make_timeout_s=1",
        "rollout.reset_timeout_s=1",
        "rollout.step_timeout_s=1",
        "rollout.close_timeout_s=1",
        "rollout.sample_timeout_s=5",
        "rollout.stall_timeout_s=5.5",
    ]
    with pytest.raises(EpisodeError, match=r"blocked for .* by episode stage1-\d-\d-\w+/\d/0 in"):
        train(tiny_run(run_dir, settings), console=QUIET)
    with SqliteStore(run_dir) as store:
        failed = [line for line in store.find() if line.failure]
        # Others may have missed these short deadlines on a busy machine; only one is blamed.
        (blamed,) = [
            line for line in failed if line.failure and line.failure.error == "BlockedError"
        ]
        assert blamed.failure is not None
        assert blamed.failure.boundary == "make"
        assert store.blocking_tasks("train") == [blamed.task_id]
    # The environment still blocks; what blocked is not drawn again.
    more = [f"rollout.{key}=60" for key in ("make_timeout_s", "step_timeout_s", "sample_timeout_s")]
    resume(run_dir, [*more, "rollout.stall_timeout_s=90"], console=QUIET)
    release: threading.Event = sys.modules["breaking_env"].RELEASE
    release.set()
    with SqliteStore(run_dir, read_only=True) as store:
        assert store.events("finished")
        known = {line.id for line in failed}
        again = [line for line in store.find() if line.failure and line.id not in known]
        assert {line.failure.error for line in again if line.failure} <= {"PoisonedTaskError"}
        assert {line.task_id for line in again} <= {blamed.task_id}
