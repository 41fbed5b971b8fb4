"""The corridor's optimum, rewards and endings, by hand."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys

import pytest

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import StepResult
from agentrl.envs.toy import SPLITS, ToyFactory, optimal_steps


def task_of(*, rooms: int, start: int, key: int, door: int) -> Task:
    payload = {"rooms": rooms, "start": start, "key": key, "door": door}
    return Task("t", "toy", "train", payload)


def play(task: Task, *commands: str, max_steps: int = 30) -> list[StepResult]:
    async def episode() -> list[StepResult]:
        env = await ToyFactory(max_steps=max_steps).make(task, seed=0)
        await env.reset()
        return [await env.step(Message("assistant", command)) for command in commands]

    return asyncio.run(episode())


def test_a_solution_pays_once_at_the_door() -> None:
    # start 2, key 1, door 3 of 3: one step left, take, two steps right, open.
    results = play(
        task_of(rooms=3, start=2, key=1, door=3),
        *("go left", "take key", "go right", "go right", "open door"),
    )
    assert [result.reward for result in results] == [0, 0, 0, 0, 1]
    assert [result.success for result in results] == [None, None, None, None, True]
    assert results[-1].terminated
    assert not results[-1].truncated
    assert optimal_steps(task_of(rooms=3, start=2, key=1, door=3)) == 5


def test_the_first_observation_says_all() -> None:
    async def first() -> str:
        task = task_of(rooms=3, start=2, key=1, door=3)
        observation = await (await ToyFactory().make(task, seed=0)).reset()
        assert observation.admissible == ("go left", "go right")
        assert observation.anchor == (
            "You are in room 2 of 3. The key is in room 1. The door is in room 3."
        )
        return observation.messages[0].content

    assert asyncio.run(first()) == (
        "Take the key and open the door. "
        "You are in room 2 of 3. The key is in room 1. The door is in room 3."
    )


def test_an_impossible_command_changes_nothing_but_costs_a_step() -> None:
    results = play(task_of(rooms=2, start=1, key=2, door=1), "open door", "GO   Right")
    assert [result.action_valid for result in results] == [False, True]
    assert results[0].observation.messages[0].content.startswith("You cannot do that. You are in")
    assert results[0].reward == 0


def test_the_budget_truncates_and_does_not_terminate() -> None:
    task = task_of(rooms=2, start=1, key=2, door=1)
    results = play(task, *["go left"] * 12, max_steps=12)
    assert [result.truncated for result in results] == [False] * 11 + [True]
    assert not any(result.terminated for result in results)
    assert results[-1].success is False


def test_opening_the_door_with_the_last_command_is_success() -> None:
    solution = ["go right", "take key", "go left", "open door"]
    results = play(
        task_of(rooms=2, start=1, key=2, door=1), *["go left"] * 8, *solution, max_steps=12
    )
    assert results[-1].terminated
    assert not results[-1].truncated
    assert results[-1].success is True


def test_every_corridor_is_in_exactly_one_split() -> None:
    factory = ToyFactory(max_rooms=6)
    listed = [tuple(task.payload.values()) for split in SPLITS for task in factory.tasks(split)]
    everything = [
        (rooms, *places)
        for rooms in range(2, 7)
        for places in itertools.product(range(1, rooms + 1), repeat=3)
    ]
    assert sorted(listed) == everything
    sizes = [len(factory.tasks(split)) for split in SPLITS]
    assert sizes == [274, 84, 82]


def test_a_corridor_keeps_its_split_when_longer_ones_are_added() -> None:
    small, large = ToyFactory(max_rooms=3), ToyFactory(max_rooms=8)
    for split in SPLITS:
        assert {task.id for task in small.tasks(split)} <= {task.id for task in large.tasks(split)}


def test_task_ids_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from agentrl.envs.toy import ToyFactory; f = ToyFactory();"
        "print([t.id for s in f.splits for t in f.tasks(s)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_demonstrations_are_as_short_as_the_optimum() -> None:
    factory = ToyFactory()
    for task in factory.tasks("train"):
        assert len(list(factory.demonstrate(task, seed=0, noise=0.0))) == optimal_steps(task)


def test_noise_is_a_share_of_commands_that_are_not_trainable() -> None:
    factory = ToyFactory(max_steps=200)
    steps = [
        step
        for task in factory.tasks("train")
        for step in factory.demonstrate(task, seed=0, noise=0.25)
    ]
    share = sum(not step.trainable for step in steps) / len(steps)
    # about 2 500 draws: the standard error is 0.009
    assert abs(share - 0.25) < 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rooms": 2}, "max_rooms must be from 3 to 20"),
        ({"max_steps": 5}, "at least 2 \\* max"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ToyFactory(**options)


def test_an_unknown_split_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no split 'tests'; did you mean 'test'"):
        ToyFactory().tasks("tests")


def test_a_foreign_task_is_refused() -> None:
    with pytest.raises(DataError, match="has no 'rooms'"):
        asyncio.run(ToyFactory().make(Task("x", "other", "train", {}), seed=0))
