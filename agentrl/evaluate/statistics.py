"""Intervals, paired differences and pass rates: pure functions of outcomes.

The unit of resampling is the task, never the episode: episodes of one task are alike, and intervals
that treat them as independent are too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Literal

from agentrl.core.errors import DataError

__all__ = [
    "Estimate",
    "PairedDifference",
    "PassRate",
    "bootstrap_by_task",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "pass_rates",
    "sign_test",
    "wilson_interval",
]

RESAMPLES = 10_000
CHUNK = 1_000  # resamples drawn at once: bounds memory, and is part of what a seed means
EQUAL = 1e-12  # means this close are equal: differences of shares carry rounding
Convention = Literal["exclude", "fail"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval, and how the interval was made."""

    value: float
    low: float
    high: float
    method: str


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """After minus before on the same tasks.

    Attributes:
        difference: Mean over tasks of (mean after - mean before).
        low: Lower end of its interval, ``high`` the upper.
        tasks: Tasks compared.
        improved: Tasks whose mean rose, ``worsened`` those whose mean fell; the rest are tied.
        p_value: Two-sided exact sign test of improved against worsened. With one trial a task this
            is McNemar's exact test.
        left_out: Tasks that had no scored episode on one side.
    """

    difference: float
    low: float
    high: float
    tasks: int
    improved: int
    worsened: int
    p_value: float
    method: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class PassRate:
    """pass@k or pass^k of a panel under one convention for infra failures.

    Attributes:
        statistic: ``pass@k`` (one of k succeeds) or ``pass^k`` (all k succeed).
        convention: ``exclude``: infra failures are no trials; a task with fewer than k trials left
            is left out of this k only. ``fail``: they count as failed trials.
        value: Mean over tasks; ``None`` if no task has k trials.
        tasks: Tasks in the mean. left_out: tasks that had too few trials.
    """

    statistic: Literal["pass@k", "pass^k"]
    k: int
    convention: Convention
    value: float | None
    tasks: int
    left_out: int


