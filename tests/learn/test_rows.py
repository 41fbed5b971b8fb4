"""Groups and credit become rows: hand-worked examples and properties."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group, Row, Trajectory
from agentrl.credit.annotations import annotate
from agentrl.learn.rows import (
    batches_from_groups,
    rows_from_demonstrations,
    rows_from_groups,
    split_into_updates,
)
from agentrl.testing.episodes import act, episode, failed_episode, group, random_groups, summary


def credit_of(groups: Sequence[Group], value: float | None = None) -> CreditResult:
    """Advantage ``value`` (or 0, 1, 2, ...) for every step of every scored trajectory."""
    return CreditResult(
        [
            [float(k) if value is None else value for k in range(len(one.steps))]
            if one.scored
            else None
            for item in groups
            for one in item.trajectories
        ]
    )


def trajectory_loss_weight(rows: Sequence[Row], trajectory: Trajectory) -> float:
    """Share of the loss's denominator that a trajectory has: sum of weights over N."""
    tokens = sum(sum(row.action_mask) for row in rows)
    own = [row for row in rows if row.trajectory_id == trajectory.id]
    return sum(row.weight * sum(row.action_mask) for row in own) / tokens


def test_an_append_only_episode_is_one_row() -> None:
    # Tokens: prompt 100, sampled 1000 1001, prompt 101, sampled 2000 2001 2002.
    one = group("g", episode("e", ("a", 0.0), act("b", 1.0, tokens=3)))
    (row,) = rows_from_groups([one], CreditResult([[0.5, -2.0]]), trajectory_weighting="tokens")
    assert row.token_ids == (100, 1000, 1001, 101, 2000, 2001, 2002)
    assert row.action_mask == (0, 1, 1, 0, 1, 1, 1)
    assert row.behaviour_logprobs == (0, -1, -1, 0, -1, -1, -1)
    assert row.advantages == (0, 0.5, 0.5, 0, -2, -2, -2)
    assert (row.weight, row.trajectory_id, row.group_id) == (1.0, "g/e", "g")


def test_a_rewritten_history_makes_one_row_per_segment_with_one_weight() -> None:
    # 2 + 3 tokens of one trajectory and 5 of another: N = 10, M = 2, every weight 10 / (2 * 5).
    forked = episode("forked", ("a", 0.0), act("b", 1.0, tokens=3), fork=True)
    whole = episode("whole", act("a", 0.0, tokens=5))
    groups = [group("g", forked, whole)]
    rows = rows_from_groups(groups, credit_of(groups), trajectory_weighting="equal")
    assert [row.token_ids for row in rows] == [
        (100, 1000, 1001),
        (101, 2000, 2001, 2002),
        (100, 1000, 1001, 1002, 1003, 1004),
    ]
    assert [row.weight for row in rows] == [1.0, 1.0, 1.0]


def test_a_long_trajectory_counts_as_much_as_a_short_one() -> None:
    # One step of 2 tokens against ten: N = 22, M = 2, weights 22 / 4 and 22 / 40.
    short = episode("short", ("a", 1.0))
    long = episode("long", *[("a", 0.0)] * 10)
    groups = [group("g", short, long)]
    equal = rows_from_groups(groups, credit_of(groups), trajectory_weighting="equal")
    assert [row.weight for row in equal] == [22 / 4, 22 / 40]
    short, long = groups[0].trajectories
    assert trajectory_loss_weight(equal, short) == trajectory_loss_weight(equal, long) == 0.5
    tokens = rows_from_groups(groups, credit_of(groups), trajectory_weighting="tokens")
    assert trajectory_loss_weight(tokens, short) == 2 / 22


def test_no_part_is_not_advantage_zero() -> None:
    # The failed episode counts nowhere; the one of advantage 0 is in both N = 4 and M = 2.
    groups = [group("g", failed_episode("f", ("a", 1.0)), episode("zero", ("a", 0.0)),
                    episode("one", ("a", 1.0)))]  # fmt: skip
    rows = rows_from_groups(
        groups, CreditResult([None, [0.0], [1.0]]), trajectory_weighting="equal"
    )
    assert [(row.trajectory_id, row.weight) for row in rows] == [("g/zero", 1.0), ("g/one", 1.0)]


def test_a_trajectory_that_sampled_nothing_has_no_row_and_no_weight() -> None:
    groups = [group("g", episode("mute", act("a", 0.0, tokens=0)), episode("e", ("a", 1.0)))]
    rows = rows_from_groups(groups, CreditResult([[1.0], [1.0]]), trajectory_weighting="equal")
    assert [(row.trajectory_id, row.weight) for row in rows] == [("g/e", 1.0)]


def test_token_advantages_are_added_to_the_steps() -> None:
    groups = [group("g", episode("e", act("a", 1.0, tokens=3)))]
    credit = CreditResult([[0.5]], token_advantages=[[[0.0, 1.0, -0.25]]])
    (row,) = rows_from_groups(groups, credit, trajectory_weighting="tokens")
    assert row.advantages == (0.0, 0.5, 1.5, 0.25)


