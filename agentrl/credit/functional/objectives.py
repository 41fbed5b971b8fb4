"""Losses of estimators, in float64 with their gradients: what the learner is checked against.

Every objective is a sum of token losses times fixed aggregation weights, so a gradient is given per
token: d loss / d log_prob. Arrays are padded, shape (n, W); ``mask`` is 1 on sampled tokens, and
padding may hold any number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array

__all__ = [
    "Aggregation",
    "Objective",
    "active",
    "aggregation_weights",
    "gspo",
    "kl_estimators",
    "masked_mean",
    "ppo_clip",
]

Aggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"
]


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss to minimise, its gradient by the log-probabilities, and what to report."""

    loss: float
    gradient: Array
    metrics: Mapping[str, float] = field(default_factory=dict)


def aggregation_weights(mask: npt.ArrayLike, mode: Aggregation = "token-mean") -> Array:
    """Weight of each token in the loss, shape (n, W)::

        token-mean               mask / (sum of the mask + 1e-8)           DAPO
        seq-mean-token-mean      mask / (tokens of the row) / n            GRPO
        seq-mean-token-sum       mask / n
        seq-mean-token-sum-norm  mask / W                                  "Dr.GRPO" as published

    The last is divided by the padded width and not by the number of rows, so its scale depends on
    padding and on micro-batches: for comparisons only. A row without tokens weighs nothing.

    Source: the policy losses of verl.

    Raises:
        DataError: an unknown mode, or a mask that is not two-dimensional.
    """
    mask = np.asarray(mask, dtype=np.float64)
    if mask.ndim != 2:
        raise DataError(f"mask must have shape (rows, width), got {mask.shape}")
    rows, width = max(mask.shape[0], 1), max(mask.shape[1], 1)
    match mode:
        case "token-mean":
            return np.asarray(mask / (mask.sum() + 1e-8))
        case "seq-mean-token-mean":
            return np.asarray(mask / np.maximum(mask.sum(axis=1, keepdims=True), 1.0) / rows)
        case "seq-mean-token-sum":
            return np.asarray(mask / rows)
        case "seq-mean-token-sum-norm":
            return np.asarray(mask / width)
    raise DataError(f"unknown aggregation {mode!r}")


def ppo_clip(
    log_prob: npt.ArrayLike,
    old: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
    aggregation: Aggregation = "token-mean",
) -> Objective:
    """PPO's clipped surrogate with the dual clip.

    ::

        r = exp(log_prob - old)           l1 = -A r        l2 = -A clip(r, 1 - low, 1 + high)
        l = max(l1, l2);   where A < 0:  l = min(l, -A dual)

    Source: PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729), low 0.2 and high 0.28 with dual 10
    in DAPO (arXiv 2503.14476).

    Args:
        log_prob: Of the current policy, shape (n, W). old: of the policy that sampled.
        advantages: Per token, shape (n, W). mask: shape (n, W).
        low: Clip below 1. high: clip above 1.
        dual: Bound on the loss where the advantage is negative, > 1; ``None``: none.
        aggregation: How token losses become one number.

    Returns:
        The objective; metrics ``clipfrac``, ``clipfrac_lower``, ``ppo_kl``.

    Raises:
        DataError: shapes differ or an active value is not finite.
    """
    m, log_prob, old, a = active(mask, log_prob, old, advantages)
    ratio = np.exp(np.clip(log_prob - old, -20.0, 20.0))
    plain, clipped = -a * ratio, -a * np.clip(ratio, 1.0 - low, 1.0 + high)
    loss = np.maximum(plain, clipped)
    slope = np.where(plain >= clipped, plain, 0.0)
    bounded = np.zeros_like(m)
    if dual is not None:
        over = (a < 0) & (loss > -a * dual)
        bounded = over.astype(np.float64)
        loss, slope = np.where(over, -a * dual, loss), np.where(over, 0.0, slope)
    weights = aggregation_weights(m, aggregation)
    metrics = {
        "clipfrac": masked_mean(clipped > plain, m),
        "clipfrac_lower": masked_mean(bounded, m),
        "ppo_kl": masked_mean(old - log_prob, m),
    }
    return Objective(float((weights * loss).sum()), weights * slope, metrics)


