"""The episode loop: one task, one environment, one policy, one trajectory.

Read it top to bottom: ``_play`` is the whole of it. Three promises are kept here and in ``flight``,
which waits for all foreign code: sampled ids are never encoded again, nothing is sampled for an
episode that is over, and whatever the machine does wrong becomes a ``Failure``, never a reward.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentrl.agents.actions import ActionFormat, action_key, read_action
from agentrl.agents.flight import Deadlines, Episode, Failed, Flight
from agentrl.agents.gate import EngineGate
from agentrl.agents.results import checked_observation, checked_result
from agentrl.core.errors import EnvError
from agentrl.core.message import Message
from agentrl.core.protocols import Engine, Env, Memory, Renderer, View
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import (
    Failure,
    Sample,
    Sampling,
    Step,
    StopReason,
    Timings,
    Trajectory,
)
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect

__all__ = ["Agent", "Budgets", "Deadlines", "Episode", "Flight", "play"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Budgets:
    """What an episode may use before it is truncated. Reaching one is no failure.

    ``max_tokens`` bounds prompt plus answer of any one step; ``max_seconds`` is looked at between
    steps. ``max_truncated`` answers in a row that their length limit cut end the episode as
    ``MAX_TOKENS`` does: a policy that was told so and goes on is in a loop. 0: only the others do.
    """

    max_steps: int = 50
    max_tokens: int = 8192
    max_seconds: float = 600.0
    max_truncated: int = 0


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
    deadlines: Deadlines = field(default_factory=Deadlines)


async def play(
    agent: Agent,
    make_env: Callable[[], Awaitable[Env]],
    episode: Episode,
    *,
    flight: Flight | None = None,
    gate: EngineGate | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Trajectory:
    """Play one episode to its end and return its record; the environment is always closed.

    Args:
        agent: The policy.
        make_env: Makes the environment.
        episode: Who plays what.
        flight: What others look at while it lasts, and give it up by; one of its own if ``None``.
        gate: The way to the engine, shared by all who use it; one of its own if ``None``.
        clock: Seconds.

    Raises:
        DataError, ConfigError: the environment cannot be made of this task (a damaged game); no
            machine is at fault, so trying again would not help.
        Exception: a bug outside the environment (in the engine, renderer or memory). Expected
            errors and anything the environment raises are recorded as ``Trajectory.failure``.
    """
    started = clock()
    flight = Flight(episode, agent.deadlines) if flight is None else flight
    game = _Game(agent, flight, EngineGate() if gate is None else gate, clock)
    try:
        await flight.run(lambda: _play(game, make_env))
    finally:
        game.release()
    return game.record(clock() - started)


@dataclass(slots=True)
class _Game:
    """An episode under way: its parts, and how it stands."""

    agent: Agent
    flight: Flight
    gate: EngineGate
    clock: Callable[[], float]
    newest: tuple[Message, ...] = ()
    began: int = 0  # the step with which the conversation under way began
    stop_reason: StopReason | None = None
    failure: Failure | None = None
    released: bool = field(default=False, init=False)

    @property
    def steps(self) -> list[Step]:
        return self.flight.steps

    @property
    def where(self) -> str:
        """For messages: the environment and the step."""
        return f"environment '{self.flight.episode.env}' at step {len(self.steps)}"

    def release(self) -> None:
        """Give the engine's slot back, once."""
        if not self.released:
            self.released = True
            self.agent.engine.release(self.flight.episode.id)

    def record(self, wall_s: float) -> Trajectory:
        """What it came to."""
        episode, steps = self.flight.episode, tuple(self.steps)
        # An episode that had ended when it was given up has ended: nothing finished is lost.
        failure = self.failure or (None if self.stop_reason else self.flight.verdict)
        success = steps[-1].result.success if steps and steps[-1].result else None
        if success is None and failure is None and self.stop_reason is not StopReason.TERMINATED:
            success = False  # a budget ran out before the environment knew: not solved
        return Trajectory(
            id=episode.id,
            group_id=episode.group_id,
            task_id=episode.task_id,
            trial=episode.trial,
            attempt=episode.attempt,
            seed=episode.seed,
            steps=steps,
            stop_reason=StopReason.FAILURE if failure else self.stop_reason or StopReason.FAILURE,
            failure=failure,
            # What had ended well is not spoilt by it, but it is on the record.
            close_failure=self.flight.close_failure,
            success=None if failure else success,
            final_shown=self.newest if steps else (),
            wall_s=wall_s,
        )


