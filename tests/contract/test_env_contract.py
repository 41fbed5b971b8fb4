"""The environment contract: built-in environments keep it, and each rule catches its breach."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from agentrl.core.errors import EnvError
from agentrl.core.message import Message
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.blackbox import Episode
from agentrl.envs.toy import Corridor, CorridorEnv, ToyFactory
from agentrl.registry import make, names
from agentrl.testing.contract import assert_contract, run_checks
from agentrl.testing.contracts.env import CHECKS
from agentrl.testing.faults import Fault, FaultyFactory
from tests.envs.blackbox.conftest import ask, user

SUMS = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(40)]


def ask_twice(episode: Episode) -> bool:
    """An agent of somebody else's."""
    for question in ("first?", "second?"):
        said = ask(episode, [user(f"{question} {episode.problem['question']}")])["content"]
    return bool(said == episode.problem["answer"])


OPTIONS: dict[str, dict[str, Any]] = {
    "tools": {"tasks": SUMS, "tools": ["calculator"]},
    "blackbox": {"tasks": SUMS, "agent": ask_twice},
}


@pytest.mark.parametrize("name", names("env"))
def test_built_in_environments_keep_the_contract(name: str) -> None:
    assert_contract(CHECKS, lambda: make("env", name, OPTIONS.get(name)))


def test_a_wrapper_without_fault_keeps_the_contract() -> None:
    never = Fault("raise", chooses=lambda task, seed: False)
    assert_contract(CHECKS, lambda: FaultyFactory(ToyFactory(), never))


class ResetsAgain(CorridorEnv):
    async def reset(self) -> Observation:
        self._state = None
        return await super().reset()


class GoesOn(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        self._over = False
        return await super().step(action)


class ClosesOnce(CorridorEnv):
    async def aclose(self) -> None:
        if self._over:
            raise RuntimeError("already closed")
        await super().aclose()


class SharesItsRoom(CorridorEnv):
    shared: ClassVar[dict[str, Corridor]] = {}

    async def reset(self) -> Observation:
        self.shared["state"] = self._start
        return await super().reset()

    async def step(self, action: Message) -> StepResult:
        self._state = self.shared["state"]
        result = await super().step(action)
        self.shared["state"] = self._state
        return result


class DrawsGlobally(CorridorEnv):
    async def reset(self) -> Observation:
        observation = await super().reset()
        return replace(observation, messages=(Message("user", f"roll {random.random()}"),))


class ChokesOnEmpty(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        assert action.content.split()[0]
        return await super().step(action)


class FlagsNothing(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        return replace(await super().step(action), action_valid=True)


class FlagsAll(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        return replace(await super().step(action), action_valid=False)


class PaysNaN(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        return replace(await super().step(action), reward=float("nan"))


class EndsTwice(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        result = await super().step(action)
        return replace(result, truncated=result.terminated)


class NeverSucceeds(CorridorEnv):
    async def step(self, action: Message) -> StepResult:
        result = await super().step(action)
        return replace(result, success=False if result.terminated else None)


class SaysNothing(CorridorEnv):
    async def reset(self) -> Observation:
        return replace(await super().reset(), messages=())


class SpeaksAsThePolicy(CorridorEnv):
    async def reset(self) -> Observation:
        return replace(await super().reset(), messages=(Message("assistant", "go left"),))


class HasAnOddAnchor(CorridorEnv):
    async def reset(self) -> Observation:
        return replace(await super().reset(), anchor={1, 2})


class Plays(ToyFactory):
    """A toy factory whose environments are of another class."""

    def __init__(self, env_class: type[CorridorEnv]) -> None:
        super().__init__()
        self.env_class = env_class

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        env = await super().make(task, seed=seed)
        return self.env_class(env._start, max_steps=env._max_steps)


class HasNoSplits(ToyFactory):
    splits = ()


class ListsUnknownSplits(ToyFactory):
    def tasks(self, split: str) -> Sequence[Task]:
        return super().tasks(split) if split in self.splits else ()


class MixesSplits(ToyFactory):
    def tasks(self, split: str) -> Sequence[Task]:
        return [replace(task, split=split) for task in super().tasks("train")]


class NamesByIndex(ToyFactory):
    def tasks(self, split: str) -> Sequence[Task]:
        tasks = [*super().tasks(split), *super().tasks(split)]
        return [replace(task, id=f"{split}-{number}") for number, task in enumerate(tasks)]


class ShufflesTasks(ToyFactory):
    def tasks(self, split: str) -> Sequence[Task]:
        tasks = list(super().tasks(split))
        random.Random(id(tasks)).shuffle(tasks)
        self.kept = [*getattr(self, "kept", []), tasks]
        return tasks


class HoldsObjects(ToyFactory):
    def tasks(self, split: str) -> Sequence[Task]:
        return [replace(task, payload={"start": object()}) for task in super().tasks(split)]


class ShowsAnotherText(ToyFactory):
    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        for step in super().demonstrate(task, seed=seed, noise=noise):
            yield replace(step, observation=Observation((Message("user", "?"),)))


class DemonstratesHalf(ToyFactory):
    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        yield next(super().demonstrate(task, seed=seed, noise=noise))


@pytest.mark.parametrize(
    ("subject", "detail"),
    [
        (HasNoSplits, "name at least one split"),
        (ListsUnknownSplits, "raise ConfigError naming the splits"),
        (MixesSplits, "assign splits by content hash"),
        (NamesByIndex, "never an index or a path"),
        (ShufflesTasks, "gave another order; sort what comes from folders"),
        (HoldsObjects, "is not JSON-like"),
        (lambda: Plays(ResetsAgain), "a second reset was accepted"),
        (lambda: Plays(GoesOn), "step after the end was accepted"),
        (lambda: Plays(ClosesOnce), "already closed"),
        (lambda: Plays(SharesItsRoom), "keep state on the instance"),
        (lambda: Plays(DrawsGlobally), "use random.Random(seed)"),
        (lambda: Plays(DrawsGlobally), "derive all that is random from the seed"),
        (lambda: Plays(ChokesOnEmpty), "the action '' raised IndexError"),
        (lambda: Plays(FlagsNothing), "came back with action_valid=True"),
        (lambda: Plays(FlagsAll), "was offered as admissible but"),
        (lambda: Plays(PaysNaN), "returned the reward nan"),
        (lambda: Plays(EndsTwice), "both terminated and truncated"),
        (lambda: Plays(NeverSucceeds), "(noise 0) ends without success"),
        (lambda: Plays(SaysNothing), "has no messages"),
        (lambda: Plays(SpeaksAsThePolicy), "only the policy speaks as assistant"),
        (lambda: Plays(HasAnOddAnchor), "an anchor is not JSON-like"),
        (ShowsAnotherText, "shows other messages than the environment"),
        (DemonstratesHalf, "ends without success"),
    ],
)
def test_each_breach_is_found_and_explained(subject: Callable[[], Any], detail: str) -> None:
    findings = asyncio.run(run_checks(CHECKS, subject))
    details = [one.detail for one in findings if not one.ok]
    assert any(detail in one for one in details), details


def test_an_environment_that_raises_fails_its_checks_only_in_words() -> None:
    broken = FaultyFactory(ToyFactory(), Fault("raise", at="reset"))
    findings = asyncio.run(run_checks(CHECKS, lambda: broken))
    assert any(EnvError.__name__ in one.detail for one in findings if not one.ok)
    assert broken.opened == broken.closed
