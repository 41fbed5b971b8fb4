"""Foreign code that raises, hangs, lies, comes too late or will not end, at every call of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest

from agentrl.agents.flight import Deadlines, Episode, Flight, failure_of
from agentrl.agents.gate import EngineGate
from agentrl.agents.loop import Agent, Budgets, play
from agentrl.core.errors import (
    ConfigError,
    DataError,
    EngineError,
    EnvError,
    RecallError,
    SandboxDiedError,
    ToolError,
)
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Env, View
from agentrl.core.trajectory import (
    Failure,
    Observation,
    Sampling,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)
from agentrl.engines.scripted import Delay, Hang, ScriptedEngine
from agentrl.memory.transcript import Transcript
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.scripts import say
from agentrl.testing.simulated_time import run_simulated

EPISODE = Episode("g", "task", 0, 0, seed=7, env="odd")
GO_ON = StepResult(say("more"), 0.0, terminated=False)
WIN = StepResult(say(), 1.0, terminated=True, success=True)
QUICK = Deadlines(make_s=0.05, reset_s=0.05, step_s=0.05, close_s=0.05, cancel_s=0.02)
PLACES = ("make", "reset", "step", "close")


async def nothing() -> None:
    """Let everybody else have a turn."""
    await asyncio.sleep(0)


@dataclass
class OddEnv:
    """Wins at its third step; ``odd`` is called in the middle of the call ``at``."""

    at: str = ""
    odd: Callable[[], Awaitable[None]] = nothing
    calls: list[str] = field(default_factory=list)
    closed: int = 0

    tools: Sequence[ToolSpec] = ()

    async def make(self) -> Env:
        await self._call("make")
        return self

    async def reset(self) -> Observation:
        await self._call("reset")
        return say("start")

    async def step(self, action: Message) -> StepResult:
        await self._call("step" if self.calls.count("step") == 1 else "other step")
        self.calls[-1] = "step"
        return WIN if self.calls.count("step") == 3 else GO_ON

    async def aclose(self) -> None:
        await self._call("close")
        self.closed += 1

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        await nothing()
        if self.at == name:
            await self.odd()


def agent(engine: ScriptedEngine | None = None, **changes: Any) -> Agent:
    plain = Agent(
        engine=engine or ScriptedEngine([(97,)] * 9),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=4),
        action_format="bare",
        deadlines=QUICK,
    )
    return replace(plain, **changes)


@dataclass
class Played:
    trajectory: Trajectory
    late: list[str]
    engine: ScriptedEngine


def run(
    env: OddEnv, player: Agent | None = None, *, linger_s: float = 0.0, simulated: bool = True
) -> Played:
    """Play, then let what was left to itself go on for a while.

    In simulated time no deadline passes because the machine was busy; what holds a thread needs
    the real clock.
    """
    player = player or agent()
    late: list[str] = []

    async def scenario() -> Trajectory:
        flight = Flight(EPISODE, player.deadlines, on_late=late.append)
        async with asyncio.timeout(60):
            trajectory = await play(player, env.make, EPISODE, flight=flight)
            await asyncio.sleep(linger_s)
        return trajectory

    trajectory = (run_simulated if simulated else asyncio.run)(scenario())
    assert isinstance(player.engine, ScriptedEngine)
    assert player.engine.released == [EPISODE.id]
    assert player.engine.in_flight == 0
    return Played(trajectory, late, player.engine)


def assert_failed_at(place: str, played: Played, env: OddEnv, error: str) -> None:
    """The failure is where it happened; close spoils nothing; nothing is left open."""
    trajectory = played.trajectory
    broken = trajectory.close_failure if place == "close" else trajectory.failure
    assert broken is not None
    assert (broken.boundary, broken.error) == (place, error)
    if place == "close":
        assert (trajectory.failure, trajectory.success, trajectory.reward) == (None, True, 1.0)
        return
    assert trajectory.stop_reason is StopReason.FAILURE
    assert (trajectory.success, trajectory.reward, trajectory.scored) == (None, None, False)
    assert len(trajectory.steps) == (1 if place == "step" else 0)
    assert len(played.engine.calls) == (2 if place == "step" else 0)
    assert env.closed == (0 if place == "make" else 1)


async def exits() -> None:
    raise SystemExit(3)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def odd() -> None:
        raise error

    return odd


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (raising(EnvError("planted")), "EnvError"),
        (raising(SandboxDiedError("planted")), "SandboxDiedError"),
        (raising(KeyError("planted")), "EnvError"),
        (raising(ToolError("planted")), "EnvError"),
        (raising(TimeoutError()), "EnvError"),
        (raising(StopAsyncIteration()), "EnvError"),
        (raising(RecursionError()), "EnvError"),
        (exits, "EnvError"),
        (cancels_itself, "EnvError"),
    ],
)
def test_c2_whatever_a_call_raises_is_recorded_where_it_was_raised(
    place: str, odd: Callable[[], Awaitable[None]], error: str
) -> None:
    env = OddEnv(place, odd)
    assert_failed_at(place, run(env), env, error)


def only(place: str, seconds: float) -> Deadlines:
    """So long for one kind of call, and long for all others."""
    return replace(Deadlines(cancel_s=0.02), **{f"{place}_s": seconds})


async def hangs() -> None:
    await asyncio.Event().wait()


async def blocks_the_thread() -> None:
    time.sleep(0.2)  # noqa: ASYNC251 - blocking the loop is the fault


async def blocks_another_thread() -> None:
    await asyncio.to_thread(time.sleep, 0.3)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", [hangs, blocks_another_thread])
def test_c3_a_call_that_hangs_meets_its_deadline(
    place: str, odd: Callable[[], Awaitable[None]]
) -> None:
    env = OddEnv(place, odd)
    player = agent(deadlines=only(place, 0.05))
    played = run(env, player, simulated=odd is hangs)
    assert_failed_at(place, played, env, "DeadlineError")
    broken = played.trajectory.failure or played.trajectory.close_failure
    assert broken is not None
    assert broken.message == f"{place} did not return within 0.05 s"


@pytest.mark.parametrize("place", PLACES[:3])
def test_c3_a_call_that_blocked_the_loop_is_late_once_it_returns(place: str) -> None:
    env = OddEnv(place, blocks_the_thread)
    played = run(env, agent(deadlines=only(place, 0.05)), simulated=False)
    assert played.trajectory.failure is not None
    assert "it blocked the event loop for " in played.trajectory.failure.message
    assert env.closed == 1  # made at last, so it is closed
    assert len(played.trajectory.steps) == (1 if place == "step" else 0)


@pytest.mark.parametrize("place", PLACES)
def test_what_ignores_its_cancellation_delivers_nothing_when_it_returns(place: str) -> None:
    async def late() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)

    env = OddEnv(place, late)
    played = run(env, linger_s=0.3)
    trajectory = played.trajectory
    broken = trajectory.close_failure if place == "close" else trajectory.failure
    assert broken is not None
    assert (broken.boundary, broken.error) == (place, "DeadlineError")
    assert played.late == ([] if place == "close" else [place])
    assert len(trajectory.steps) == {"step": 1, "close": 3}.get(place, 0)
    assert len(played.engine.calls) == {"step": 2, "close": 3}.get(place, 0)
    assert env.closed == 1  # also the environment that was made too late


def test_an_environment_that_ends_soon_after_its_cancellation_is_closed_by_its_own_task() -> None:
    tasks: list[Any] = []

    class Watchful(OddEnv):
        async def _call(self, name: str) -> None:
            tasks.append(asyncio.current_task())
            await super()._call(name)

    env = Watchful("step", hangs)
    run(env)
    assert env.calls[-1] == "close"
    assert len(set(tasks)) == 1  # contexts that must be left where they were entered can be


def test_the_deadline_of_the_episode_is_a_failure_that_says_what_was_waited_for() -> None:
    env = OddEnv("step", hangs)
    deadlines = replace(QUICK, step_s=9.0, episode_s=0.1)
    failure = run(env, agent(deadlines=deadlines)).trajectory.failure
    assert failure is not None
    assert (failure.boundary, failure.error) == ("episode", "DeadlineError")
    assert "not over after 0.1 s; it had made 1 steps and was waiting for 'step'" in failure.message
    assert env.closed == 1


def test_the_budget_of_seconds_truncates_and_is_no_failure() -> None:
    player = agent(budgets=Budgets(max_seconds=0.0), deadlines=replace(QUICK, episode_s=5.0))
    trajectory = run(OddEnv(), player).trajectory
    assert (trajectory.stop_reason, trajectory.failure) == (StopReason.MAX_SECONDS, None)
    assert trajectory.success is False


def test_an_answer_that_does_not_come_and_a_memory_that_does_not_are_failures() -> None:
    engine = ScriptedEngine([(97,)] * 9, faults={(EPISODE.id, 1): Hang()})
    quick = replace(QUICK, sample_s=0.05)
    failure = run(OddEnv(), agent(engine, deadlines=quick)).trajectory.failure
    assert failure == Failure("sample", "DeadlineError", "sample did not return within 0.05 s")

    class Forgetful(Transcript):
        async def view(
            self, steps: Sequence[Step], newest: Sequence[Message], *, budget_tokens: int
        ) -> View:
            if steps:
                await hangs()
            return await super().view(steps, newest, budget_tokens=budget_tokens)

    player = agent(make_memory=Forgetful, deadlines=quick)
    failure = run(OddEnv(), player).trajectory.failure
    assert failure == Failure("memory", "DeadlineError", "memory did not return within 0.05 s")


def test_waiting_for_tokens_is_timed_apart_from_sampling() -> None:
    engine = ScriptedEngine([(97,)] * 9, faults={(EPISODE.id, 0): Delay(0.05)})
    tool = replace(WIN, metrics={"tool_s": 0.25})

    class Tooled(OddEnv):
        async def step(self, action: Message) -> StepResult:
            return tool

    async def scenario() -> Trajectory:
        gate = EngineGate.of(8)
        async with gate.tokens.room(8):
            playing = asyncio.create_task(play(agent(engine), Tooled().make, EPISODE, gate=gate))
            await asyncio.sleep(0.1)
            assert not engine.calls
        return await playing

    (step,) = asyncio.run(scenario()).steps
    assert step.timings.wait_s > 0.05
    assert step.timings.sample_s > 0.03
    assert step.timings.env_s < step.timings.wait_s
    assert step.timings.tool_s == 0.25


def win(**changes: Any) -> StepResult:
    return replace(WIN, **changes)


def observation(*messages: Any) -> Observation:
    return Observation(messages)


def message(role: Any, content: Any) -> Message:
    return Message(role, content)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "returned None, expected a StepResult"),
        ((say(), 1.0, True, False, {}), "expected a StepResult"),
        (win(observation=None), "gave None where an Observation is expected"),
        (win(observation=observation("hi")), "shows 'hi', expected a Message"),
        (
            win(observation=observation(message("user", None))),
            "expected a Message with text",
        ),
        (
            win(observation=observation(message("assistant", "I win"))),
            "only the policy speaks as assistant",
        ),
        (win(observation=replace(say("x"), anchor={1, 2})), "gave the anchor {1, 2}"),
        (win(observation=replace(say("x"), anchor={1: 2})), "gave the anchor {1: 2}"),
        (win(reward="1"), "returned the reward '1'"),
        (win(reward=float("nan")), "returned the reward nan"),
        (win(reward=float("-inf")), "returned the reward -inf"),
        (win(reward=10**400), "returned the reward 1000"),
        (win(success=1), "gave success as 1"),
        (win(metrics={"speed": float("nan")}), "gave the metric 'speed' as nan"),
        (win(metrics={"speed": None}), "gave the metric 'speed' as None"),
    ],
)
def test_c1_a_malformed_answer_is_a_failure_that_names_environment_and_step(
    answer: Any, words: str
) -> None:
    class Lying(OddEnv):
        async def step(self, action: Message) -> StepResult:
            result = await super().step(action)
            return result if self.calls.count("step") < 2 else answer

    trajectory = run(Lying()).trajectory
    assert trajectory.failure is not None
    assert (trajectory.failure.boundary, trajectory.failure.error) == ("step", "EnvError")
    assert "environment 'odd' at step 1" in trajectory.failure.message
    assert words in trajectory.failure.message
    assert (len(trajectory.steps), trajectory.reward) == (1, None)


def test_an_answer_that_is_no_awaitable_and_a_reset_that_shows_nothing_are_failures() -> None:
    class Synchronous(OddEnv):
        def step(self, action: Message) -> StepResult:  # type: ignore[override]
            return WIN

    class Silent(OddEnv):
        async def reset(self) -> Any:
            return None

    failure = run(Synchronous()).trajectory.failure
    assert failure is not None
    assert failure.boundary == "step"
    assert "StepResult" in failure.message
    failure = run(Silent()).trajectory.failure
    assert failure is not None
    assert failure.boundary == "reset"


def test_a_reward_of_another_kind_of_number_is_recorded_as_a_float() -> None:
    class Fractional(OddEnv):
        async def step(self, action: Message) -> StepResult:
            return win(reward=Fraction(1, 4))

    trajectory = run(Fractional()).trajectory
    assert (trajectory.reward, type(trajectory.reward)) == (0.25, float)


def test_who_is_to_blame_is_decided_in_one_place() -> None:
    def word(place: Any, error: Exception) -> str | None:
        failure = failure_of(place, error)
        return None if failure is None else failure.error

    assert word("sample", EngineError("x")) == "EngineError"
    assert word("sample", KeyError("x")) is None  # a bug of a part of ours stops the run
    assert word("memory", RecallError("x")) == "RecallError"
    assert word("memory", EngineError("x")) == "EngineError"  # a summary is sampled
    assert word("memory", ValueError("x")) is None
    assert word("step", ValueError("x")) == "EnvError"
    assert word("step", DataError("x")) == "DataError"
    assert word("make", DataError("x")) is None  # no machine can play such a task
    assert word("make", ConfigError("x")) is None
    assert word("make", OSError("x")) == "EnvError"


@pytest.mark.parametrize("turns", range(30))
def test_cancelled_at_any_moment_all_is_closed_once(turns: int) -> None:
    # Every call waits for a turn or two, closing too, so that each await is hit.
    async def scenario() -> tuple[OddEnv, ScriptedEngine]:
        engine, env = ScriptedEngine([(97,)] * 9), OddEnv("close", nothing)
        playing = asyncio.create_task(play(agent(engine, deadlines=Deadlines()), env.make, EPISODE))
        for _ in range(turns):
            await asyncio.sleep(0)
        playing.cancel()
        try:
            await playing
        except asyncio.CancelledError:
            pass
        else:
            assert playing.result().success  # it had ended before
        return env, engine

    env, engine = asyncio.run(scenario())
    assert env.closed == (1 if "reset" in env.calls else 0)
    assert engine.in_flight == 0
    assert engine.released == ([EPISODE.id] if turns else [])


@pytest.mark.parametrize("turns", range(1, 30))
def test_given_up_at_any_moment_it_is_recorded_with_what_it_had_done(turns: int) -> None:
    why = Failure("episode", "AbandonedError", "the others had finished")

    async def scenario() -> tuple[Trajectory, bool, OddEnv]:
        env = OddEnv("close", nothing)
        flight = Flight(EPISODE)
        playing = asyncio.create_task(
            play(agent(deadlines=Deadlines()), env.make, EPISODE, flight=flight)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        taken = flight.end(why)
        return await playing, taken, env

    trajectory, taken, env = asyncio.run(scenario())
    assert env.closed == (1 if "reset" in env.calls else 0)
    if taken:
        assert trajectory.failure == why
        assert len(trajectory.steps) <= env.calls.count("step")
    else:  # it was over already: nothing finished is lost
        assert (trajectory.failure, trajectory.success) == (None, True)


def test_an_episode_given_up_before_it_began_is_not_played() -> None:
    async def scenario() -> tuple[Trajectory, OddEnv]:
        env, flight = OddEnv(), Flight(EPISODE)
        assert flight.end(Failure("episode", "AbandonedError", "too late"))
        return await play(agent(), env.make, EPISODE, flight=flight), env

    trajectory, env = asyncio.run(scenario())
    assert env.calls == []
    assert trajectory.failure is not None
    assert trajectory.failure.error == "AbandonedError"


def test_a_flight_shows_what_it_waits_for() -> None:
    async def scenario() -> None:
        flight = Flight(EPISODE)
        env = OddEnv("step", hangs)
        player = agent(deadlines=Deadlines())
        playing = asyncio.create_task(play(player, env.make, EPISODE, flight=flight))
        for _ in range(40):
            await asyncio.sleep(0)
        assert (flight.waiting_for, len(flight.steps)) == ("step", 1)
        assert flight.name == "episode g/0/0 in environment 'odd'"
        playing.cancel()
        await asyncio.wait((playing,))

    asyncio.run(scenario())
