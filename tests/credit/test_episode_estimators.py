"""Estimators that compare whole episodes: Dr.GRPO, RLOO, REINFORCE++, pass@k, LOOP, R3L."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.trajectory import Group
from agentrl.credit import (
    GRPO,
    LOOP,
    R3L,
    RLOO,
    DrGRPO,
    PassAtK,
    REINFORCEPlusPlus,
    REINFORCEPlusPlusBaseline,
    annotate,
)
from agentrl.credit.functional import amplified, informative, soft_mean, token_returns, whiten
from agentrl.testing.episodes import act, episode, group, random_groups, summary

SEEDS = st.integers(0, 10**6)


def flat(values: Any) -> np.ndarray[Any, Any]:
    return np.array([x for one in values if one is not None for x in one])


def scored(*scores: float) -> Group:
    return group("g", *(episode(f"e{k}", (f"s{k}", score)) for k, score in enumerate(scores)))


@given(SEEDS, st.sampled_from([0.0, 0.1]))
def test_dr_grpo_is_grpo_without_spread(seed: int, penalty: float) -> None:
    groups = random_groups(random.Random(seed))
    one = DrGRPO(invalid_action_penalty=penalty)
    other = GRPO(normaliser="mean", invalid_action_penalty=penalty)
    assert one.assign(groups).step_advantages == other.assign(groups).step_advantages


def test_rloo_compares_with_the_others() -> None:
    # 3 - mean(0, 0) = 3;  0 - mean(3, 0) = -1.5
    assert RLOO().assign([scored(3.0, 0.0, 0.0)]).step_advantages == ((3.0,), (-1.5,), (-1.5,))


@given(SEEDS)
def test_rloo_is_dr_grpo_times_n_over_n_minus_1(seed: int) -> None:
    for one in random_groups(random.Random(seed)):
        n = sum(t.scored for t in one.trajectories)
        rloo, mean = RLOO().assign([one]), DrGRPO().assign([one])
        factor = n / (n - 1) if n > 1 else 1.0
        np.testing.assert_allclose(
            flat(rloo.step_advantages), factor * flat(mean.step_advantages), atol=1e-12
        )


def test_reinforce_plus_plus_whitens_over_tokens() -> None:
    # Two one-step episodes of 3 tokens with return 1 and 1 token with return 0:
    # mean 3/4, variance (3 * 1/16 + 9/16) / 3 = 1/4.
    pair = group("g", episode("a", act("s", 1.0, tokens=3)), episode("b", act("s", 0.0, tokens=1)))
    found = flat(REINFORCEPlusPlus().assign([pair]).step_advantages)
    np.testing.assert_allclose(found, [0.5, -1.5], atol=1e-6)


def test_reinforce_plus_plus_discounts_and_serves_summaries_with_what_follows() -> None:
    one = group("g", episode("a", ("s", 0.0), summary(), ("t", 1.0), summary()))
    result = REINFORCEPlusPlus(discount=0.5).assign([one])
    raw = np.array([0.5, 1.0, 1.0, 0.0])  # returns; a summary has that of the next act
    expected = (raw - raw.mean()) / np.sqrt(2 * ((raw - raw.mean()) ** 2).sum() / 7 + 1e-8)
    np.testing.assert_allclose(flat(result.step_advantages), expected)


@given(SEEDS)
def test_reinforce_plus_plus_has_mean_0_and_variance_1_over_tokens(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    steps = [s for g in groups for t in g.trajectories if t.scored for s in t.steps]
    tokens = np.array([len(s.sample.token_ids) for s in steps])
    found = flat(REINFORCEPlusPlus().assign(groups).step_advantages)
    if found.any():
        assert abs((tokens * found).sum()) < 1e-6
        assert abs((tokens * found**2).sum() / (tokens.sum() - 1) - 1) < 1e-5


def test_the_baseline_form_gives_equal_groups_nothing_and_keeps_signs() -> None:
    equal = replace(scored(1.0, 1.0), id="equal")
    equal = replace(
        equal, trajectories=tuple(replace(t, id=f"x{t.id}") for t in equal.trajectories)
    )
    result = REINFORCEPlusPlusBaseline().assign([scored(1.0, 0.0), equal])
    a, b, c, d = flat(result.step_advantages)
    assert (c, d) == (0.0, 0.0)
    assert a == -b > 0
    published = REINFORCEPlusPlusBaseline(reference=True)
    # unequal lengths shift the mean over tokens, so equal groups get something there
    long = group("long", episode("a", act("s", 1.0, tokens=9)), episode("b", ("s", 0.0)))
    assert flat(published.assign([long, equal]).step_advantages)[2] != 0.0


def test_pass_at_k_rewards_the_margin_of_the_best() -> None:
    # scores 3, 1, 2: margin 1, spread 1
    assert PassAtK(epsilon=0.0).assign([scored(3.0, 1.0, 2.0)]).step_advantages == (
        (1.0,),
        (0.0,),
        (0.0,),
    )
    found = PassAtK(normaliser="mean").assign([scored(5.0, 1.0, 2.0)]).step_advantages
    assert found == ((3.0,), (0.0,), (0.0,))
    assert not flat(PassAtK().assign([scored(1.0, 1.0, 0.0)]).step_advantages).any()


def test_all_steps_of_the_best_episode_share_the_margin() -> None:
    pair = group("g", episode("a", ("s", 0.0), ("t", 1.0)), episode("b", ("s", 0.0)))
    assert PassAtK(normaliser="mean").assign([pair]).step_advantages == ((1.0, 1.0), (0.0,))


def test_pass_at_k_of_one_is_zero_or_refused() -> None:
    assert PassAtK().assign([scored(1.0)]).step_advantages == ((0.0,),)
    with pytest.raises(DataError, match="one entry"):
        PassAtK(reference=True).assign([scored(1.0)])


def test_loop_filters_what_has_no_signal() -> None:
    result = LOOP(threshold=0.3).assign([scored(1.0, 0.9, 0.8, 0.1)])
    # leave-one-out: 0.4, 0.2667, 0.1333, -0.8
    np.testing.assert_allclose(flat(result.step_advantages), [0.4, 0.0, 0.0, -0.8])
    assert result.metrics["filtered_share"] == 0.5
    positive = LOOP(threshold=0.3, positive_only=True, bonus=0.5).assign([scored(1.0, 0.0)])
    assert flat(positive.step_advantages).tolist() == [1.5, 0.0]


def test_loop_can_divide_by_the_spread() -> None:
    # scores 1, 0: leave-one-out +-1, spread (ddof 0) 1/2
    found = LOOP(divide=True).assign([scored(1.0, 0.0)]).step_advantages
    assert found == ((2.0,), (-2.0,))
    found = LOOP(divide=True, baseline="mean").assign([scored(1.0, 0.0)]).step_advantages
    assert found == ((1.0,), (-1.0,))


@given(SEEDS)
def test_loop_without_filter_is_rloo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    one, other = LOOP(threshold=0.0).assign(groups), RLOO().assign(groups)
    np.testing.assert_allclose(flat(one.step_advantages), flat(other.step_advantages), atol=1e-12)


@given(
    st.lists(st.floats(-1, 1), max_size=12),
    st.floats(0, 1),
    st.booleans(),
    st.integers(1, 5),
)
def test_informative_keeps_the_largest_in_full_worker_batches(
    advantages: list[float], threshold: float, positive: bool, workers: int
) -> None:
    kept, dropped = informative(
        advantages, threshold=threshold, positive_only=positive, multiple_of=workers
    )
    size = [a if positive else abs(a) for a in advantages]
    assert kept.tolist() == sorted(set(kept.tolist()))
    wanted = {k for k, one in enumerate(size) if one >= threshold}
    assert wanted <= set(kept.tolist())
    assert len(kept) == len(size) or (len(kept) % workers == 0 and len(kept) > 0)
    rest = [size[k] for k in range(len(size)) if k not in kept]
    assert all(one <= min(size[k] for k in kept) for one in rest)
    assert dropped == max([*rest, 0.0])


def test_r3l_amplifies_what_is_above_the_mean() -> None:
    # mean 0.4: success 1, 0.5 is amplified 3 * 0.1, 0.1 and 0 are not
    found = flat(R3L().assign([scored(1.0, 0.5, 0.1, 0.0)]).step_advantages)
    np.testing.assert_allclose(found, [1.0, 0.3, -0.3, -0.4])


def test_r3l_leaves_replayed_steps_out_and_trusts_exemplars() -> None:
    base = episode("base", ("s", 0.0), ("t", 0.0))
    retry = episode("retry", annotate(act("s", 0.0), prefix=True), ("t", 1.0))
    shown = episode("shown", annotate(act("s", 0.0), exemplar=True))
    result = R3L().assign([group("g", base, retry, shown)])
    assert result.step_advantages == ((-0.5, -0.5), (0.0, 1.0), (1.0,))
    assert result.metrics["prefix_share"] == 0.2


def test_r3l_all_success_teaches_nothing_unless_published() -> None:
    assert R3L().assign([scored(1.0, 1.0)]).step_advantages == ((0.0,), (0.0,))
    assert R3L(reference=True).assign([scored(1.0, 1.0)]).step_advantages == ((1.0,), (1.0,))
    assert R3L().assign([scored(0.4)]).step_advantages == ((0.0,),)
    np.testing.assert_allclose(
        flat(R3L(singleton="raw").assign([scored(0.4)]).step_advantages), 1.2
    )


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.floats(0.01, 100))
def test_the_soft_mean_lies_between_mean_and_maximum(scores: list[float], tau: float) -> None:
    assert np.mean(scores) - 1e-9 <= soft_mean(scores, tau) <= max(scores) + 1e-9


def test_functional_errors_name_what_is_wrong() -> None:
    with pytest.raises(DataError, match="tau > 0"):
        soft_mean([], 1.0)
    with pytest.raises(DataError, match="multiple_of"):
        informative([1.0], multiple_of=0)
    with pytest.raises(DataError, match="lengths"):
        token_returns([1.0], [3], 2, 1.0)
    with pytest.raises(DataError, match="weights"):
        whiten([1.0], [-1.0])
    with pytest.raises(DataError, match="finite"):
        amplified([float("nan")], 0.0)
    with pytest.raises(ConfigError, match="LOOP: baseline must be one of leave_one_out, mean"):
        LOOP(baseline="median")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="R3L: tau"):
        R3L(tau=0.0)


def test_token_returns_sit_on_the_last_token() -> None:
    found = token_returns([2.0, 1.0], [3, 1], 4, 0.5)
    np.testing.assert_array_equal(found, [[0.5, 1.0, 2.0, 0.0], [1.0, 0.0, 0.0, 0.0]])


def test_whitening_ignores_what_has_no_weight() -> None:
    np.testing.assert_allclose(
        whiten([1.0, 0.0, 99.0], [1, 1, 0])[:2], [0.5 / np.sqrt(0.5), -0.5 / np.sqrt(0.5)]
    )
    assert whiten([3.0], [1]).tolist() == [0.0]
    assert whiten([2.0, 2.0], [1, 5]).tolist() == [0.0, 0.0]
