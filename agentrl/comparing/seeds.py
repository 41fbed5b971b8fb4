"""Intervals over seeds: pure functions of a few numbers.

Student's t, not a bootstrap: of three to five seeds a percentile bootstrap cannot leave the range
of what was seen, and covers far less than it says. t assumes that the mean over seeds is about
normal, and pays for not knowing the spread with a wide interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from agentrl.core.errors import DataError

__all__ = ["SeedEstimate", "difference_over_seeds", "mean_over_seeds", "t_quantile"]

DIGITS = 1e-12  # relative width at which the search for a quantile ends


@dataclass(frozen=True, slots=True)
class SeedEstimate:
    """A mean over seeds with its interval.

    Attributes:
        value: The mean. seeds: of how many.
        low: Lower end, ``high`` the upper; ``None`` for one seed, which says nothing of others.
        method: How the interval was made.
    """

    value: float
    low: float | None
    high: float | None
    seeds: int
    method: str


def t_quantile(confidence: float, freedom: int) -> float:
    """The t below which ``|T|`` of Student's distribution stays with that probability.

    With theta = atan(t / sqrt(nu)), the probability is, for odd nu::

        2/pi * (theta + sin * (cos + 2/3 cos^3 + ... + 2*4*..*(nu-3) / (3*5*..*(nu-2)) cos^(nu-2)))

    and for even nu::

        sin * (1 + 1/2 cos^2 + ... + 1*3*..*(nu-3) / (2*4*..*(nu-2)) cos^(nu-2))

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4. Solved by halving.

    Args:
        confidence: Strictly between 0 and 1.
        freedom: Degrees of freedom nu, at least 1.

    Raises:
        DataError: an argument is out of its range.
    """
    if not 0 < confidence < 1 or freedom < 1:
        raise DataError(
            f"t_quantile: got confidence={confidence} and {freedom} degrees of freedom; expected a "
            "confidence between 0 and 1 and at least one degree"
        )
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > DIGITS * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """Probability that ``|T| <= t``."""
    theta = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    if freedom == 1:
        return 2 * theta / math.pi
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term
    for power in range(2 + odd, freedom - 1, 2):
        term *= (power - 1) / power * cosine * cosine
        total += term
    return 2 / math.pi * (theta + sine * total) if odd else sine * total


def mean_over_seeds(
    values: Sequence[float],
    *,
    confidence: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> SeedEstimate:
    """Mean of one value a seed, with Student's t interval.

    ::

        mean +- t(confidence, n - 1) * s / sqrt(n),    s the sample standard deviation

    Args:
        values: One number a seed.
        confidence: Coverage aimed at.
        bounds: Least and greatest value possible; the interval is cut to them.

    Raises:
        DataError: no values, or one that is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise DataError(f"mean_over_seeds: expected finite numbers, got {list(values)}")
    mean, count = fmean(values), len(values)
    if count == 1:
        return SeedEstimate(mean, None, None, 1, "one seed: no interval over seeds")
    half = t_quantile(confidence, count - 1) * stdev(values) / math.sqrt(count)
    low, high = _cut(mean - half, mean + half, bounds)
    return SeedEstimate(mean, low, high, count, f"Student's t over {count} seeds")


def difference_over_seeds(
    before: Sequence[float], after: Sequence[float], *, paired: bool, confidence: float = 0.95
) -> SeedEstimate | None:
    """Mean of ``after`` less mean of ``before`` over seeds; ``None`` if a side has only one.

    Paired: t over the differences of one seed each. Otherwise Welch's t, which lets the spreads
    differ::

        d +- t(confidence, nu) * sqrt(v1 + v2),    v = s^2 / n,
        nu = (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1)), rounded down

    Source: Welch, Biometrika 34 (1947).

    Args:
        before: One number a seed. after: likewise; if ``paired``, of the same seeds in order.
        paired: Whether they are of the same seeds.
        confidence: Coverage aimed at.
    """
    if min(len(before), len(after)) < 2:
        return None
    if paired:
        both = zip(before, after, strict=True)
        return mean_over_seeds([b - a for a, b in both], confidence=confidence, bounds=(-1.0, 1.0))
    difference = fmean(after) - fmean(before)
    one, other = stdev(before) ** 2 / len(before), stdev(after) ** 2 / len(after)
    spread = one + other
    if spread == 0:
        nu = len(before) + len(after) - 2
    else:
        nu = int(spread**2 / (one**2 / (len(before) - 1) + other**2 / (len(after) - 1)))
    half = t_quantile(confidence, max(nu, 1)) * math.sqrt(spread)
    low, high = _cut(difference - half, difference + half, (-1.0, 1.0))
    words = f"Welch's t over {len(before)} and {len(after)} seeds"
    return SeedEstimate(difference, low, high, min(len(before), len(after)), words)


def _cut(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    return (low, high) if bounds is None else (max(low, bounds[0]), min(high, bounds[1]))