def gspo(
    log_prob: npt.ArrayLike,
    old: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    low: float = 3e-4,
    high: float = 4e-4,
) -> Objective:
    """GSPO with one ratio per row, its gradient spread over the row's tokens (token level).

    ::

        s   = exp(min(mean over the row of (log_prob - old), 10))
        s_k = s * exp(log_prob_k - stopgrad(log_prob_k))
        l_k = max(-A_k s_k, -A_k clip(s_k, 1 - low, 1 + high))        mean of row means

    Tokens of one row may have different advantages, which the ratio of the row alone would average
    away.

    Source: GSPO (arXiv 2507.18071), Sec. 4.3. Arguments, errors and metrics as in ``ppo_clip``.
    """
    m, log_prob, old, a = active(mask, log_prob, old, advantages)
    tokens = np.maximum(m.sum(axis=1, keepdims=True), 1.0)
    mean = ((log_prob - old) * m).sum(axis=1, keepdims=True) / tokens
    ratio = np.exp(np.minimum(mean, 10.0)) * np.ones_like(m)
    plain, clipped = -a * ratio, -a * np.clip(ratio, 1.0 - low, 1.0 + high)
    slope = np.where((plain >= clipped) & (mean <= 10.0), plain, 0.0)
    weights = aggregation_weights(m, "seq-mean-token-mean")
    metrics = {
        "clipfrac": masked_mean(clipped > plain, m),
        "clipfrac_lower": 0.0,
        "ppo_kl": masked_mean(old - log_prob, m),
    }
    loss = float((weights * np.maximum(plain, clipped)).sum())
    return Objective(loss, weights * slope, metrics)


def kl_estimators(log_prob: npt.ArrayLike, reference: npt.ArrayLike) -> dict[str, Array]:
    """Per-token estimators of KL(policy || reference) on tokens that the policy sampled::

        d = log_prob - reference
        k1 = d      abs = |d|      k2 = d^2 / 2      k3 = exp(-d) + d - 1, clamped to [-10, 10]

    Source: Schulman, "Approximating KL divergence". k3 is never negative and has low variance.

    Raises:
        DataError: shapes differ.
    """
    log_prob = np.asarray(log_prob, dtype=np.float64)
    reference = np.asarray(reference, dtype=np.float64)
    if log_prob.shape != reference.shape:
        raise DataError(f"log_prob {log_prob.shape} and reference {reference.shape} differ")
    d = log_prob - reference
    k3 = np.clip(np.exp(np.clip(-d, -20.0, 20.0)) + d - 1.0, -10.0, 10.0)
    return {"k1": d, "abs": np.abs(d), "k2": 0.5 * d**2, "k3": k3}


def masked_mean(values: npt.ArrayLike, mask: npt.ArrayLike) -> float:
    """``sum(values * mask) / (sum(mask) + 1e-8)``; 0 without active tokens."""
    mask = np.asarray(mask, dtype=np.float64)
    return float((np.asarray(values, dtype=np.float64) * mask).sum() / (mask.sum() + 1e-8))


def active(mask: npt.ArrayLike, *arrays: npt.ArrayLike) -> list[Array]:
    """The mask and the arrays with 0 at padding, all float64 of one shape.

    Raises:
        DataError: shapes differ or an active value is not finite.
    """
    m = np.asarray(mask, dtype=np.float64)
    cleaned = [m]
    for array in arrays:
        one = np.asarray(array, dtype=np.float64)
        if one.shape != m.shape:
            raise DataError(f"expected shape {m.shape} like the mask, got {one.shape}")
        one = np.where(m > 0, one, 0.0)
        if not np.isfinite(one).all():
            raise DataError("an active token has a value that is not finite")
        cleaned.append(one)
    return cleaned
