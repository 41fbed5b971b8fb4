"""A run with strategies that is killed in mid-iteration comes to what it would have come to."""

from __future__ import annotations

import signal
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.strategy import is_replay, original_id
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run_data
from tests.chaos.conftest import Ended, Orders

STRATEGIES: list[dict[str, Any]] = [
    {
        "name": "difficulty",
        "options": {"lowest": 2, "highest": 3, "key": "rooms", "raise_at": 0.6, "episodes": 16},
    },
    {"name": "adaptive", "options": {"first": 2, "extra": 1}},
    {"name": "resample", "options": {"resamplings": 1, "last": "keep"}},
    {"name": "replay", "options": {"per_group": 1}},
    {"name": "self_imitation", "options": {"per_iteration": 2}},
]


def run_file(run_dir: Path) -> dict[str, Any]:
    """A deterministic run of five iterations with everything on, that succeeds now and then."""
    found = tiny_run_data(run_dir)
    found["deterministic"] = True
    clone, rl = found["stages"]
    clone |= {"updates": 45, "episodes_per_update": 8, "noise": 0.3, "imitate_noise": True}
    rl |= {"iterations": 5, "group_size": 4, "strategies": STRATEGIES}
    rl["credit"] = {"name": "gigpo", "options": {"invalid_action_penalty": 0.1}}
    found["evaluation"] |= {"every": 0}
    found["checkpoints"] = {"every": 2}
    return found


def record(run_dir: Path) -> dict[str, Any]:
    """What the run came to, timings left out."""
    with SqliteStore(run_dir, read_only=True) as store:
        return {
            "weights": (run_dir / "model" / "model.safetensors").read_bytes(),
            "trajectories": {one.id: (one.reward, one.takes_part) for one in store.find()},
            "trained": [(one.id, one.rows) for one in store.trained()],
            "course": [(one.iteration, one.data) for one in store.events("course")],
            "metrics": [one.data["credit"] for one in store.events("iteration")],
            "episodes": [one.data["episodes"] for one in store.events("iteration")],
        }


@pytest.fixture(scope="module")
def undisturbed(order: Orders, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run_dir = tmp_path_factory.mktemp("strategies") / "run"
    done(order(command="train", run=run_file(run_dir)))
    return record(run_dir)


def done(ended: Ended) -> None:
    assert ended.code == 0, ended.errors


def test_what_a_run_with_strategies_did_is_in_its_store(undisturbed: dict[str, Any]) -> None:
    trained = [row.trajectory_id for _, rows in undisturbed["trained"] for row in rows]
    replays = [one for one in trained if is_replay(one)]
    played = undisturbed["trajectories"]
    assert {original_id(one) for one in trained} <= played.keys()
    told = [one["trajectory_id"] for _, data in undisturbed["course"] for one in data["replays"]]
    assert sorted(map(original_id, replays)) == sorted(told)
    metrics = undisturbed["metrics"]
    # Every part has done something, or the kills below would prove little.
    assert sum(one["sampling_replayed"] for one in metrics) > 0
    assert sum(one["sampling_imitated"] for one in metrics) > 0
    assert sum(one["sampling_resamplings"] for one in metrics) > 0
    assert sum(one["sampling_episodes_saved"] for one in metrics) != 0
    dropped = {one for _, data in undisturbed["course"] for one in data["dropped"]}
    of_dropped = [one for one in played if one.rpartition("/")[0].rpartition("/")[0] in dropped]
    assert of_dropped
    assert all(played[one][1] is None for one in of_dropped)  # played, recorded, without credit
    asked = [one["sampling_episodes"] for one in metrics]
    assert list(accumulate(asked)) == undisturbed["episodes"]


def test_killed_in_mid_iteration_it_goes_on_to_the_same(
    order: Orders, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    first, *rest = [
        ("after", "credit", 2),  # in the second iteration: no checkpoint of the stage yet
        ("after", "append", 3),  # in the third
        ("after", "append", 2),  # the rest of it, and further trials
        ("after", "update recorded", 1),
        ("after", "checkpoint", 1),  # after the fourth
    ]
    ended = order(command="train", run=run_file(run_dir), kill=first)
    for kill in rest:
        assert ended.code == -signal.SIGKILL, ended.errors
        ended = order(command="resume", run_dir=str(run_dir), kill=kill)
    assert ended.code == -signal.SIGKILL, ended.errors
    done(order(command="resume", run_dir=str(run_dir)))
    found = record(run_dir)
    for name, expected in undisturbed.items():
        assert found[name] == expected, name
