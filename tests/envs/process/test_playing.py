"""Played in worker processes an environment is what it is in one: to the letter, for any number."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Episode, play
from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.core.protocols import Demonstrator, EnvFactory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sampling, StepResult, Timings, Trajectory
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.alfworld import AlfworldFactory
from agentrl.envs.process.factory import ListedTasks, Workers, in_processes
from agentrl.envs.toy import ToyFactory, optimal_steps
from agentrl.memory.transcript import Transcript
from agentrl.registry import make
from agentrl.testing.broken import ANSWERS, BrokenFactory
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS
from tests.envs.process.conftest import Start, children, failure, wait_until

SMALL = {"tasks_per_split": {"train": 20, "validation": 2, "test": 2}, "text": "compact"}
COMMANDS = ("go left", "go right", "take key", "open door", "nonsense \U0001f511")


def answer(prompt: tuple[int, ...], index: int) -> tuple[int, ...]:
    """A command that depends on the prompt and the step alone."""
    return tuple(map(ord, COMMANDS[(sum(prompt) + index) % len(COMMANDS)]))


async def played(factory: EnvFactory, tasks: Sequence[Task], trials: int) -> list[Trajectory]:
    """Trajectories of all tasks, played at once; without the seconds that they took."""
    agent = Agent(
        engine=ScriptedEngine(answer),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=20),
        action_format="bare",
    )

    async def one(task: Task, trial: int) -> Trajectory:
        seed = derive_seed(3, task.id, trial)
        episode = Episode(task.id, task.id, trial, 0, seed)
        found = await play(agent, lambda: factory.make(task, seed=seed), episode)
        steps = tuple(replace(step, timings=Timings()) for step in found.steps)
        return replace(found, steps=steps, wall_s=0.0)

    return await asyncio.gather(*(one(task, trial) for task in tasks for trial in range(trials)))


@pytest.mark.parametrize(
    ("name", "options"), [("toy", {}), ("alfworld", SMALL)], ids=["toy", "alfworld"]
)
def test_an_environment_in_processes_keeps_the_contract(name: str, options: Any) -> None:
    before = children()
    assert_contract(CHECKS, lambda: in_processes(name, options))
    gc.collect()
    wait_until(lambda: children() == before)  # forgotten factories have ended their processes


def test_the_broken_environment_without_a_fault_keeps_it_too() -> None:
    assert_contract(CHECKS, BrokenFactory)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(
    ("name", "options"), [("toy", {"max_rooms": 4}), ("alfworld", SMALL)], ids=["toy", "alfworld"]
)
def test_trajectories_are_those_of_one_process_to_the_letter(
    name: str, options: Any, processes: int, start: Start
) -> None:
    own = make("env", name, options)
    factory = start(name=name, options=options, processes=processes, episodes=4)
    tasks = own.tasks("train")[:10]
    assert list(factory.splits) == list(own.splits)
    expected = asyncio.run(played(own, tasks, 2))
    found = asyncio.run(played(factory, factory.tasks("train")[:10], 2))
    assert all(one.failure is None for one in expected)
    assert [repr(one) for one in found] == [repr(one) for one in expected]


@pytest.mark.parametrize("own", [ToyFactory(max_rooms=10), AlfworldFactory(**SMALL)])  # type: ignore[arg-type]
def test_tasks_are_the_same_in_the_same_order(own: Any, start: Start) -> None:
    name = "toy" if isinstance(own, ToyFactory) else "alfworld"
    options = {"max_rooms": 10} if isinstance(own, ToyFactory) else SMALL
    factory = start(name=name, options=options, processes=2)
    for split in own.splits:
        tasks = factory.tasks(split)
        assert len(tasks) == len(own.tasks(split))
        assert tasks[-1] == own.tasks(split)[-1]  # fetches all pages at once
        assert repr(list(tasks)) == repr(list(own.tasks(split)))
        assert tasks[1:3] == tuple(own.tasks(split)[1:3])
        assert factory.tasks(split) is tasks
    with pytest.raises(IndexError, match="task 9999 of"):
        tasks[9999]
    assert len(children()) == 1  # the other process has nothing to do yet


def test_large_tasks_come_in_smaller_pages(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests_large_tasks.py").write_text(
        """
from agentrl.core.task import Task

class Factory:
    splits = ("train",)
    def tasks(self, split):
        return [Task(str(n), "large", split, {"text": str(n) * 3_000_000}) for n in range(4)]
    async def make(self, task, *, seed): ...
