"""The episode loop: one task, one environment, one policy, one trajectory.

Read it top to bottom: ``play`` is the whole of it. Three promises are kept here and nowhere else:
sampled ids are never encoded again, nothing is sampled for an episode that is over, and whatever
the machine does wrong becomes a ``Failure`` on the record, never a reward.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agentrl.agents.actions import ActionFormat, action_key, read_action
from agentrl.core.errors import (
    AgentRLError,
    ConfigError,
    DataError,
    EngineError,
    EnvError,
    EpisodeError,
    RecallError,
)
from agentrl.core.message import Message
from agentrl.core.protocols import Engine, Env, Memory, Renderer, View
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import (
    Failure,
    Sample,
    Sampling,
    Step,
    StepResult,
    StopReason,
    Timings,
    Trajectory,
)
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect

__all__ = ["Agent", "Budgets", "Deadlines", "Episode", "play"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Budgets:
    """What an episode may use before it is truncated. Reaching one is no failure.

    ``max_tokens`` bounds prompt plus answer of any one step; ``max_seconds`` is looked at between
    steps.
    """

    max_steps: int = 50
    max_tokens: int = 8192
    max_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the machine may take, in seconds. Missing one is an infra failure."""

    env_s: float = 120.0
    sample_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Agent:
    """A policy and how it meets its environments.

    ``dialect`` is how it writes calls, where ``action_format`` is ``tools``.
    """

    engine: Engine
    renderer: Renderer
    make_memory: Callable[[], Memory]
    sampling: Sampling
    action_format: ActionFormat = "tagged"
    dialect: Dialect = HERMES
    system_prompt: str = ""
    budgets: Budgets = Budgets()
    deadlines: Deadlines = Deadlines()


@dataclass(frozen=True, slots=True)
class Episode:
    """Who is playing what: the identity of a trajectory before it exists."""

    group_id: str
    task_id: str
    trial: int
    attempt: int
    seed: int

    @property
    def id(self) -> str:
        return f"{self.group_id}/{self.trial}/{self.attempt}"