async def _play(game: _Game, make_env: Callable[[], Awaitable[Env]]) -> None:
    """The loop itself: until the task or a budget ends the episode, or the machine fails."""
    agent, flight, clock = game.agent, game.flight, game.clock
    started = clock()
    try:
        env = await flight.make(make_env)
        observation = await flight.call("reset", env.reset, agent.deadlines.reset_s)
        observation = _whole(checked_observation, observation, game, "reset")
        game.newest = (*_system(agent), *observation.messages)
        memory = agent.make_memory()
        while True:
            game.stop_reason = _over(game.steps, agent.budgets, clock() - started)
            if game.stop_reason is not None:
                break
            prompt = await _prompt(game, memory, env)
            room = min(agent.sampling.max_tokens, agent.budgets.max_tokens - len(prompt))
            if room < 1:
                game.stop_reason = StopReason.MAX_TOKENS
                break
            asked = clock()
            flight.waits_for("tokens")
            async with game.gate.call(flight, len(prompt) + room):
                let_in = clock()
                sample = await _sample(game, prompt, room)
            answered = clock()
            answer, action, status = read_action(
                agent.renderer.parse(sample.token_ids),
                agent.action_format,
                agent.dialect,
                env.tools,
                truncated=sample.finish_reason == "length",
            )
            result = await flight.call(
                "step",
                lambda: env.step(action),  # noqa: B023 - awaited before the next round
                agent.deadlines.step_s,
            )
            result = _whole(checked_result, result, game, "step")
            queued_s = float(result.metrics.get("tool_wait_s", 0.0))  # an env with tools says
            timings = Timings(
                sample_s=answered - let_in,
                env_s=clock() - answered - queued_s,
                tool_s=float(result.metrics.get("tool_s", 0.0)),
                wait_s=let_in - asked + queued_s,
            )
            game.steps.append(
                Step(
                    index=len(game.steps),
                    shown=game.newest,
                    anchor=observation.anchor,
                    prompt_ids=tuple(prompt),
                    sample=sample,
                    action=action,
                    action_key=action_key(action),
                    parse_status=status,
                    result=result,
                    timings=timings,
                    answer=None if answer == action else answer,
                )
            )
            observation = result.observation
            game.newest = observation.messages
            if observation.fresh:
                game.newest = (*_system(agent), *observation.messages)
                game.began, memory = len(game.steps), agent.make_memory()
    except Failed as failed:
        game.failure = failed.failure
    finally:
        game.release()


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
    cut = budgets.max_truncated
    if 0 < cut <= len(steps) and all(_cut(step) for step in steps[-cut:]):
        return StopReason.MAX_TOKENS
    return None


def _cut(step: Step) -> bool:
    return step.sample.finish_reason == "length"


async def _prompt(game: _Game, memory: Memory, env: Env) -> list[int]:
    """Ids of the next prompt: what is held plus the new part, or a fresh start."""
    agent, newest = game.agent, game.newest
    steps = game.steps[game.began :]
    budget = agent.budgets.max_tokens
    view: View = await game.flight.call(
        "memory",
        lambda: memory.view(steps, newest, budget_tokens=budget),
        agent.deadlines.sample_s,
    )
    if not steps or view.rewritten or not agent.renderer.append_only:
        return agent.renderer.start(view.messages, env.tools)
    last = steps[-1]
    closed = last.sample.finish_reason == "stop"
    held = [*last.prompt_ids, *last.sample.token_ids]
    return held + agent.renderer.extend(newest, closed=closed)


async def _sample(game: _Game, prompt: Sequence[int], room: int) -> Sample:
    agent, episode = game.agent, game.flight.episode
    return await game.flight.call(
        "sample",
        lambda: agent.engine.sample(
            prompt,
            sampling=replace(agent.sampling, max_tokens=room),
            stop_token_ids=agent.renderer.stop_token_ids,
            seed=derive_seed(episode.seed, len(game.steps)),
            episode_id=episode.id,
        ),
        agent.deadlines.sample_s,
    )


def _whole(check: Callable[[object, str], T], answer: object, game: _Game, boundary: str) -> T:
    """An environment's answer, if it is well formed; else the environment has failed."""
    try:
        return check(answer, game.where)
    except EnvError as error:
        raise Failed.at(boundary, error) from error
