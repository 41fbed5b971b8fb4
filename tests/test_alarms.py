"""Warnings name the limit that cuts everything, and say when nothing is being learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.alarms import Alarms, cut_by_limits, unpublished_learner
from agentrl.config import LearnerConfig
from agentrl.core.trajectory import CreditResult, FinishReason, Group, StopReason, Trajectory
from agentrl.credit.grpo import GRPO
from agentrl.registry import make
from agentrl.stages import Iteration
from agentrl.testing.episodes import episode, failed_episode, group
from agentrl.testing.tiny_runs import tiny_run

CONFIG = tiny_run(Path("never-made"))


def ended(name: str, reason: StopReason, *, cut: bool = False) -> Trajectory:
    """An episode of two steps; its answers were cut or not."""
    one = episode(name, ("hall", 0.0), ("kitchen", 0.0))
    finish: FinishReason = "length" if cut else "stop"
    steps = tuple(
        replace(step, sample=replace(step.sample, finish_reason=finish)) for step in one.steps
    )
    return replace(one, steps=steps, stop_reason=reason, success=False)


def iteration(*groups: Group, number: int = 0) -> Iteration:
    return Iteration(number, groups, GRPO().assign(groups), 1, 0.0, 0.0)


def warnings(*played: Trajectory) -> list[str]:
    return list(cut_by_limits([group("g", *played)], CONFIG))


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        (StopReason.MAX_STEPS, "agent.max_steps=6"),
        (StopReason.MAX_TOKENS, "agent.max_tokens=256"),
        (StopReason.MAX_SECONDS, "agent.max_seconds=600"),
        (StopReason.ENV_TRUNCATED, "the limit of the environment 'toy' itself"),
    ],
)
def test_the_limit_that_cuts_every_episode_is_named(reason: StopReason, limit: str) -> None:
    (text,) = warnings(*(ended(str(number), reason) for number in range(4)))
    assert text.startswith(f"4 of 4 episodes were cut short (4 by {limit}) and none succeeded")


def test_two_limits_that_together_cut_every_episode_are_both_named() -> None:
    (text,) = warnings(ended("a", StopReason.MAX_STEPS), ended("b", StopReason.MAX_TOKENS))
    assert "(1 by agent.max_steps=6, 1 by agent.max_tokens=256)" in text


def test_answers_that_are_all_cut_name_the_answer_limit() -> None:
    (text,) = warnings(ended("a", StopReason.TERMINATED, cut=True))
    assert text.startswith("2 of 2 answers were cut by sampling.max_tokens=4 before they ended")


def test_a_run_in_which_some_episodes_end_by_themselves_is_not_warned_of() -> None:
    cut = [ended(str(number), StopReason.MAX_STEPS, cut=True) for number in range(9)]
    assert warnings(*cut, ended("last", StopReason.TERMINATED)) == []
    assert len(warnings(*cut)) == 2


def test_infra_failures_are_no_cut_episodes() -> None:
    assert warnings(failed_episode("a"), failed_episode("b")) == []
    assert len(warnings(failed_episode("a"), ended("b", StopReason.MAX_STEPS))) == 1


def texts(groups: Sequence[Group]) -> list[str]:
    alarms = Alarms(CONFIG)
    done = (iteration(one, number=number) for number, one in enumerate(groups))
    return [text for one in done for text in alarms.look(one)]


EQUAL = group("g", episode("a", ("hall", 0.0)), episode("b", ("hall", 0.0)))
SIGNAL = group("g", episode("a", ("hall", 1.0)), episode("b", ("hall", 0.0)))


def test_silence_is_said_after_three_iterations_and_then_ever_more_rarely() -> None:
    assert texts([EQUAL] * 2) == []
    said = texts([EQUAL] * 24)
    assert [text.split()[0] for text in said] == ["3", "6", "12", "24"]
    assert "in no group did one episode do better than another" in said[0]


def test_an_iteration_with_signal_ends_the_silence() -> None:
    assert texts([EQUAL, EQUAL, SIGNAL] * 4) == []


def test_limits_are_looked_at_in_the_first_iteration_only() -> None:
    cut = group("g", ended("a", StopReason.MAX_STEPS), ended("b", StopReason.MAX_STEPS))
    assert len(texts([cut, cut])) == 1
    assert texts([SIGNAL, cut]) == []


def test_token_advantages_are_signal_too() -> None:
    credit = CreditResult(((0.0,), (0.0,)), token_advantages=(((0.0, 0.5),), ((0.0, 0.0),)))
    alarms = Alarms(CONFIG, first=False)
    for _ in range(6):
        assert alarms.look(Iteration(0, (EQUAL,), credit, 1, 0.0, 0.0)) == []


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("loop", {"loss": "loop"}),
        ("r3l", {"loss": "no_ratio"}),
        ("seed", {"distillation": {"kind": "gated", "coefficient": 0.5}}),
        ("gigpo", {}),
    ],
)
def test_an_objective_other_than_the_published_one_is_told(
    name: str, setting: dict[str, Any]
) -> None:
    credit = make("credit", name)
    given = LearnerConfig.model_validate(setting)
    assert list(unpublished_learner(1, name, credit, given)) == []
    told = list(unpublished_learner(1, name, credit, LearnerConfig(loss="cispo")))
    assert len(told) == len(setting)


def test_the_warning_says_what_to_set() -> None:
    (told,) = unpublished_learner(2, "loop", make("credit", "loop"), LearnerConfig())
    assert "learner.loss=loop, and stage 2 learns with dapo" in told
    assert "Set stages.2.learner.loss=loop, unless you mean it" in told
    delta = LearnerConfig.model_validate({"distillation": {"kind": "delta"}})
    (told,) = unpublished_learner(0, "seed", make("credit", "seed"), delta)
    assert "Set stages.0.learner.distillation={kind: gated}" in told
