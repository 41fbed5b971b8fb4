from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.credit.functional import (
    discounted_returns,
    episode_scores,
    invalid_action_penalty,
    step_returns,
)

REWARDS = st.lists(st.floats(-10, 10), max_size=12)


def test_a_return_discounts_what_follows() -> None:
    # G_2 = 4;  G_1 = 2 + 0.5*4 = 4;  G_0 = 1 + 0.5*4 = 3
    np.testing.assert_array_equal(discounted_returns([1.0, 2.0, 4.0], 0.5), [3.0, 4.0, 4.0])


def test_no_discount_counts_immediate_rewards_and_full_discount_sums() -> None:
    np.testing.assert_array_equal(discounted_returns([1.0, 2.0, 4.0], 0.0), [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(discounted_returns([1.0, 2.0, 4.0], 1.0), [7.0, 6.0, 4.0])


def test_an_empty_episode_has_no_returns() -> None:
    assert discounted_returns([], 0.9).shape == (0,)
    assert step_returns([], [], [], 0.9).shape == (0,)


@given(REWARDS, st.floats(0, 1))
def test_returns_agree_with_the_definition(rewards: list[float], discount: float) -> None:
    expected = [
        sum(discount ** (s - t) * rewards[s] for s in range(t, len(rewards)))
        for t in range(len(rewards))
    ]
    np.testing.assert_allclose(discounted_returns(rewards, discount), expected, atol=1e-9)


@given(st.lists(REWARDS, max_size=4), st.floats(0, 1), st.randoms(use_true_random=False))
def test_time_is_the_index_not_the_order_of_rows(
    episodes: list[list[float]], discount: float, rng: object
) -> None:
    rows = [(k, t, r) for k, one in enumerate(episodes) for t, r in enumerate(one)]
    expected = [g for one in episodes for g in discounted_returns(one, discount).tolist()]
    order = list(range(len(rows)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    trajectory, index, reward = ([rows[i][k] for i in order] for k in range(3))
    found = step_returns(reward, trajectory, index, discount)
    np.testing.assert_allclose(found, [expected[i] for i in order], atol=1e-12)


def test_a_step_may_appear_once_only() -> None:
    with pytest.raises(DataError, match="trajectory 0 has step index 1 twice"):
        step_returns([0.0, 1.0, 1.0], [0, 0, 0], [0, 1, 1], 0.9)


@pytest.mark.parametrize(
    ("rewards", "discount", "words"),
    [
        ([1.0, float("nan")], 0.9, "must be finite, got nan at 1"),
        ([1.0, float("inf")], 0.9, "must be finite"),
        ([[1.0]], 0.9, "1 dimension"),
        ([None], 0.9, "must be"),
        (["x"], 0.9, "must be numbers"),
        ([1.0], 1.5, r"discount must be in \[0, 1\], got 1.5"),
        ([1.0], float("nan"), "discount"),
    ],
)
def test_wrong_rewards_are_refused(rewards: object, discount: float, words: str) -> None:
    with pytest.raises(DataError, match=words):
        discounted_returns(rewards, discount)  # type: ignore[arg-type]


def test_a_score_is_the_sum_over_the_episode_on_each_of_its_rows() -> None:
    np.testing.assert_array_equal(episode_scores([1, 5, 2], [7, 3, 7]), [3.0, 5.0, 3.0])
    assert episode_scores([], []).shape == (0,)


def test_a_penalty_hits_invalid_rows_only() -> None:
    np.testing.assert_array_equal(invalid_action_penalty([True, False], 0.1), [0.0, 0.1])
    with pytest.raises(DataError, match="booleans"):
        invalid_action_penalty([1, 0], 0.1)
    with pytest.raises(DataError, match="coefficient"):
        invalid_action_penalty([True], -0.1)
