"""The episode loop: exact prompts, budgets, failures, cancellation; nothing sampled for nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Budgets, Deadlines, Episode, play
from agentrl.core.errors import (
    AgentRLError,
    ConfigError,
    DataError,
    EngineError,
    SandboxDiedError,
)
from agentrl.core.protocols import Env
from agentrl.core.trajectory import Sampling, StepResult, StopReason, Trajectory
from agentrl.engines.scripted import Answer, Hang, Raise, ScriptedEngine
from agentrl.memory.transcript import Transcript
from agentrl.memory.window import Window
from agentrl.testing.characters import STOP, CharacterRenderer
from agentrl.testing.scripts import ScriptedEnv, say

EPISODE = Episode("g", "task", 0, 0, seed=7)
GO_ON = StepResult(say("more", anchor="m"), 0.0, terminated=False)
WIN = StepResult(say(), 1.0, terminated=True, success=True)


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def agent(engine: ScriptedEngine, **changes: Any) -> Agent:
    plain = Agent(
        engine=engine,
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=8),
        action_format="bare",
    )
    return replace(plain, **changes)


def run(player: Agent, env: ScriptedEnv) -> Trajectory:
    return asyncio.run(play(player, maker(env), EPISODE))


def maker(env: ScriptedEnv) -> Callable[[], Awaitable[Env]]:
    async def make() -> Env:
        return env

    return make


def shown(trajectory: Trajectory) -> list[str]:
    return [CharacterRenderer().decode(step.prompt_ids) for step in trajectory.steps]


def test_prompts_grow_by_appending_and_hold_what_was_sampled() -> None:
    env = ScriptedEnv(say("start", anchor="s"), [GO_ON, WIN])
    engine = ScriptedEngine([ids("look"), ids("win")])
    trajectory = run(agent(engine), env)
    assert shown(trajectory) == ["start<", "start<look>more<"]
    assert env.actions == ["look", "win"]
    assert [step.anchor for step in trajectory.steps] == ["s", "m"]
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert (trajectory.success, trajectory.reward) == (True, 1.0)
    (segment,) = trajectory.segments()
    assert segment.token_ids == (*engine.calls[-1].prompt_ids, *ids("win"), STOP)


def test_recorded_ids_are_the_sampled_ones_even_where_text_would_encode_otherwise() -> None:
    # A renderer whose parse loses what was sampled (case and spaces) must not change the record.
    class Lossy(CharacterRenderer):
        def parse(self, token_ids: Any) -> Any:
            return replace(super().parse(token_ids), content="look")

    engine = ScriptedEngine([ids("LO OK"), ids("win")])
    env = ScriptedEnv(say("s"), [GO_ON, WIN])
    trajectory = run(agent(engine, renderer=Lossy()), env)
    assert trajectory.steps[0].sample.token_ids == (*ids("LO OK"), STOP)
    assert shown(trajectory)[1] == "s<LO OK>more<"
    assert env.actions[0] == "look"


def test_messages_that_the_environment_adds_at_reset_are_part_of_the_first_prompt() -> None:
    env = ScriptedEnv(say("one ", "two ", "three"), [WIN])
    trajectory = run(agent(ScriptedEngine([ids("a")]), system_prompt="sys "), env)
    assert shown(trajectory) == ["sys one two three<"]
    assert [message.role for message in trajectory.steps[0].shown] == ["system"] + ["user"] * 3
    (segment,) = trajectory.segments()
    assert segment.spans == ((len("sys one two three<"), len("sys one two three<") + 2),)


def test_an_answer_cut_by_its_limit_is_closed_and_never_executed() -> None:
    env = ScriptedEnv(say("s"), [GO_ON, WIN])
    trajectory = run(agent(ScriptedEngine([ids("12345678xx"), ids("b")])), env)
    assert trajectory.steps[0].sample.finish_reason == "length"
    assert trajectory.steps[0].parse_status == "truncated"
    assert env.actions == ["", "b"]
    assert shown(trajectory)[1] == "s<12345678>more<"
    assert trajectory.sampled_tokens == 10  # the closing that we added is nobody's sample


@pytest.mark.parametrize("spoken", ["", " ", "\n\n"])
def test_an_empty_answer_is_an_invalid_action_whose_token_is_recorded(spoken: str) -> None:
    env = ScriptedEnv(say("s"), [replace(GO_ON, action_valid=False), WIN])
    trajectory = run(agent(ScriptedEngine([(*ids(spoken), STOP), ids("b")])), env)
    first = trajectory.steps[0]
    assert env.actions[0] == ""
    assert (first.parse_status, first.action_key) == ("empty_action", "")
    assert first.sample.token_ids == (*ids(spoken), STOP)
    assert trajectory.scored


def test_a_memory_that_rewrites_begins_a_new_segment() -> None:
    env = ScriptedEnv(say("s "), [GO_ON, GO_ON, WIN])
    engine = ScriptedEngine([ids("a"), ids("b"), ids("c")])
    trajectory = run(agent(engine, make_memory=lambda: Window(1)), env)
    assert len(trajectory.segments()) > 1
    spans = [span for segment in trajectory.segments() for span in segment.spans]
    assert sum(end - start for start, end in spans) == trajectory.sampled_tokens


def test_a_template_that_renders_anew_is_asked_for_the_whole_conversation() -> None:
    env = ScriptedEnv(say("s"), [GO_ON, WIN])
    renderer = CharacterRenderer(append_only=False)
    trajectory = run(agent(ScriptedEngine([ids("a"), ids("b")]), renderer=renderer), env)
    assert shown(trajectory) == ["s<", "s<a>more<"]


@pytest.mark.parametrize("result", [WIN, replace(WIN, terminated=False, truncated=True)])
def test_nothing_is_sampled_once_the_environment_says_it_is_over(result: StepResult) -> None:
    engine = ScriptedEngine([ids("a"), ids("b")])
    env = ScriptedEnv(say("s"), [result])
    trajectory = run(agent(engine, budgets=Budgets(max_steps=9)), env)
    assert len(engine.calls) == len(env.actions) == 1
    expected = StopReason.TERMINATED if result.terminated else StopReason.ENV_TRUNCATED
    assert trajectory.stop_reason is expected
    assert engine.released == [EPISODE.id]
    assert env.closes == 1


def test_the_step_budget_truncates_and_a_win_on_the_last_step_stays_a_win() -> None:
    lost = run(
        agent(ScriptedEngine([ids("a")] * 3), budgets=Budgets(max_steps=2)),
        ScriptedEnv(say("s"), [GO_ON] * 3),
    )
    assert (lost.stop_reason, lost.success, len(lost.steps)) == (StopReason.MAX_STEPS, False, 2)
    won = run(
        agent(ScriptedEngine([ids("a")] * 2), budgets=Budgets(max_steps=2)),
        ScriptedEnv(say("s"), [GO_ON, WIN]),
    )
    assert (won.stop_reason, won.success) == (StopReason.TERMINATED, True)


def test_the_token_budget_shortens_answers_then_truncates_the_episode() -> None:
    # "s<" leaves 6 of 8 tokens for the answer; then "s<aaaaa>more<" is too long for any.
    engine = ScriptedEngine([ids("aaaaa"), ids("b")])
    env = ScriptedEnv(say("s"), [GO_ON, WIN])
    trajectory = run(agent(engine, budgets=Budgets(max_tokens=8)), env)
    assert [call.sampling.max_tokens for call in engine.calls] == [6]
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert trajectory.scored


def test_an_overflow_after_the_end_does_not_take_the_reward_away() -> None:
    huge = replace(WIN, observation=say("x" * 1000))
    trajectory = run(
        agent(ScriptedEngine([ids("a")]), budgets=Budgets(max_tokens=20)),
        ScriptedEnv(say("s"), [huge]),
    )
    assert (trajectory.stop_reason, trajectory.reward) == (StopReason.TERMINATED, 1.0)


def test_a_prompt_that_never_fits_gives_a_trajectory_without_sample_that_is_not_scored() -> None:
    engine = ScriptedEngine([])
    env = ScriptedEnv(say("much too long"), [])
    trajectory = run(agent(engine, budgets=Budgets(max_tokens=4)), env)
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert not engine.calls
    assert (trajectory.scored, trajectory.reward) == (False, None)


def test_the_budget_of_seconds_is_looked_at_between_steps() -> None:
    now = iter(range(0, 1000, 10))
    env = ScriptedEnv(say("s"), [GO_ON] * 9)
    player = agent(ScriptedEngine([ids("a")] * 9), budgets=Budgets(max_seconds=45))
    trajectory = asyncio.run(play(player, maker(env), EPISODE, clock=lambda: float(next(now))))
    assert trajectory.stop_reason is StopReason.MAX_SECONDS
    assert 0 < len(trajectory.steps) < 9


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_a_failure_never_a_zero(reward: float) -> None:
    env = ScriptedEnv(say("s"), [GO_ON, replace(WIN, reward=reward)])
    trajectory = run(agent(ScriptedEngine([ids("a")] * 2)), env)
    assert trajectory.stop_reason is StopReason.FAILURE
    assert trajectory.failure is not None
    assert trajectory.failure.boundary == "step"
    assert str(reward) in trajectory.failure.message
    assert (trajectory.reward, trajectory.success, len(trajectory.steps)) == (None, None, 1)


def test_an_unscored_step_leaves_the_trajectory_whole_but_unscored() -> None:
    env = ScriptedEnv(say("s"), [replace(GO_ON, reward=None), WIN])
    trajectory = run(agent(ScriptedEngine([ids("a")] * 2)), env)
    assert trajectory.failure is None
    assert trajectory.success
    assert not trajectory.scored


@pytest.mark.parametrize("error", [SandboxDiedError("gone"), ValueError("bug in the env")])
def test_whatever_the_environment_raises_is_recorded_with_its_cause(error: Exception) -> None:
    engine = ScriptedEngine([ids("a")] * 2)
    env = ScriptedEnv(say("s"), [GO_ON, error])
    trajectory = run(agent(engine), env)
    assert trajectory.failure is not None
    assert str(error) in trajectory.failure.message
    expected = type(error).__name__ if isinstance(error, AgentRLError) else "EnvError"
    assert trajectory.failure.error == expected
    assert len(trajectory.steps) == 1
    assert (env.closes, engine.released) == (1, [EPISODE.id])


def test_an_environment_that_hangs_meets_its_deadline() -> None:
    env = ScriptedEnv(say("s"), [asyncio.Event().wait])
    player = agent(ScriptedEngine([ids("a")]), deadlines=Deadlines(step_s=0.02))
    trajectory = run(player, env)
    assert trajectory.failure is not None
    assert "0.02 s" in trajectory.failure.message
    assert env.closes == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Raise(EngineError("dead server")), "EngineError"), (Hang(), "DeadlineError")],
)
def test_an_engine_that_fails_or_hangs_is_an_infra_failure(fault: Any, error: str) -> None:
    engine = ScriptedEngine([ids("a")], faults={(EPISODE.id, 0): fault})
    player = agent(engine, deadlines=Deadlines(sample_s=0.02))
    trajectory = run(player, ScriptedEnv(say("s"), [WIN]))
    assert trajectory.failure is not None
    assert (trajectory.failure.boundary, trajectory.failure.error) == ("sample", error)


def test_a_bug_in_a_part_of_ours_stops_the_run_and_still_closes_the_environment() -> None:
    engine = ScriptedEngine([ids("a")], faults={(EPISODE.id, 0): Raise(KeyError("a bug"))})
    env = ScriptedEnv(say("s"), [WIN])
    with pytest.raises(KeyError, match="a bug"):
        run(agent(engine), env)
    assert (env.closes, engine.released) == (1, [EPISODE.id])


@pytest.mark.parametrize("error", [DataError("game 7 is damaged"), ConfigError("no such mode")])
def test_a_task_that_no_machine_can_play_stops_the_run_in_words(error: Exception) -> None:
    async def make() -> Env:
        raise error

    engine = ScriptedEngine([ids("a")])
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(play(agent(engine), make, EPISODE))
    assert engine.released == [EPISODE.id]


def test_success_that_the_environment_never_told_stays_unknown_unless_a_budget_ran_out() -> None:
    untold = replace(WIN, success=None)
    ended = run(agent(ScriptedEngine([ids("a")])), ScriptedEnv(say("s"), [untold]))
    assert ended.success is None
    cut = run(
        agent(ScriptedEngine([ids("a")]), budgets=Budgets(max_steps=1)),
        ScriptedEnv(say("s"), [GO_ON]),
    )
    assert cut.success is False


def test_a_failure_to_close_is_recorded_and_spoils_nothing() -> None:
    class Sticky(ScriptedEnv):
        async def aclose(self) -> None:
            raise OSError("busy")

    trajectory = run(agent(ScriptedEngine([ids("a")])), Sticky(say("s"), [WIN]))
    assert (trajectory.failure, trajectory.reward) == (None, 1.0)
    assert trajectory.close_failure is not None
    assert "busy" in trajectory.close_failure.message


@pytest.mark.parametrize("ticks", range(12))
def test_cancelling_at_any_await_closes_the_environment_and_frees_the_slot(ticks: int) -> None:
    async def scenario() -> tuple[ScriptedEnv, ScriptedEngine]:
        engine = ScriptedEngine([ids("a")] * 9)
        env = ScriptedEnv(say("s"), [lambda: asyncio.sleep(0, GO_ON)] * 9)
        task = asyncio.create_task(play(agent(engine), maker(env), EPISODE))
        for _ in range(ticks + 1):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return env, engine

    env, engine = asyncio.run(scenario())
    assert env.closes == min(env.resets, 1)
    assert (engine.in_flight, engine.released) == (0, [EPISODE.id])


def test_each_step_has_its_own_seed_derived_from_the_episode() -> None:
    engines = [ScriptedEngine([ids("a")] * 2) for _ in range(2)]
    for engine in engines:
        run(agent(engine), ScriptedEnv(say("s"), [GO_ON, WIN]))
    seeds = [[call.seed for call in engine.calls] for engine in engines]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 2


def test_a_weight_change_in_mid_episode_is_on_the_record() -> None:
    spans = ((0, 3), (1, 4))
    engine = ScriptedEngine(
        [Answer(ids("a"), versions=((0, 3),)), Answer(ids("b"), versions=spans)]
    )
    trajectory = run(agent(engine), ScriptedEnv(say("s"), [GO_ON, WIN]))
    assert trajectory.steps[1].sample.versions == spans
    assert trajectory.policy_version == 3


def test_what_the_model_said_is_kept_beside_the_command_and_shown_again() -> None:
    said = "<think>easy</think><action>look</action>"
    engine = ScriptedEngine([ids(said), ids("no tags"), ids("<action>win</action>")])
    player = agent(
        engine,
        action_format="tagged",
        sampling=Sampling(max_tokens=64),
        renderer=CharacterRenderer(append_only=False),
    )
    trajectory = run(player, ScriptedEnv(say("s"), [GO_ON, GO_ON, WIN]))
    first, second, _ = trajectory.steps
    assert (first.action.content, first.said.content) == ("look", said)
    assert (second.action.content, second.said.content) == ("", "no tags")
    assert second.parse_status == "no_action"
    assert shown(trajectory)[2] == f"s<{said}>more<no tags>more<"