def test_steps_for_the_memory_are_trained_with_their_own_advantage() -> None:
    groups = [group("g", episode("e", ("a", 0.0), summary(), ("b", 1.0)))]
    (row,) = rows_from_groups(groups, CreditResult([[1.0, 2.0, 3.0]]), trajectory_weighting="equal")
    assert row.advantages == (0, 1, 1, 0, 2, 2, 0, 3, 3)


def test_a_row_is_as_old_as_its_oldest_step() -> None:
    groups = [group("g", episode("e", ("a", 0.0), policy_version=4))]
    (row,) = rows_from_groups(groups, credit_of(groups), trajectory_weighting="equal")
    assert row.policy_version == 4


@given(st.integers(0, 10**6), st.sampled_from(["equal", "tokens"]))
def test_exactly_the_sampled_tokens_are_trained_on(seed: int, weighting: str) -> None:
    groups = random_groups(random.Random(seed))
    rows = rows_from_groups(
        groups,
        credit_of(groups),
        trajectory_weighting=weighting,  # type: ignore[arg-type]
    )
    taking_part = [
        one for item in groups for one in item.trajectories if one.scored and one.sampled_tokens
    ]
    sampled = [
        token for one in taking_part for step in one.steps for token in step.sample.token_ids
    ]
    trained = [
        token
        for row in rows
        for token, mask in zip(row.token_ids, row.action_mask, strict=True)
        if mask
    ]
    assert trained == sampled
    if weighting == "equal":
        for one in taking_part:
            share = trajectory_loss_weight(rows, one)
            assert math.isclose(share, 1 / len(taking_part), rel_tol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_batches_hold_every_row_once_with_the_weights_of_their_own_update(
    seed: int, updates: int
) -> None:
    groups = random_groups(random.Random(seed), groups=5)
    credit = credit_of(groups)
    batches = batches_from_groups(
        groups, credit, updates=updates, trajectory_weighting="equal", batch_id="i"
    )
    assert len(batches) <= updates
    assert all(batch.rows for batch in batches)
    seen = sorted((row.trajectory_id, row.token_ids) for batch in batches for row in batch.rows)
    rows = rows_from_groups(groups, credit, trajectory_weighting="equal")
    assert seen == sorted((row.trajectory_id, row.token_ids) for row in rows)
    for batch in batches:
        names = {row.group_id for row in batch.rows}
        others = [row.group_id for other in batches if other is not batch for row in other.rows]
        assert not names.intersection(others)  # a group is never split
        tokens = sum(sum(row.action_mask) for row in batch.rows)
        assert math.isclose(sum(row.weight * sum(row.action_mask) for row in batch.rows), tokens)


def test_batches_carry_the_token_advantages_of_their_groups() -> None:
    groups = [group(name, episode("e", act("a", 1.0, tokens=1))) for name in "ab"]
    credit = CreditResult([[0.0], [0.0]], token_advantages=[[[1.0]], [[2.0]]])
    batches = batches_from_groups(groups, credit, updates=2, trajectory_weighting="equal")
    assert [batch.rows[0].advantages for batch in batches] == [(0, 1), (0, 2)]
    assert [batch.id for batch in batches] == ["/0", "/1"]


def test_groups_without_part_make_no_update() -> None:
    dead = group("dead", failed_episode("f", ("a", 0.0)))
    alive = group("alive", episode("e", ("a", 1.0)))
    make = batches_from_groups
    credit = CreditResult([None, [1.0]])
    assert len(make([dead, alive], credit, updates=2, trajectory_weighting="equal")) == 1
    assert make([dead], CreditResult([None]), updates=1, trajectory_weighting="equal") == ()


def test_updates_are_balanced_by_tokens_to_compute() -> None:
    # Sizes 10, 2, 6, 4 (half prompt, half sampled): 10 and 2 against 6 and 4.
    sizes = (10, 2, 6, 4)
    groups = [group(f"g{size}", episode("e", act("a", 0.0, tokens=size - 1))) for size in sizes]
    assert split_into_updates(groups, 2) == ((0, 1), (2, 3))
    assert split_into_updates(groups, 1) == ((0, 1, 2, 3),)
    assert split_into_updates(groups, 4) == ((0,), (2,), (3,), (1,))


def test_more_updates_than_groups_are_refused() -> None:
    with pytest.raises(DataError, match="cannot make 2 updates of 1 groups"):
        split_into_updates([group("g", episode("e", ("a", 0.0)))], 2)


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        (CreditResult([]), "step_advantages has 0 entries for 1 trajectories"),
        (CreditResult([[1.0]], token_advantages=[]), "token_advantages has 0 entries"),
        (CreditResult([[1.0, 2.0]]), "gives 2 advantages to trajectory g/e, which has 1 steps"),
        (CreditResult([[math.nan]]), "step 0 of trajectory g/e is not finite"),
        (CreditResult([[1.0]], token_advantages=[[[1.0]]]), "1 token advantages to step 0"),
        (CreditResult([[1.0]], token_advantages=[[[1.0, math.inf]]]), "is not finite"),
    ],
)
def test_credit_that_does_not_fit_is_refused(credit: CreditResult, message: str) -> None:
    groups = [group("g", episode("e", ("a", 0.0)))]
    with pytest.raises(DataError, match=message):
        rows_from_groups(groups, credit, trajectory_weighting="equal")


