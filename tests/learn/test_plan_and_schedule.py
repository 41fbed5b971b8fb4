"""Micro-batches and learning rates: hand-worked examples and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError
from agentrl.learn.plan import padded_tokens, plan_micro_batches
from agentrl.learn.schedule import check_schedule, learning_rate_factor


def test_rows_of_similar_length_share_a_pass() -> None:
    # 9 alone (2 * 9 > 10); 5 and 4 make 2 * 5 = 10; 2, 2, 1 make 3 * 2 = 6.
    lengths = (2, 9, 4, 5, 2, 1)
    plan = plan_micro_batches(lengths, budget_tokens=10)
    assert plan == ((1,), (3, 2), (0, 4, 5))
    assert padded_tokens(lengths, plan) == 9 + 10 + 6


def test_a_row_longer_than_the_budget_gets_a_pass_of_its_own() -> None:
    assert plan_micro_batches((3, 30, 3), budget_tokens=6) == ((1,), (0, 2))


def test_no_rows_no_passes() -> None:
    assert plan_micro_batches((), budget_tokens=1) == ()


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="micro_batch_tokens=0 must be at least 1"):
        plan_micro_batches((1,), budget_tokens=0)


@given(st.lists(st.integers(1, 60)), st.integers(1, 200))
def test_every_row_once_and_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = plan_micro_batches(lengths, budget_tokens=budget)
    assert sorted(position for one in plan for position in one) == list(range(len(lengths)))
    for one in plan:
        longest = max(lengths[position] for position in one)
        assert len(one) == 1 or len(one) * longest <= budget


def test_warm_up_rises_from_the_first_update_on() -> None:
    rates = [
        learning_rate_factor(u, schedule="constant", warmup_updates=4, total_updates=None)
        for u in range(6)
    ]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_and_cosine_fall_to_zero_after_the_last_update() -> None:
    linear = [
        learning_rate_factor(u, schedule="linear", warmup_updates=2, total_updates=6)
        for u in range(8)
    ]
    assert linear == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = [
        learning_rate_factor(u, schedule="cosine", warmup_updates=0, total_updates=4)
        for u in range(6)
    ]
    assert cosine == pytest.approx([1.0, 0.8535534, 0.5, 0.1464466, 0.0, 0.0])


def test_schedules_that_cannot_be_followed_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs total_updates"):
        check_schedule("linear", 0, None)
    with pytest.raises(ConfigError, match="warmup_updates=5 must be below the 5 updates"):
        check_schedule("cosine", 5, 5)
    check_schedule("constant", 50, 5)
