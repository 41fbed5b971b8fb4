"""An asynchronous run killed at any moment: no task lost or doubled, by what the store says.

Nothing is the same to the last bit here. What must hold: the groups of the stage are those of the
order of tasks, each has exactly one fate, each trained trajectory is stored, credited and learnt
from once, what was recorded is not played again, nothing is learnt from before the weights that
sampled it were made, nor when it is older than the bound.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

from agentrl.audit.auditing import audit_run
from agentrl.rollout.taken import TAKEN, recorded_takes
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run_data
from tests.chaos.conftest import Ended, Orders

ITERATIONS, GROUPS, SIZE, BOUND = 6, 3, 3, 2
COPIED = {"name": "agentrl.testing.copied_engine:CopiedEngine", "options": {"max_batch_size": 16}}


def run_data(run_dir: Path, trained: Path, engine: dict[str, Any]) -> dict[str, Any]:
    """Six iterations of three groups of three, two updates each, some episodes much slower.

    They begin with the model of the run ``trained``, which succeeds now and then.
    """
    data = tiny_run_data(run_dir)
    data["model"] = {"path": str(trained / "model"), "device": "cpu"}
    latencies = {"shortest_s": 0.001, "longest_s": 0.1, "tail": 0.7}
    data["env"] = {
        "name": "agentrl.testing.slow_env:SlowFactory",
        "options": {"name": "toy", "options": data["env"]["options"], **latencies},
    }
    data["engine"] = engine
    data["rollout"] = {"max_staleness": BOUND, "concurrency": 12}
    data["stages"] = data["stages"][1:]
    data["stages"][0] |= {
        "iterations": ITERATIONS,
        "credit": {"name": "gigpo", "options": {"invalid_action_penalty": 0.1}},
    }
    data["evaluation"] |= {"tasks": 2, "validation_tasks": 2, "every": 0, "greedy": False}
    data["checkpoints"] = {"every": 2}
    return data


def killed(ended: Ended) -> None:
    assert ended.code == -signal.SIGKILL, ended.errors


def done(ended: Ended) -> None:
    assert ended.code == 0, ended.errors


def trained_rows(store: SqliteStore) -> Counter[str]:
    """How many updates learnt from each trajectory."""
    return Counter(
        name for batch in store.trained() for name in {row.trajectory_id for row in batch.rows}
    )


def assert_nothing_lost_or_doubled(run_dir: Path) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        store.verify()
        takes = recorded_takes(store, "stage0")
        assert [one.number for one in takes] == list(range(ITERATIONS))
        at = {name: position for one in takes for name, position in one.positions.items()}
        assert sum(len(one.positions) for one in takes) == len(at)
        assert sorted(at.values()) == list(range(ITERATIONS * GROUPS))
        assert not any(one.stale or one.discarded for one in takes)
        groups = {group.id: group for group in store.groups(purpose="train")}
        assert set(groups) == {name for one in takes for name in one.positions}
        for name, group in groups.items():
            iteration, place = map(int, name.split("-")[1:3])
            assert iteration * GROUPS + place == at[name]
            assert [one.trial % SIZE for one in group.trajectories] == list(range(SIZE))
        lines = store.find()
        assert len({line.id for line in lines}) == len(lines)
        for take in takes:
            for name in take.trained:
                for one in groups[name].trajectories:
                    assert store.trajectory(one.id).credit is not None
                    assert one.policy_version >= take.number - BOUND
                    newest = max(v for s in one.steps for _, v in s.sample.versions)
                    assert newest <= take.number
        assert set(trained_rows(store).values()) == {1}
        iterations = [event.iteration for event in store.events("iteration")]
        assert iterations == list(range(1, ITERATIONS + 1))
        assert [event.iteration for event in store.events("credit")] == iterations
        updates = [one.update for one in store.updates()]
        assert updates == list(range(1, len(updates) + 1))
    audit = audit_run(run_dir)
    assert not audit.violated, audit.violated
    assert not audit.unchecked


def finished(run_dir: Path) -> set[str]:
    with SqliteStore(run_dir, read_only=True) as store:
        return {line.id for line in store.find() if line.failure is None}


def taken(run_dir: Path) -> list[Any]:
    with SqliteStore(run_dir, read_only=True) as store:
        return [event.data for event in store.events(TAKEN)]


KILLS = [
    ("after", "append", 4),  # groups are under way, none is complete
    ("after", "append", 12),
    ("after", "credit", 1),  # taken and credited, not learnt from
    ("before", "gradient", 2),
    ("after", "update", 3),  # in the second iteration, the first being done
    ("before", "checkpoint", 1),  # after two iterations
    ("after", "checkpoint", 1),
    ("after", "credit", 2),  # in the fourth, of which the checkpoint knows nothing
    ("after", "update recorded", 1),  # of iterations that are made again with the same groups
    ("before", "report", 1),
]


def test_killed_at_every_kind_of_moment_no_task_is_lost_or_doubled(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    first, *rest = KILLS
    killed(order(command="train", run=run_data(run_dir, uninterrupted, COPIED), kill=first))
    played, takes = finished(run_dir), taken(run_dir)
    for kill in rest:
        killed(order(command="resume", run_dir=str(run_dir), kill=kill))
        assert played <= finished(run_dir), f"killed {kill}: what was played is gone"
        assert takes == taken(run_dir)[: len(takes)], f"killed {kill}: another composition"
        played, takes = finished(run_dir), taken(run_dir)
    done(order(command="resume", run_dir=str(run_dir)))
    assert_nothing_lost_or_doubled(run_dir)
    # Nothing that had finished was played a second time.
    with SqliteStore(run_dir, read_only=True) as store:
        seen = [(line.group_id, line.trial) for line in store.find() if line.failure is None]
    assert len(seen) == len(set(seen))


def test_killed_beside_its_engines_process_it_goes_on_with_another(
    order: Orders, uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    engine = {"name": "hf", "options": {"max_batch_size": 16}}
    run = run_data(run_dir, uninterrupted, engine)
    killed(order(command="train", run=run, kill=("after", "update", 3)))
    done(order(command="resume", run_dir=str(run_dir)))
    assert_nothing_lost_or_doubled(run_dir)
