from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.credit.functional import (
    Aggregation,
    Objective,
    aggregation_weights,
    cpgd,
    decoupled_ppo,
    gated_distillation,
    gspo,
    kl_estimators,
    loop_loss,
    opd_loss,
    opmd,
    ppo_clip,
)

AGGREGATIONS: tuple[Aggregation, ...] = (
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
)
MASK = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])


def draw(seed: int, scale: float = 0.3) -> tuple[Any, ...]:
    """Current, old, proximal and teacher log-probabilities, and advantages, shape (3, 4)."""
    rng = np.random.default_rng(seed)
    old = -1.0 - rng.random((3, 4))
    near = [old + scale * (rng.random((3, 4)) - 0.5) for _ in range(3)]
    return (*near, old, rng.normal(size=(3, 4)))


def numeric_gradient(loss: Callable[[Any], float], at: Any) -> Any:
    """Central differences."""
    gradient = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        gradient[place] = (loss(up) - loss(down)) / 2e-6
    return gradient


DIFFERENTIABLE: dict[str, Callable[..., Objective]] = {
    "ppo": lambda x, p, t, old, a: ppo_clip(x, old, a, MASK),
    "ppo without dual clip": lambda x, p, t, old, a: ppo_clip(x, old, a, MASK, dual=None),
    "ppo sequence mean": lambda x, p, t, old, a: ppo_clip(
        x, old, a, MASK, aggregation="seq-mean-token-mean", dual=1.05
    ),
    "cpgd": lambda x, p, t, old, a: cpgd(x, old, a, MASK, low=0.05, high=0.05),
    "decoupled": lambda x, p, t, old, a: decoupled_ppo(x, p, old, a, MASK, low=0.05, high=0.05),
    "opmd": lambda x, p, t, old, a: opmd(x, a, MASK),
    "opd delta": lambda x, p, t, old, a: opd_loss(x, old, t, MASK),
    "opd importance": lambda x, p, t, old, a: opd_loss(
        x, old, t, MASK, weighting="importance", clip=0.05
    ),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_loss(name: str, seed: int) -> None:
    current, proximal, teacher, old, advantages = draw(seed)

    def objective(x: Any) -> Objective:
        return DIFFERENTIABLE[name](x, proximal, teacher, old, advantages)

    expected = numeric_gradient(lambda x: objective(x).loss, current)
    np.testing.assert_allclose(objective(current).gradient, expected, atol=1e-8)


@pytest.mark.parametrize("level", ["token", "trajectory"])
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("advantage", [0.7, -0.7, 0.0])
def test_loop_gradients_are_those_of_the_loss(level: Any, clip: bool, advantage: float) -> None:
    current, _, _, old, _ = draw(5)

    def objective(x: Any) -> Objective:
        return loop_loss(x, old[0], advantage, level=level, clip=clip)

    expected = numeric_gradient(lambda x: objective(x).loss, current[0])
    np.testing.assert_allclose(objective(current[0]).gradient, expected, atol=1e-8)


def test_loop_clips_the_ratio_symmetrically() -> None:
    # ratio 1/2 with A < 0 is clipped at 1/1.1, not at 0.9; ratio 2 with A > 0 at 1.1
    low = loop_loss([np.log(0.5)], [0.0], -1.0, epsilon=0.1)
    high = loop_loss([np.log(2.0)], [0.0], 1.0, epsilon=0.1)
    np.testing.assert_allclose([low.loss, high.loss], [1 / 1.1, -1.1])
    assert low.gradient.tolist() == high.gradient.tolist() == [0.0]


def test_the_ratio_of_gspo_is_the_rows_and_its_gradient_the_tokens() -> None:
    # One row of two tokens, log-ratios 0.1 and -0.1: ratio 1, so no clip and gradient -A / 2.
    found = gspo([[-0.9, -1.1]], [[-1.0, -1.0]], [[2.0, 4.0]], [[1, 1]])
    np.testing.assert_allclose(found.loss, -3.0)
    np.testing.assert_allclose(found.gradient, [[-1.0, -2.0]])
    clipped = gspo([[-0.9, -0.9]], [[-1.0, -1.0]], [[1.0, -1.0]], [[1, 1]])
    np.testing.assert_allclose(clipped.loss, (-1.0004 + np.exp(0.1)) / 2)
    np.testing.assert_allclose(clipped.gradient, [[0.0, np.exp(0.1) / 2]])
    assert clipped.metrics["clipfrac"] == pytest.approx(0.5)


def test_ppo_by_hand() -> None:
    # ratios 2 and 1/2; A = 1: clipped at 1.2; A = -1 with ratio 1/2: clipped at 0.8
    found = ppo_clip([[np.log(2.0), np.log(0.5)]], [[0.0, 0.0]], [[1.0, -1.0]], [[1, 1]])
    np.testing.assert_allclose(found.loss, (-1.2 + 0.8) / 2)
    np.testing.assert_allclose(found.gradient, [[0.0, 0.0]])
    # A = -1 with ratio 4 is bounded at 3
    bounded = ppo_clip([[np.log(4.0)]], [[0.0]], [[-1.0]], [[1]])
    np.testing.assert_allclose(bounded.loss, 3.0)
    assert bounded.gradient.tolist() == [[0.0]]
    assert bounded.metrics["clipfrac_lower"] == pytest.approx(1.0)


@given(st.integers(0, 1000))
def test_decoupled_ppo_around_the_behaviour_policy_is_ppo(seed: int) -> None:
    current, _, _, old, advantages = draw(seed, scale=1.0)
    one = decoupled_ppo(current, old, old, advantages, MASK)
    other = ppo_clip(current, old, advantages, MASK, dual=None)
    np.testing.assert_allclose(one.loss, other.loss)
    np.testing.assert_allclose(one.gradient, other.gradient)


def test_decoupled_ppo_weighs_by_what_the_behaviour_policy_did() -> None:
    # proximal twice as likely as behaviour: weight 2; capped at 1.5 the token is left out
    arguments = ([[0.0]], [[0.0]], [[np.log(0.5)]], [[1.0]], [[1]])
    assert decoupled_ppo(*arguments).loss == pytest.approx(-2.0)
    capped = decoupled_ppo(*arguments, weight_cap=1.5)
    assert capped.loss == 0.0
    assert capped.metrics["left_out"] == pytest.approx(1.0)


@given(st.integers(0, 1000))
def test_on_policy_all_surrogates_have_the_gradient_of_reinforce(seed: int) -> None:
    _, _, _, old, advantages = draw(seed)
    reinforce = -advantages * aggregation_weights(MASK)
    for found in (
        ppo_clip(old, old, advantages, MASK),
        cpgd(old, old, advantages, MASK),
        decoupled_ppo(old, old, old, advantages, MASK),
        opmd(old, advantages, MASK, tau=0.0),
    ):
        np.testing.assert_allclose(found.gradient, reinforce, atol=1e-12)


def test_cpgd_does_not_amplify_a_large_ratio_and_pulls_back() -> None:
    # log-ratio log 4 and A < 0: PPO's gradient is 4, CPGD's 1 (+ drift * 3)
    arguments = ([[np.log(4.0)]], [[0.0]], [[-1.0]], [[1]])
    assert ppo_clip(*arguments, dual=None).gradient.item() == pytest.approx(4.0)
    assert cpgd(*arguments, drift=0.0).gradient.item() == pytest.approx(1.0)
    assert cpgd(*arguments, drift=0.1).gradient.item() == pytest.approx(1.3)
    clipped = cpgd([[np.log(4.0)]], [[0.0]], [[1.0]], [[1]], drift=0.0)
    assert clipped.loss == pytest.approx(-np.log(1.2))
    assert clipped.gradient.item() == 0.0


def test_gated_distillation_only_raises_and_most_where_the_teacher_likes_more() -> None:
    found = gated_distillation([[-1.0, -1.0, -1.0]], [[-0.5, -1.0, -3.0]], [[1, 1, 0]])
    gate = 1 / (1 + np.exp(-5 * 0.5))
    np.testing.assert_allclose(found.gradient, [[-gate / 2, -0.25, 0.0]])
    np.testing.assert_allclose(found.loss, gate * 0.5 / 2)
    assert found.metrics["teacher_gap_mean"] == pytest.approx(0.25)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_aggregation_weights_of_sampled_tokens_only(aggregation: Aggregation) -> None:
    weights = aggregation_weights(MASK, aggregation)
    assert (weights[MASK == 0] == 0).all()
    expected = {
        "token-mean": 1.0,
        "seq-mean-token-mean": 1.0,
        "seq-mean-token-sum": 8 / 3,
        "seq-mean-token-sum-norm": 8 / 4,
    }
    assert weights.sum() == pytest.approx(expected[aggregation])
    assert not aggregation_weights(np.zeros((2, 3)), aggregation).any()


def test_padding_may_hold_anything() -> None:
    current, proximal, teacher, old, advantages = draw(1)
    spoiled = [np.where(MASK > 0, x, np.nan) for x in (current, proximal, teacher, old, advantages)]
    for name, compute in DIFFERENTIABLE.items():
        clean = compute(current, proximal, teacher, old, advantages)
        dirty = compute(*spoiled)
        assert clean.loss == dirty.loss, name
        np.testing.assert_array_equal(clean.gradient, dirty.gradient)


@given(st.floats(-5, -0.01), st.floats(-5, -0.01))
def test_kl_estimators(log_prob: float, reference: float) -> None:
    found = {k: float(v[0]) for k, v in kl_estimators([log_prob], [reference]).items()}
    d = log_prob - reference
    assert found["k1"] == d
    assert found["abs"] == abs(d)
    assert found["k2"] == d * d / 2
    assert found["k3"] + 1e-12 >= 0
    assert found["k3"] == pytest.approx(min(np.exp(-d) + d - 1, 10.0), abs=1e-9)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="shape"):
        ppo_clip([[0.0]], [[0.0, 0.0]], [[0.0]], [[1]])
    with pytest.raises(DataError, match="not finite"):
        opmd([[np.nan]], [[1.0]], [[1]])
    with pytest.raises(DataError, match="without sampled tokens"):
        loop_loss([], [], 1.0)
    with pytest.raises(DataError, match="tau"):
        opmd([[0.0]], [[1.0]], [[1]], tau=-1.0)
    with pytest.raises(DataError, match="rows, width"):
        aggregation_weights([1.0])
    with pytest.raises(DataError, match="unknown aggregation"):
        aggregation_weights([[1.0]], "mean")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="differ"):
        kl_estimators([0.0], [0.0, 1.0])