def test_what_an_engine_must_not_return_is_refused() -> None:
    (one,) = group("g", episode("e", ("a", 0.0))).trajectories
    step = one.steps[0]
    sample = step.sample
    for broken, message in (
        (replace(step, prompt_ids=()), "empty prompt"),
        (replace(step, sample=replace(sample, logprobs=(-1.0,))), "2 sampled tokens but 1 logp"),
        (replace(step, sample=replace(sample, logprobs=(-1.0, -math.inf))), "not finite"),
    ):
        item = Group("g", group("g").task, (replace(one, steps=(broken,)),))
        with pytest.raises(DataError, match=message):
            rows_from_groups([item], CreditResult([[1.0]]), trajectory_weighting="equal")


def test_demonstrations_are_rows_of_advantage_one_without_behaviour_policy() -> None:
    rows = rows_from_demonstrations(
        [[((5, 6, 7), (0, 1, 1))], [((5, 6), (0, 0))], [((5, 6), (0, 1))]]
    )
    assert [row.token_ids for row in rows] == [(5, 6, 7), (5, 6)]
    assert rows[0].advantages == (0, 1, 1)
    assert all(row.behaviour_logprobs is None and row.weight == 1 for row in rows)
    assert [row.trajectory_id for row in rows] == ["demonstration/0", "demonstration/2"]


def test_demonstrations_may_count_once_each() -> None:
    # N = 3, M = 2: weights 3 / 4 and 3 / 2.
    rows = rows_from_demonstrations(
        [[((5, 6, 7), (0, 1, 1))], [((5, 6), (0, 1))]], trajectory_weighting="equal"
    )
    assert [row.weight for row in rows] == [0.75, 1.5]


def test_a_demonstration_in_many_rows_counts_once() -> None:
    # N = 5, M = 2 (the episode without an action is none): 5 / (2 * 4) in both rows of the first.
    rows = rows_from_demonstrations(
        [
            [((5, 6, 7, 8), (0, 1, 1, 1)), ((5,), (0,)), ((5, 6), (0, 1))],
            [((5, 6), (0, 1))],
            [((5, 6), (0, 0))],
        ],
        trajectory_weighting="equal",
    )
    assert [row.weight for row in rows] == [0.625, 0.625, 2.5]
    assert [row.weight * sum(row.action_mask) for row in rows] == [1.875, 0.625, 2.5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (((5, 6), (0,)), "2 token ids but 1 mask entries"),
        (((5, 6), (0, 2)), "neither 0 nor 1"),
        (((5, 6), (1, 1)), "clones its first token"),
    ],
)
def test_demonstrations_that_make_no_sense_are_refused(
    row: tuple[tuple[int, ...], tuple[int, ...]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        rows_from_demonstrations([[row]])


def test_what_a_teacher_said_of_a_step_goes_with_its_row() -> None:
    whole = group("g", episode("e", ("a", 0.0), ("b", 1.0), ("c", 1.0)))
    (one,) = whole.trajectories
    steps = (
        annotate(one.steps[0], episode_teacher_logprobs=[-0.5, -0.25]),
        one.steps[1],
        annotate(
            one.steps[2],
            episode_teacher_logprobs=[-9.0, -9.0],
            step_teacher_logprobs=[-1.0, 0.0],
        ),
    )
    taught = replace(whole, trajectories=(replace(one, steps=steps),))
    credit = CreditResult([[1.0, 2.0, 3.0]])
    rows = rows_from_groups([taught], credit, trajectory_weighting="equal")
    said = [
        value
        for row in rows
        for value, sampled in zip(row.teacher_logprobs or (), row.action_mask, strict=True)
        if sampled
    ]
    # The second step was not scored; the third by its own skill, which goes before the episode's.
    assert said == [-0.5, -0.25, None, None, -1.0, 0.0]
    plain = rows_from_groups([whole], credit, trajectory_weighting="equal")
    assert all(row.teacher_logprobs is None for row in plain)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([-1.0], "step 0 of trajectory g/e sampled 2 tokens but has 1 values of 'step_teacher"),
        ([-1.0, math.nan], "step 0 of trajectory g/e has a value of 'step_teacher_logprobs' that"),
    ],
)
def test_what_a_teacher_must_not_say_is_refused(values: list[float], message: str) -> None:
    whole = group("g", episode("e", ("a", 0.0)))
    (one,) = whole.trajectories
    steps = (annotate(one.steps[0], step_teacher_logprobs=values),)
    taught = replace(whole, trajectories=(replace(one, steps=steps),))
    with pytest.raises(DataError, match=message):
        rows_from_groups([taught], CreditResult([[1.0]]), trajectory_weighting="equal")