"""
    )
    tasks = start(name="tests_large_tasks:Factory").tasks("train")
    assert [len(one.payload["text"]) for one in tasks] == [3_000_000] * 4
    assert [one.id for one in tasks] == ["0", "1", "2", "3"]


def test_an_unknown_split_is_refused_in_the_environments_words(start: Start) -> None:
    factory = start(name="toy")
    error = failure(lambda: factory.tasks("trian"))
    assert isinstance(error, ConfigError)
    assert "did you mean 'train'?" in str(error)


def test_demonstrations_are_streamed_and_equal(start: Start) -> None:
    own = ToyFactory(max_rooms=20, max_steps=60)
    factory = start(name="toy", options={"max_rooms": 20, "max_steps": 60})
    assert isinstance(factory, Demonstrator)
    long = max(own.tasks("validation"), key=optimal_steps)
    for noise in (0.0, 0.4):
        expected = list(own.demonstrate(long, seed=1, noise=noise))
        assert len(expected) > 16  # more than one page
        assert list(factory.demonstrate(long, seed=1, noise=noise)) == expected
    begun = iter(factory.demonstrate(long, seed=1, noise=0))
    next(begun)
    del begun  # given up in the middle; the process plays on
    assert list(factory.demonstrate(long, seed=1, noise=0))


def test_a_factory_without_an_expert_has_none_in_processes(start: Start) -> None:
    factory = start(name="tests_plain_env:PlainFactory")
    assert not isinstance(factory, Demonstrator)
    assert factory.splits == ["train"]
    assert factory.tools == (ToolSpec("look", "Look."),)
    assert start(name="toy").tools == ()


@pytest.fixture(autouse=True)
def plain_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in a folder of ``sys.path`` that no package knows."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tests_plain_env.py").write_text(
        """
from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult

class PlainEnv:
    def __init__(self): self.tools, self.count = [], 0
    async def reset(self):
        self.tools = [ToolSpec("look", "Look.", {"type": "object", "required": ("a",)})]
        return Observation((Message("user", "begin"),))
    async def step(self, action):
        self.count += 1
        call = action.tool_calls[0]
        if self.count == 2:
            self.tools = [*self.tools, ToolSpec("take", "Take.")]
        shown = Message("tool", repr((call.name, call.arguments)), tool_call_id=call.id)
        return StepResult(Observation((shown,)), 0.0, terminated=False)
    async def aclose(self): pass

class PlainFactory:
    splits = ["train"]
    tools = [ToolSpec("look", "Look.")]
    def tasks(self, split): return [Task("t", "plain", "train")]
    async def make(self, task, *, seed): return PlainEnv()