async def play(
    agent: Agent,
    make_env: Callable[[], Awaitable[Env]],
    episode: Episode,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Trajectory:
    """Play one episode to its end and return its record; the environment is always closed.

    Raises:
        DataError, ConfigError: the environment cannot be made of this task (a damaged game); no
            machine is at fault, so trying again would not help.
        Exception: a bug outside the environment (in the engine, renderer or memory). Expected
            errors and anything the environment raises are recorded as ``Trajectory.failure``.
    """
    started = clock()
    steps: list[Step] = []
    newest: tuple[Message, ...] = ()
    env: Env | None = None
    failure: Failure | None = None
    try:
        env = await _env("make", make_env(), agent.deadlines)
        observation = await _env("reset", env.reset(), agent.deadlines)
        newest = (*_system(agent), *observation.messages)
        memory = agent.make_memory()
        while True:
            stop_reason = _over(steps, agent.budgets, clock() - started)
            if stop_reason is not None:
                break
            prompt = await _prompt(agent, memory, env, steps, newest)
            room = min(agent.sampling.max_tokens, agent.budgets.max_tokens - len(prompt))
            if room < 1:
                stop_reason = StopReason.MAX_TOKENS
                break
            asked = clock()
            sample = await _sample(agent, prompt, room, episode, len(steps))
            answered = clock()
            answer, action, status = read_action(
                agent.renderer.parse(sample.token_ids),
                agent.action_format,
                agent.dialect,
                env.tools,
                truncated=sample.finish_reason == "length",
            )
            result = _checked(await _env("step", env.step(action), agent.deadlines))
            steps.append(
                Step(
                    index=len(steps),
                    shown=newest,
                    anchor=observation.anchor,
                    prompt_ids=tuple(prompt),
                    sample=sample,
                    action=action,
                    action_key=action_key(action),
                    parse_status=status,
                    result=result,
                    timings=Timings(answered - asked, clock() - answered),
                    answer=None if answer == action else answer,
                )
            )
            observation, newest = result.observation, result.observation.messages
    except _Failed as failed:
        stop_reason, failure = StopReason.FAILURE, failed.failure
    finally:
        agent.engine.release(episode.id)
        closing = await _close(env, agent.deadlines)
    # A failure to close what had ended well does not spoil the trajectory; it is on the record.
    success = steps[-1].result.success if steps and steps[-1].result else None
    if success is None and failure is None and stop_reason is not StopReason.TERMINATED:
        success = False  # a budget ran out before the environment knew: not solved
    return Trajectory(
        id=episode.id,
        group_id=episode.group_id,
        task_id=episode.task_id,
        trial=episode.trial,
        attempt=episode.attempt,
        seed=episode.seed,
        steps=tuple(steps),
        stop_reason=stop_reason,
        failure=failure,
        close_failure=closing,
        success=None if failure else success,
        final_shown=newest if steps else (),
        wall_s=clock() - started,
    )


def _system(agent: Agent) -> tuple[Message, ...]:
    return (Message("system", agent.system_prompt),) if agent.system_prompt else ()


def _over(steps: Sequence[Step], budgets: Budgets, seconds: float) -> StopReason | None:
    """Why the episode is over, or ``None``. What the task says comes before any budget."""
    last = steps[-1].result if steps else None
    if last is not None and last.terminated:
        return StopReason.TERMINATED
    if last is not None and last.truncated:
        return StopReason.ENV_TRUNCATED
    if len(steps) >= budgets.max_steps:
        return StopReason.MAX_STEPS
    if seconds >= budgets.max_seconds:
        return StopReason.MAX_SECONDS
    return None


async def _prompt(
    agent: Agent, memory: Memory, env: Env, steps: Sequence[Step], newest: tuple[Message, ...]
) -> list[int]:
    """Ids of the next prompt: what is held plus the new part, or a fresh start."""
    try:
        view: View = await memory.view(steps, newest, budget_tokens=agent.budgets.max_tokens)
    except RecallError as error:
        raise _Failed.at("memory", error) from error
    if not steps or view.rewritten or not agent.renderer.append_only:
        return agent.renderer.start(view.messages, env.tools)
    last = steps[-1]
    closed = last.sample.finish_reason == "stop"
    held = [*last.prompt_ids, *last.sample.token_ids]
    return held + agent.renderer.extend(newest, closed=closed)


async def _sample(
    agent: Agent, prompt: Sequence[int], room: int, episode: Episode, index: int
) -> Sample:
    sampling = replace(agent.sampling, max_tokens=room)
    try:
        async with asyncio.timeout(agent.deadlines.sample_s):
            return await agent.engine.sample(
                prompt,
                sampling=sampling,
                stop_token_ids=agent.renderer.stop_token_ids,
                seed=derive_seed(episode.seed, index),
                episode_id=episode.id,
            )
    except TimeoutError as error:
        late = EngineError(f"no answer within {agent.deadlines.sample_s:g} s")
        raise _Failed.at("sample", late) from error
    except EpisodeError as error:
        raise _Failed.at("sample", error) from error


def _checked(result: StepResult) -> StepResult:
    if result.reward is not None and not math.isfinite(result.reward):
        error = EnvError(
            f"the environment returned the reward {result.reward}; a reward must be a finite "
            "number, or None if the step cannot be scored"
        )
        raise _Failed.at("step", error)
    return result


class _Failed(Exception):
    """Carries a Failure from the boundary where it was seen to the end of the episode."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def at(cls, boundary: str, error: BaseException) -> _Failed:
        return cls(Failure(boundary, type(error).__name__, str(error)))


async def _env(boundary: str, call: Awaitable[T], deadlines: Deadlines) -> T:
    """Wait for the environment. Its code is foreign: whatever it raises is an infra failure."""
    try:
        async with asyncio.timeout(deadlines.env_s):
            return await call
    except TimeoutError as error:
        late = EnvError(f"{boundary} did not return within {deadlines.env_s:g} s")
        raise _Failed.at(boundary, late) from error
    except AgentRLError as error:
        if boundary == "make" and isinstance(error, DataError | ConfigError):
            raise  # no machine can play such a task: a damaged game, a wrong setting
        raise _Failed.at(boundary, error) from error
    except Exception as error:
        wrapped = EnvError(f"{boundary} raised {type(error).__name__}: {error}")
        raise _Failed.at(boundary, wrapped) from error


async def _close(env: Env | None, deadlines: Deadlines) -> Failure | None:
    """Close the environment even while the episode is being cancelled."""
    if env is None:
        return None
    closing = asyncio.ensure_future(_env("close", env.aclose(), deadlines))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait([closing])
        raise
    except _Failed as failed:
        return failed.failure
    return None