def wilson_interval(
    successes: int, trials: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Wilson score interval of a share.

    With p = successes / trials, n = trials and z the normal quantile of (1 + confidence) / 2::

        centre = (p + z^2 / 2n) / (1 + z^2 / n)
        half   = z / (1 + z^2 / n) * sqrt(p (1 - p) / n + z^2 / 4n^2)

    It keeps its coverage near 0 and 1, where the usual p +- z * s does not.
    Source: Wilson, JASA 22 (1927).

    Returns:
        ``(low, high)`` within [0, 1].

    Raises:
        DataError: no trials, or successes outside 0..trials.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise DataError(
            f"wilson_interval: got {successes} successes of {trials} trials; expected at least one "
            "trial and successes between 0 and trials"
        )
    z = NormalDist().inv_cdf((1 + _checked_confidence(confidence)) / 2)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


def bootstrap_by_task(
    values: Sequence[Sequence[float]],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Mean over tasks of the mean over trials, with a percentile bootstrap over tasks.

    Tasks are drawn with replacement, each with all its trials, and count equally however many
    trials they have.

    If every task has the same mean, the bootstrap would claim certainty. With ``bounds`` the
    interval is then what n equal tasks allow: a share 1 - w of unseen tasks may lie at a bound,
    where w is the lower Wilson limit of n successes in n (for a mean of 0 or 1 this is Wilson's
    interval over tasks). Without ``bounds`` it has width 0 and the method says so.

    Args:
        values: One sequence of numbers per task, each with at least one.
        seed: Seed of the resampling; equal seeds give equal intervals.
        confidence: Coverage aimed at.
        resamples: Number of resamples.
        bounds: Least and greatest value a task can have.

    Raises:
        DataError: no tasks, a task without values, a value that is not finite, a bad option.
    """
    import numpy as np

    _checked_confidence(confidence)
    if not values or any(not one for one in values) or resamples < 1:
        raise DataError(
            f"bootstrap_by_task: got {len(values)} tasks and resamples={resamples}; expected at "
            "least one task, a value for every task, and one resample"
        )
    means = np.array([fmean(one) for one in values])
    if not np.isfinite(means).all():
        raise DataError("bootstrap_by_task: a task has a value that is not finite")
    value = float(means.mean())
    if np.ptp(means) <= EQUAL * max(1.0, abs(value)):
        return _all_equal(value, len(means), confidence, bounds)
    rng = np.random.default_rng(seed)
    drawn = [
        means[rng.integers(len(means), size=(min(CHUNK, resamples - done), len(means)))].mean(
            axis=1
        )
        for done in range(0, resamples, CHUNK)
    ]
    low, high = np.quantile(np.concatenate(drawn), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high), f"bootstrap by task, {resamples} resamples")


def _all_equal(
    value: float, tasks: int, confidence: float, bounds: tuple[float, float] | None
) -> Estimate:
    if bounds is None:
        return Estimate(value, value, value, "all tasks equal: no interval can be drawn from them")
    unseen = 1 - wilson_interval(tasks, tasks, confidence=confidence)[0]
    low, high = value - unseen * (value - bounds[0]), value + unseen * (bounds[1] - value)
    return Estimate(value, low, high, "all tasks equal: Wilson's limit on unseen tasks")


def sign_test(improved: int, worsened: int) -> float:
    """Two-sided exact p-value that improvements and losses are equally likely.

    ::

        n = improved + worsened,  p = min(1, 2 * sum_{i <= min(improved, worsened)} C(n, i) / 2^n)

    Ties carry no information. 1 if there is nothing but ties. On one trial a task before and after
    this is McNemar's exact test. Source: McNemar, Psychometrika 12 (1947).

    Raises:
        DataError: a negative count.
    """
    if min(improved, worsened) < 0:
        raise DataError(f"sign_test: counts must be 0 or more, got {improved} and {worsened}")
    pairs = improved + worsened
    tail = sum(math.comb(pairs, count) for count in range(min(improved, worsened) + 1))
    return min(1.0, float(2 * tail / 2**pairs))


def paired_difference(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] | None = (-1.0, 1.0),
) -> PairedDifference:
    """How much better the same tasks went, with a bootstrap over tasks and a sign test.

    Args:
        before: Task id to the outcome of each scored trial (0 or 1 for success). after: likewise.
            The ids must be the same; a task that is empty on either side is left out and counted.
        seed: Seed of the resampling.
        confidence: Coverage aimed at.
        resamples: Number of resamples.
        bounds: Least and greatest difference a task can have, see ``bootstrap_by_task``.

    Raises:
        DataError: the tasks differ, or none was scored on both sides.
    """
    if before.keys() != after.keys():
        only = sorted(before.keys() ^ after.keys())
        raise DataError(
            f"paired_difference: {len(only)} tasks are on one side only (first: '{only[0]}'); "
            "measure before and after on the same panel"
        )
    shared = sorted(task for task in before if before[task] and after[task])
    if not shared:
        raise DataError("paired_difference: no task was scored on both sides; nothing to compare")
    differences = [fmean(after[task]) - fmean(before[task]) for task in shared]
    estimate = bootstrap_by_task(
        [[one] for one in differences],
        seed=seed,
        confidence=confidence,
        resamples=resamples,
        bounds=bounds,
    )
    improved = sum(one > 0 for one in differences)
    worsened = sum(one < 0 for one in differences)
    return PairedDifference(
        difference=estimate.value,
        low=estimate.low,
        high=estimate.high,
        tasks=len(shared),
        improved=improved,
        worsened=worsened,
        p_value=sign_test(improved, worsened),
        method=estimate.method,
        left_out=len(before) - len(shared),
    )


def pass_at_k(trials: int, successes: int, k: int) -> float | None:
    """Chance that at least one of k trials drawn without replacement succeeds.

    ::

        1 - C(n - c, k) / C(n, k)

    Unbiased for the chance that one of k new trials succeeds; ``None`` if k > trials.
    Source: Chen et al. 2021, arXiv 2107.03374.

    Raises:
        DataError: k < 1, or successes outside 0..trials.
    """
    _check_counts("pass_at_k", trials, successes, k)
    if k > trials:
        return None
    return 1 - math.comb(trials - successes, k) / math.comb(trials, k)


def pass_hat_k(trials: int, successes: int, k: int) -> float | None:
    """Chance that all of k trials drawn without replacement succeed (pass^k, reliability).

    ::

        C(c, k) / C(n, k)

    ``None`` if k > trials. Source: tau-bench, arXiv 2406.12045.

    Raises:
        DataError: k < 1, or successes outside 0..trials.
    """
    _check_counts("pass_hat_k", trials, successes, k)
    if k > trials:
        return None
    return math.comb(successes, k) / math.comb(trials, k)


def pass_rates(
    outcomes: Mapping[str, Sequence[bool | None]], ks: Sequence[int]
) -> tuple[PassRate, ...]:
    """pass@k and pass^k for every k under both conventions for infra failures, all labelled.

    Args:
        outcomes: Task id to the outcome of each trial; ``None`` is an infra failure.
        ks: Which k.
    """
    return tuple(
        _pass_rate(outcomes, statistic, k, convention)
        for statistic in ("pass@k", "pass^k")
        for k in ks
        for convention in ("exclude", "fail")
    )


def _pass_rate(
    outcomes: Mapping[str, Sequence[bool | None]], statistic: Any, k: int, convention: Any
) -> PassRate:
    function = pass_at_k if statistic == "pass@k" else pass_hat_k
    values = []
    for trials in outcomes.values():
        scored = [one for one in trials if one is not None]
        count = len(scored) if convention == "exclude" else len(trials)
        value = function(count, sum(scored), k)
        if value is not None:
            values.append(value)
    return PassRate(
        statistic=statistic,
        k=k,
        convention=convention,
        value=fmean(values) if values else None,
        tasks=len(values),
        left_out=len(outcomes) - len(values),
    )


def _check_counts(where: str, trials: int, successes: int, k: int) -> None:
    if k < 1 or not 0 <= successes <= trials:
        raise DataError(
            f"{where}: got k={k} and {successes} successes of {trials} trials; expected k >= 1 and "
            "successes between 0 and trials"
        )


def _checked_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise DataError(f"confidence must be strictly between 0 and 1, got {confidence}")
    return confidence