"""
    )


def test_tools_and_their_changes_and_calls_cross(start: Start) -> None:
    factory = start(name="tests_plain_env:PlainFactory")

    async def work() -> None:
        env = await factory.make(factory.tasks("train")[0], seed=0)
        assert list(env.tools) == []
        await env.reset()
        look = ToolSpec("look", "Look.", {"type": "object", "required": ("a",)})
        assert list(env.tools) == [look]
        arguments = {"deep": [1, (2.0, None)], "$tuple": []}
        action = Message("assistant", "", tool_calls=(ToolCall("c1", "look", arguments),))
        result = await env.step(action)
        assert result.observation.messages == (
            Message("tool", repr(("look", arguments)), tool_call_id="c1"),
        )
        await env.step(action)
        assert list(env.tools) == [look, ToolSpec("take", "Take.")]
        await env.aclose()

    asyncio.run(work())


def test_replay_is_there_where_the_environment_has_it(start: Start) -> None:
    task = ToyFactory().tasks("train")[5]
    actions = [one.action for one in ToyFactory().demonstrate(task, seed=0, noise=0)]

    async def last(factory: Any) -> Any:
        env = await factory.make(task, seed=0)
        try:
            return await env.replay(actions)
        finally:
            await env.aclose()

    expected = asyncio.run(last(BrokenFactory()))
    assert expected.messages[0].content == "The door is open."
    assert asyncio.run(last(start())) == expected
    with pytest.raises(AttributeError):
        asyncio.run(last(start(name="toy")))


@pytest.mark.parametrize("name", ["nan", "no_reward", "exact", "ten_megabytes"])
def test_odd_but_right_answers_arrive_as_in_one_process(name: str, start: Start) -> None:
    async def stepped(factory: EnvFactory) -> StepResult:
        env = await factory.make(ToyFactory().tasks("train")[0], seed=0)
        await env.reset()
        result = await env.step(Message("assistant", "look"))
        await env.aclose()
        return result

    expected = asyncio.run(stepped(BrokenFactory(fault=name)))
    assert repr(asyncio.run(stepped(start(name)))) == repr(expected)
    assert name in ANSWERS


def test_each_process_plays_as_few_as_the_others(start: Start) -> None:
    factory = start(processes=3, episodes=2)
    task = factory.tasks("train")[0]
    assert factory.capacity == 6

    async def work() -> list[int]:
        envs = [await factory.make(task, seed=0) for _ in range(6)]
        numbers = sorted(env._episode._connection._number for env in envs)
        waiting = asyncio.create_task(factory.make(task, seed=0))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done  # no place
        await envs[4].aclose()
        late = await waiting
        assert late._episode._connection is envs[4]._episode._connection
        for env in (*envs, late):
            await env.aclose()
        return numbers

    assert asyncio.run(work()) == [0, 0, 1, 1, 2, 2]
    assert len(children()) == 3


def test_one_factory_serves_several_event_loops_and_none(start: Start) -> None:
    factory = start(name="toy")
    task = factory.tasks("train")[0]

    async def reset() -> str:
        env = await factory.make(task, seed=0)
        shown = (await env.reset()).messages[0].content
        await env.aclose()
        return shown

    assert asyncio.run(reset()) == asyncio.run(reset())
    assert len(factory.tasks("test")) == len(ToyFactory().tasks("test"))


def test_a_blocking_environment_blocks_neither_the_loop_nor_another_process(start: Start) -> None:
    factory = start("block_a_while", processes=2, episodes=1)
    task = factory.tasks("train")[0]

    async def work() -> tuple[bool, int]:
        slow, quick = [await factory.make(task, seed=0) for _ in range(2)]
        await slow.reset()
        blocked = asyncio.create_task(slow.step(Message("assistant", "look")))
        turns = 0
        while turns < 5 and not blocked.done():
            await asyncio.sleep(0.01)
            await quick.reset() if not turns else None
            turns += 1
        answered_meanwhile = not blocked.done()
        await blocked
        for env in (slow, quick):
            await env.aclose()
        return answered_meanwhile, turns

    assert asyncio.run(work()) == (True, 5)


def test_calls_out_of_order_are_refused_as_in_one_process(start: Start) -> None:
    factory = start(name="toy")

    async def work() -> list[str]:
        env = await factory.make(factory.tasks("train")[0], seed=0)
        said = []
        for call in (env.step(Message("assistant", "look")), env.reset(), env.reset()):
            try:
                await call
            except EnvError as error:
                said.append(str(error))
        await env.aclose()
        await env.aclose()
        with pytest.raises(EnvError, match="step called after the episode was closed"):
            await env.step(Message("assistant", "look"))
        return said

    assert asyncio.run(work()) == [
        "step called before reset, or after the episode was over or closed",
        "reset called twice or after aclose; an Env plays one episode: make one",
    ]


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"processes": 0}, {"episodes": 0}, {"grace_s": 0}, {"start_timeout_s": -1}):
        with pytest.raises(ConfigError, match=f"workers.{next(iter(wrong))} must be"):
            Workers(**wrong)  # type: ignore[arg-type]


def test_what_another_process_cannot_make_is_refused() -> None:
    assert isinstance(failure(lambda: in_processes("__main__:Mine")), ConfigError)
    assert isinstance(failure(lambda: in_processes(ToyFactory)), ConfigError)  # type: ignore[arg-type]
    error = failure(lambda: in_processes("toy", {"max_rooms": {1, 2}}))
    assert "max_rooms" in str(error)
    assert "a set" in str(error)


def test_listed_tasks_say_when_the_environment_lists_others(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tests_fickle_env.py").write_text(
        """
import itertools, os
from agentrl.core.task import Task

class FickleFactory:
    splits = ("train",)
    def tasks(self, split): return [Task(str(n), "f", "train") for n in range(300 + os.getpid())]
    async def make(self, task, *, seed): os._exit(1)
"""
    )
    factory = start(name="tests_fickle_env:FickleFactory")
    tasks = factory.tasks("train")
    assert isinstance(tasks, ListedTasks)
    first, *_ = children()
    os.kill(first, 9)
    wait_until(lambda: children() not in ([], [first]))
    error = failure(lambda: tasks[299])
    assert "they must be the same each time" in str(error)
