"""Segments, scoring and rewards of trajectories, by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    Failure,
    Group,
    Observation,
    Sample,
    Segment,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)

Ids = tuple[int, ...]


def step(
    prompt: Sequence[int] = (1,),
    sampled: Sequence[int] = (2,),
    *,
    reward: float | None = 0.0,
    acts: bool = True,
    versions: tuple[tuple[int, int], ...] = ((0, 0),),
) -> Step:
    result = StepResult(Observation(()), reward, terminated=False) if acts else None
    return Step(
        index=0,
        shown=(),
        anchor=None,
        prompt_ids=tuple(prompt),
        sample=Sample(tuple(sampled), (-1.0,) * len(sampled), versions, "stop"),
        action=Message("assistant", "x"),
        action_key="x",
        parse_status="ok",
        result=result,
        kind="act" if acts else "summary",
    )


def trajectory(*steps: Step, failure: Failure | None = None) -> Trajectory:
    return Trajectory("g/0/0", "g", "t", 0, 0, 0, steps, StopReason.TERMINATED, failure)


def test_prompts_that_grow_by_appending_are_one_segment() -> None:
    played = trajectory(step((1, 2), (3, 4)), step((1, 2, 3, 4, 5), (6,)))
    #                prompt | sampled | new | sampled
    assert played.segments() == (Segment((0, 1), (1, 2, 3, 4, 5, 6), ((2, 4), (5, 6))),)


@pytest.mark.parametrize(
    "prompt",
    [
        (1, 2, 3, 9, 5),  # a sampled token came back as another
        (1, 9, 3, 4, 5),  # the old prompt was rewritten
        (1, 2, 3),  # the answer was cut
        (7,),  # a window moved on
    ],
)
def test_any_change_of_what_was_held_begins_a_segment(prompt: Ids) -> None:
    played = trajectory(step((1, 2), (3, 4)), step(prompt, (6,)))
    assert played.segments() == (
        Segment((0,), (1, 2, 3, 4), ((2, 4),)),
        Segment((1,), (*prompt, 6), ((len(prompt), len(prompt) + 1),)),
    )


def test_a_segment_goes_on_after_a_fork() -> None:
    played = trajectory(step((1,), (2,)), step((5,), (6,)), step((5, 6, 7), (8,)))
    assert [segment.steps for segment in played.segments()] == [(0,), (1, 2)]
    assert played.segments()[1].spans == ((1, 2), (3, 4))


def test_an_answer_without_tokens_has_an_empty_span() -> None:
    played = trajectory(step((1,), ()), step((1, 2), (3,)))
    assert played.segments() == (Segment((0, 1), (1, 2, 3), ((1, 1), (2, 3))),)


def test_a_prompt_that_adds_nothing_still_extends() -> None:
    played = trajectory(step((1,), (2,)), step((1, 2), (3,)))
    assert played.segments() == (Segment((0, 1), (1, 2, 3), ((1, 2), (2, 3))),)


def test_no_steps_no_segments() -> None:
    assert trajectory().segments() == ()


tokens = st.lists(st.integers(0, 2), max_size=3).map(tuple)


@given(st.lists(st.tuples(st.booleans(), tokens, tokens), max_size=6))
def test_every_sampled_token_is_in_exactly_one_span(plan: list[tuple[bool, Ids, Ids]]) -> None:
    steps: list[Step] = []
    held: Ids = ()
    for extends, new, sampled in plan:
        prompt = (*held, *new) if extends else new
        steps.append(step(prompt, sampled))
        held = (*prompt, *sampled)
    played = trajectory(*steps)
    segments = played.segments()
    assert [place for segment in segments for place in segment.steps] == list(range(len(steps)))
    for segment in segments:
        assert len(segment.steps) == len(segment.spans)
        for place, (start, end) in zip(segment.steps, segment.spans, strict=True):
            assert segment.token_ids[:start] == steps[place].prompt_ids
            assert segment.token_ids[start:end] == steps[place].sample.token_ids
    spans = [end - start for segment in segments for start, end in segment.spans]
    assert sum(spans) == played.sampled_tokens


def test_the_reward_is_the_sum_over_steps() -> None:
    assert trajectory(step(reward=0.25), step(reward=-1.0), step(reward=0.5)).reward == -0.25


def test_a_step_that_is_no_act_earns_nothing_and_stays_scored() -> None:
    played = trajectory(step(acts=False), step(reward=1.0))
    assert played.scored
    assert played.reward == 1.0


@pytest.mark.parametrize(
    "unscored",
    [
        trajectory(step(reward=1.0), failure=Failure("step", "EnvError", "it broke")),
        trajectory(step(reward=1.0), step(reward=None)),
        trajectory(step((1,), (), reward=1.0)),  # nothing was sampled
        trajectory(),
    ],
    ids=["infra failure", "unscored step", "no tokens", "no steps"],
)
def test_what_is_not_scored_has_no_reward_rather_than_zero(unscored: Trajectory) -> None:
    assert not unscored.scored
    assert unscored.reward is None


def test_the_oldest_version_that_sampled_anything_counts() -> None:
    assert step(versions=((0, 3), (1, 4))).sample.policy_version == 3
    played = trajectory(step(versions=((0, 5),)), step(versions=((0, 4), (2, 6))))
    assert played.policy_version == 4
    idle = trajectory()
    assert Group("g", Task("t", "toy", "train"), (idle, played)).policy_version == 4


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory().seed = 1  # type: ignore[misc]
