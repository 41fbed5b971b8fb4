"""Losses that meet text the current policy did not sample: LOOP, R3L, CPGD, decoupled PPO, SEED.

Conventions as in ``objectives``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import floats
from agentrl.credit.functional.objectives import (
    Aggregation,
    Objective,
    active,
    aggregation_weights,
    masked_mean,
)

__all__ = [
    "cpgd",
    "decoupled_ppo",
    "gated_distillation",
    "loop_loss",
    "opd_loss",
    "opmd",
]


def loop_loss(
    log_prob: npt.ArrayLike,
    old: npt.ArrayLike,
    advantage: float,
    *,
    level: Literal["token", "trajectory"] = "token",
    clip: bool = True,
    epsilon: float = 0.1,
) -> Objective:
    """LOOP's loss of one trajectory, clipped symmetrically in the ratio.

    ::

        r = exp(log_prob - old), per token, or exp of their sum for the trajectory
        l = -min(r A, clip(r, 1 / (1 + epsilon), 1 + epsilon) A)       mean over the tokens
        without clip: -A * mean(log_prob), at either level

    The published trainer sums over the trajectories of a minibatch and divides by the constant
    minibatch size, also for a smaller last one.

    Source: LOOP (arXiv 2502.01600), code apple/ml-loop.

    Args:
        log_prob: Log-probabilities of the trajectory's sampled tokens, shape (T,), T >= 1.
        old: Those of the policy that sampled, shape (T,).
        advantage: Of the trajectory.
        level: One ratio per token or one per trajectory.
        clip: Clip the ratio; else plain REINFORCE without a ratio.
        epsilon: Clip range, > 0: [0.909, 1.1] for 0.1.

    Raises:
        DataError: no tokens, shapes differ, or a value is not finite.
    """
    log_prob = floats("log_prob", log_prob)
    old = floats("old", old, like=log_prob)
    count = len(log_prob)
    if not count:
        raise DataError("a trajectory without sampled tokens has no loss; leave it out")
    a = float(advantage)
    if not clip:
        return Objective(float(-a * log_prob.mean()), np.full(count, -a / count))
    low, high = 1.0 / (1.0 + epsilon), 1.0 + epsilon
    difference = log_prob - old
    ratio = np.exp(difference if level == "token" else np.array([difference.sum()]))
    plain, clipped = -a * ratio, -a * np.clip(ratio, low, high)
    slope = np.where(plain >= clipped, plain, 0.0)
    gradient = slope / count if level == "token" else np.full(count, slope[0])
    return Objective(float(np.maximum(plain, clipped).mean()), gradient)


def opmd(
    log_prob: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    tau: float = 1.0,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """R3L's loss: no ratio and no clipping, so text of another policy is allowed.

    ::

        l = -A log_prob / (1 + tau)

    Source: R3L (github.com/shiweijiezero/R3L), OPMD.

    Raises:
        DataError: shapes differ, an active value is not finite, or tau <= -1.
    """
    if tau <= -1.0:
        raise DataError(f"tau must be > -1, got {tau}")
    m, log_prob, a = active(mask, log_prob, advantages)
    weights = aggregation_weights(m, aggregation)
    slope = -a / (1.0 + tau)
    return Objective(float((weights * slope * log_prob).sum()), weights * slope)


def cpgd(
    log_prob: npt.ArrayLike,
    old: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    low: float = 0.2,
    high: float = 0.2,
    drift: float = 0.1,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """Clipped policy gradient with policy drift: the log-ratio is clipped, not the ratio.

    ::

        d = log_prob - old
        l = max(-A d, -A clip(d, log(1 - low), log(1 + high))) + drift * (exp(d) - 1 - d)

    The first term's gradient is plain ``-A`` until the clip, so a large ratio does not amplify it;
    the second estimates KL(old || current) on tokens that the old policy sampled.

    Source: CPGD (arXiv 2505.12504); the estimator of the drift is our reading. Arguments and errors
    as in ``ppo_clip``.
    """
    m, log_prob, old, a = active(mask, log_prob, old, advantages)
    d = log_prob - old
    plain, clipped = -a * d, -a * np.clip(d, np.log1p(-low), np.log1p(high))
    ratio = np.exp(np.clip(d, -20.0, 20.0))
    loss = np.maximum(plain, clipped) + drift * (ratio - 1.0 - d)
    slope = np.where(plain >= clipped, -a, 0.0) + drift * (ratio - 1.0)
    weights = aggregation_weights(m, aggregation)
    metrics = {
        "clipfrac": masked_mean(clipped > plain, m),
        "drift": masked_mean(ratio - 1.0 - d, m),
    }
    return Objective(float((weights * loss).sum()), weights * slope, metrics)


def decoupled_ppo(
    log_prob: npt.ArrayLike,
    proximal: npt.ArrayLike,
    behaviour: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    low: float = 0.2,
    high: float = 0.2,
    weight_cap: float | None = None,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """PPO around a proximal policy, for samples of an older behaviour policy.

    ::

        w = exp(proximal - behaviour)       constant; tokens with w > weight_cap are left out
        r = exp(log_prob - proximal)
        l = w * max(-A r, -A clip(r, 1 - low, 1 + high))

    With ``proximal == behaviour`` it is PPO without the dual clip.

    Source: decoupled objective (arXiv 2110.00641) as used for asynchronous training by AReaL
    (arXiv 2505.24298).

    Args:
        log_prob: Of the current policy, shape (n, W). proximal: of the policy at the start of the
            update. behaviour: of the policy that sampled.
        advantages: Per token. mask: as everywhere.
        low: Clip below 1. high: clip above 1.
        weight_cap: Largest weight that still counts, > 0; ``None``: no cap.
        aggregation: How token losses become one number.

    Raises:
        DataError: shapes differ or an active value is not finite.
    """
    m, log_prob, proximal, behaviour, a = active(mask, log_prob, proximal, behaviour, advantages)
    weight = np.exp(np.clip(proximal - behaviour, -20.0, 20.0))
    kept = weight <= weight_cap if weight_cap is not None else np.ones(m.shape, dtype=np.bool_)
    weight = np.where(kept, weight, 0.0)
    ratio = np.exp(np.clip(log_prob - proximal, -20.0, 20.0))
    plain, clipped = -a * ratio, -a * np.clip(ratio, 1.0 - low, 1.0 + high)
    slope = np.where(plain >= clipped, plain, 0.0)
    weights = aggregation_weights(m, aggregation) * weight
    metrics = {
        "clipfrac": masked_mean(clipped > plain, m),
        "behaviour_weight": masked_mean(weight, m),
        "left_out": masked_mean(~kept, m),
    }
    loss = float((weights * np.maximum(plain, clipped)).sum())
    return Objective(loss, weights * slope, metrics)


def opd_loss(
    log_prob: npt.ArrayLike,
    old: npt.ArrayLike,
    teacher: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    weighting: Literal["delta", "importance"] = "delta",
    clip: float | None = None,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """OPID's auxiliary loss towards the informed policy.

    ::

        w = teacher - old                                  constant
        delta:       l = -clip(w) * log_prob
        importance:  l = -clip(w * exp(log_prob - old))    clipped tokens have no gradient

    Source: OPID (github.com/jinyangwu/OPID); its scripts use coefficient 0.

    Args:
        log_prob: Of the current policy, shape (n, W). old: of the policy that sampled.
        teacher: Under the prompt with the skill.
        mask: 1 on tokens of routed rows.
        weighting: Which of the two forms.
        clip: Bound, > 0; ``None``: none.
        aggregation: How token losses become one number. Sequence means divide by all rows.

    Returns:
        The objective (all zeros without active tokens); metrics ``weight_abs_mean``,
        ``log_ratio_abs_mean``, ``importance_ratio_mean``, ``importance_ratio_max``,
        ``active_token_ratio``.

    Raises:
        DataError: shapes differ or an active value is not finite.
    """
    m, log_prob, old, teacher = active(mask, log_prob, old, teacher)
    weights = aggregation_weights(m, aggregation)
    bound = np.inf if clip is None else clip
    if weighting == "delta":
        w = np.clip(teacher - old, -bound, bound)
        loss, slope, used = -w * log_prob, -w, w
        ratios = np.zeros_like(m)
        difference = np.zeros_like(m)
    else:
        difference = log_prob - old
        ratios = np.exp(difference)
        x = (teacher - old) * ratios
        used = np.clip(x, -bound, bound)
        loss, slope = -used, np.where(np.abs(x) <= bound, -x, 0.0)
    metrics = {
        "weight_abs_mean": masked_mean(np.abs(used), m),
        "log_ratio_abs_mean": masked_mean(np.abs(difference), m),
        "importance_ratio_mean": masked_mean(ratios, m),
        "importance_ratio_max": float(np.where(m > 0, ratios, 0.0).max(initial=0.0)),
        "active_token_ratio": float(m.mean()) if m.size else 0.0,
    }
    return Objective(float((weights * loss).sum()), weights * slope, metrics)


def gated_distillation(
    log_prob: npt.ArrayLike,
    teacher: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    beta: float = 5.0,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """SEED's auxiliary loss: raise sampled tokens that the informed policy likes better.

    ::

        gap  = teacher - stopgrad(log_prob)
        gate = sigmoid(beta * gap)                         constant
        l    = gate * (teacher - log_prob)                 gradient -gate: it only ever raises

    Source: SEED (github.com/jinyangwu/SEED), added with coefficient 0.01.

    Returns:
        The objective (all zeros without active tokens); metrics ``gate_mean``,
        ``gate_active_ratio`` (gate > 0.5), ``teacher_gap_mean``, ``active_token_ratio``.

    Raises:
        DataError: shapes differ or an active value is not finite.
    """
    m, log_prob, teacher = active(mask, log_prob, teacher)
    gap = teacher - log_prob
    gate = 1.0 / (1.0 + np.exp(-np.clip(beta * gap, -500.0, 500.0)))
    weights = aggregation_weights(m, aggregation)
    metrics = {
        "gate_mean": masked_mean(gate, m),
        "gate_active_ratio": masked_mean(gate > 0.5, m),
        "teacher_gap_mean": masked_mean(gap, m),
        "active_token_ratio": float(m.mean()) if m.size else 0.0,
    }
    return Objective(float((weights * gate * gap).sum()), -weights * gate, metrics)
