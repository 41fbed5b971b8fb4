"""How the environment suite plays an environment and judges what it showed."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.core.errors import EnvError
from agentrl.core.message import ROLES, Message
from agentrl.core.protocols import Demonstrator, Env, EnvFactory
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, StepResult
from agentrl.testing.contract import ContractViolation, require

MakeFactory = Callable[[], EnvFactory]

SEED = 7
PLAY_STEPS = 12


@dataclass(slots=True)
class Record:
    """What an environment showed."""

    observations: list[Observation] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return bool(self.results) and (self.results[-1].terminated or self.results[-1].truncated)


def first_task(make: MakeFactory) -> tuple[EnvFactory, Task]:
    factory = make()
    return factory, factory.tasks(factory.splits[0])[0]


@asynccontextmanager
async def opened(factory: EnvFactory, task: Task) -> AsyncIterator[Env]:
    env = await factory.make(task, seed=SEED)
    try:
        yield env
    finally:
        await env.aclose()


async def play(env: Env, actions: Iterable[Message] | None, limit: int) -> Record:
    """Reset, then play ``actions`` (``None``: admissible commands in turn) until over."""
    record = Record([await env.reset()])
    given = None if actions is None else iter(actions)
    while not record.over and len(record.results) < limit:
        action = _turn(record) if given is None else next(given, None)
        if action is None:
            break
        record.results.append(await env.step(action))
        record.observations.append(record.results[-1].observation)
    return record


def _turn(record: Record) -> Message:
    offered = record.observations[-1].admissible or ("look",)
    return Message("assistant", offered[(5 * len(record.results) + 1) % len(offered)])


async def play_alone(factory: EnvFactory, task: Task) -> tuple[list[Message], Record]:
    """Play a few admissible commands; returns them and what was shown."""
    actions: list[Message] = []
    async with opened(factory, task) as env:
        record = Record([await env.reset()])
        while not record.over and len(actions) < PLAY_STEPS:
            actions.append(_turn(record))
            record.results.append(await env.step(actions[-1]))
            record.observations.append(record.results[-1].observation)
    return actions, record


def solution(factory: EnvFactory, task: Task) -> list[Message] | None:
    if not isinstance(factory, Demonstrator):
        return None
    return [step.action for step in factory.demonstrate(task, seed=SEED, noise=0.0)]


async def require_refused(call: Any, what: str) -> None:
    try:
        await call
    except EnvError:
        return
    except Exception as error:
        raise ContractViolation(
            f"{what} raised {type(error).__name__}: {error}; raise EnvError"
        ) from error
    raise ContractViolation(f"{what} was accepted; an Env is one episode: raise EnvError")


def require_same(first: Record, second: Record, advice: str) -> None:
    require(
        first.observations[0] == second.observations[0],
        f"reset showed {short(first.observations[0])}, then {short(second.observations[0])} for "
        f"the same task and seed; {advice}",
    )
    for number, (one, other) in enumerate(zip(first.results, second.results, strict=False)):
        require(
            replace(one, metrics={}) == replace(other, metrics={}),
            f"step {number} answered {short(one)}, then {short(other)} for the same task, seed "
            f"and actions; {advice}",
        )


def check_result(result: StepResult) -> None:
    require(isinstance(result, StepResult), f"step returned {short(result)}, not a StepResult")
    require(
        result.reward is None or math.isfinite(result.reward),
        f"a step returned the reward {result.reward}; finite, or None if it cannot be scored",
    )
    for name, value in result.metrics.items():
        require(math.isfinite(value), f"the metric '{name}' is {value}; metrics are finite numbers")
    require(
        not (result.terminated and result.truncated),
        "a step is both terminated and truncated; terminated is the task's end, truncated a budget",
    )
    require(
        not result.terminated or result.success is not None,
        "a terminated step leaves success None; at its end a task is solved or not",
    )
    check_observation(result.observation, over=result.terminated or result.truncated)


def check_observation(observation: Observation, *, over: bool) -> None:
    require(
        isinstance(observation, Observation),
        f"got {short(observation)} where an Observation is expected",
    )
    require(
        over or bool(observation.messages),
        "an observation has no messages though the episode goes on; the policy would see nothing",
    )
    for message in observation.messages:
        require(
            message.role in ROLES and message.role != "assistant",
            f"an observation has a message of role '{message.role}'; only the policy speaks as "
            "assistant",
        )
    if observation.anchor is not None:
        json_hash(observation.anchor, "an anchor")
    commands = observation.admissible
    if commands is not None and not over:
        require(
            bool(commands)
            and len(set(commands)) == len(commands)
            and all(map(str.strip, commands)),
            f"admissible must be None or unique commands, not {short(commands)}",
        )


def json_hash(value: Any, what: str) -> str:
    try:
        return content_hash(value)
    except (TypeError, ValueError) as error:
        raise ContractViolation(f"{what} is not JSON-like: {error}") from error


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
