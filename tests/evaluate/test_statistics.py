"""Hand-worked numbers, slow oracles and properties of the statistics."""

from __future__ import annotations

import itertools
import math
import random
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.evaluate.statistics import (
    bootstrap_by_task,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    pass_rates,
    sign_test,
    wilson_interval,
)


def test_wilson_by_hand() -> None:
    # z = 1.96, n = 10, p = 0.8: z^2/n = 0.38416; centre = (0.8 + 0.19208) / 1.38416 = 0.71674
    # half = 1.96 / 1.38416 * sqrt(0.016 + 0.009604) = 0.22658
    assert wilson_interval(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-4)


def test_wilson_at_the_ends() -> None:
    # No success in n: high = z^2 / (n + z^2) = 3.8415 / 13.8415
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.27753, abs=1e-5)
    low, high = wilson_interval(10, 10)
    assert low == pytest.approx(1 - 0.27753, abs=1e-5)
    assert high == 1.0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_limits_are_the_shares_that_are_just_z_away(case: tuple[int, int]) -> None:
    """The defining equation: |p - limit| = z * sqrt(limit (1 - limit) / n)."""
    successes, trials = case
    share, z = successes / trials, NormalDist().inv_cdf(0.975)
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= share <= high <= 1
    for limit in (low, high):
        if 0 < limit < 1:
            assert abs(share - limit) == pytest.approx(z * math.sqrt(limit * (1 - limit) / trials))
    mirrored = wilson_interval(trials - successes, trials)
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_wilson_covers_as_promised() -> None:
    # Exact coverage at n = 50, averaged over shares: the sum of binomial masses whose interval
    # holds the share.
    n, shares = 50, [place / 40 for place in range(1, 40)]
    intervals = [wilson_interval(k, n) for k in range(n + 1)]
    coverage = fmean(
        sum(
            math.comb(n, k) * p**k * (1 - p) ** (n - k)
            for k, (low, high) in enumerate(intervals)
            if low <= p <= high
        )
        for p in shares
    )
    assert coverage == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(successes: int, trials: int) -> None:
    with pytest.raises(DataError, match="expected at least one trial"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        wilson_interval(1, 2, confidence=confidence)
    with pytest.raises(DataError, match="between 0 and 1"):
        bootstrap_by_task([[1.0]], seed=0, confidence=confidence)


def test_the_bootstrap_agrees_with_every_possible_resample() -> None:
    # Three tasks have 27 resamples; the 90 % percentile interval of their means is exact.
    means = [0.0, 0.5, 1.0]
    every = sorted(fmean(drawn) for drawn in itertools.product(means, repeat=3))
    got = bootstrap_by_task([[0, 0], [0, 1], [1, 1]], seed=1, confidence=0.9, resamples=20_000)
    assert got.value == 0.5
    # P(mean <= 1/6) = 4/27 > 5 %, P(mean = 0) = 1/27 < 5 %: the 5 % quantile is 1/6.
    assert every[1] == pytest.approx(1 / 6)
    assert (got.low, got.high) == pytest.approx((1 / 6, 5 / 6))


def test_the_bootstrap_agrees_with_the_normal_limit() -> None:
    rng = random.Random(0)
    values = [[float(rng.random() < 0.4)] for _ in range(400)]
    share = fmean(one[0] for one in values)
    half = 1.959964 * math.sqrt(share * (1 - share) / 400)
    got = bootstrap_by_task(values, seed=3)
    assert (got.low, got.high) == pytest.approx((share - half, share + half), abs=0.006)


def test_trials_of_one_task_are_not_independent() -> None:
    # 40 tasks, each decided once and played 8 times: 320 episodes say no more than 40 tasks.
    once = [[float(place % 2)] for place in range(40)]
    often = [one * 8 for one in once]
    assert bootstrap_by_task(often, seed=5) == bootstrap_by_task(once, seed=5)


def test_tasks_count_equally_whatever_their_trials() -> None:
    assert bootstrap_by_task([[1.0], [0.0, 0.0, 0.0]], seed=0).value == 0.5


def test_equal_seeds_give_equal_intervals_and_others_do_not() -> None:
    values = [[math.sqrt(place)] for place in range(30)]
    assert bootstrap_by_task(values, seed=1) == bootstrap_by_task(values, seed=1)
    assert bootstrap_by_task(values, seed=1) != bootstrap_by_task(values, seed=2)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_tasks_claim_no_certainty(value: float) -> None:
    got = bootstrap_by_task([[value]] * 20, seed=0, bounds=(0.0, 1.0))
    assert (got.low, got.high) == pytest.approx(wilson_interval(round(20 * value), 20))
    assert "all tasks equal" in got.method


def test_equal_tasks_without_bounds_say_that_there_is_no_interval() -> None:
    got = bootstrap_by_task([[2.5]] * 3, seed=0)
    assert (got.low, got.high) == (2.5, 2.5)
    assert "no interval" in got.method


@pytest.mark.parametrize("values", [[], [[]], [[math.nan]], [[1.0], [math.inf]]])
def test_the_bootstrap_refuses_what_has_no_mean(values: list[list[float]]) -> None:
    with pytest.raises(DataError, match="bootstrap_by_task"):
        bootstrap_by_task(values, seed=0)


@pytest.mark.parametrize(
    ("improved", "worsened", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (6, 0, 2 / 64), (8, 2, 2 * (1 + 10 + 45) / 1024), (1, 0, 1.0)],
)
def test_the_sign_test_by_hand(improved: int, worsened: int, p: float) -> None:
    assert sign_test(improved, worsened) == pytest.approx(p)
    assert sign_test(worsened, improved) == pytest.approx(p)


@given(st.integers(0, 12), st.integers(0, 12))
def test_the_sign_test_counts_the_outcomes_at_least_as_lopsided(a: int, b: int) -> None:
    pairs, lopsided = a + b, abs(a - b)
    slow = sum(
        math.comb(pairs, heads) for heads in range(pairs + 1) if abs(pairs - 2 * heads) >= lopsided
    )
    assert sign_test(a, b) == pytest.approx(slow / 2**pairs)


def test_a_paired_difference_by_hand() -> None:
    before = {"a": [0], "b": [0], "c": [1], "d": [1], "e": [0]}
    after = {"a": [1], "b": [1], "c": [0], "d": [1], "e": [1]}
    got = paired_difference(before, after, seed=0)
    # +1 +1 -1 0 +1: mean 0.4; three up, one down: 2 * (1 + 4) / 16
    assert got.difference == pytest.approx(0.4)
    assert (got.tasks, got.improved, got.worsened, got.left_out) == (5, 3, 1, 0)
    assert got.p_value == pytest.approx(0.625)
    assert -0.4 <= got.low < 0.4 < got.high <= 1.0


def test_pairing_narrows_the_interval() -> None:
    # Tasks differ a lot, the change on each is alike: 0.1 up on half of them.
    before = {str(place): [place / 100] for place in range(90)}
    after = {str(place): [place / 100 + 0.1 * (place % 2)] for place in range(90)}
    got = paired_difference(before, after, seed=0)
    alone = bootstrap_by_task(list(after.values()), seed=0)
    assert got.difference == pytest.approx(0.05)
    assert got.high - got.low < (alone.high - alone.low) / 4


def test_a_task_without_a_scored_episode_is_left_out_and_counted() -> None:
    got = paired_difference({"a": [0], "b": [1], "c": []}, {"a": [1], "b": [], "c": [1]}, seed=0)
    assert (got.tasks, got.left_out, got.difference) == (1, 2, 1.0)


def test_no_change_at_all_claims_no_certainty() -> None:
    same = {str(place): [1.0] for place in range(20)}
    got = paired_difference(same, same, seed=0)
    assert got.difference == 0
    assert got.low < 0 < got.high
    assert got.p_value == 1


def test_different_panels_cannot_be_paired() -> None:
    with pytest.raises(DataError, match=r"first: 'b'.*same panel"):
        paired_difference({"a": [1]}, {"b": [1], "a": [0]}, seed=0)
    with pytest.raises(DataError, match="no task was scored on both sides"):
        paired_difference({"a": []}, {"a": [1]}, seed=0)


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_pass_rates_agree_with_every_draw(case: tuple[int, int, int]) -> None:
    trials, successes, k = case
    outcomes = [place < successes for place in range(trials)]
    draws = list(itertools.combinations(outcomes, k))
    assert pass_at_k(trials, successes, k) == pytest.approx(fmean(any(one) for one in draws))
    assert pass_hat_k(trials, successes, k) == pytest.approx(fmean(all(one) for one in draws))


def test_more_draws_than_trials_have_no_rate() -> None:
    assert pass_at_k(3, 3, 4) is None
    assert pass_hat_k(3, 3, 4) is None


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_pass_rates_refuse_impossible_counts(n: int, c: int, k: int) -> None:
    for function in (pass_at_k, pass_hat_k):
        with pytest.raises(DataError, match="expected k >= 1"):
            function(n, c, k)


def test_one_crash_lowers_no_other_task_and_both_conventions_are_told() -> None:
    panel: dict[str, list[bool | None]] = {
        "A": [True, True, True, None],
        "B": [True, True, True, True],
    }

    def value(outcomes: dict[str, list[bool | None]], k: int, convention: str) -> float | None:
        (rate,) = (
            one
            for one in pass_rates(outcomes, [k])
            if one.statistic == "pass^k" and one.convention == convention
        )
        return rate.value

    only_a, only_b = {"A": panel["A"]}, {"B": panel["B"]}
    assert value(only_a, 3, "exclude") == 1.0
    assert value(only_a, 3, "fail") == 0.25  # C(3,3) / C(4,3)
    assert value(only_a, 4, "exclude") is None
    assert value(only_a, 4, "fail") == 0.0
    assert value(only_b, 4, "exclude") == value(only_b, 4, "fail") == 1.0
    (rate,) = (
        one
        for one in pass_rates(panel, [4])
        if (one.statistic, one.convention) == ("pass^k", "exclude")
    )
    assert (rate.value, rate.tasks, rate.left_out) == (1.0, 1, 1)
