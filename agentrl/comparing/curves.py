"""Success at equal budgets: of episodes, of sampled tokens, of wall time.

Between two measurements of a run success is taken to lie on the line between them; outside of what
was measured it is not known. So runs are compared from where all have begun to be measured up to
the budget that all have reached.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.comparing.grouping import RunGroup
from agentrl.comparing.runs import ComparedRun
from agentrl.comparing.seeds import SeedEstimate, mean_over_seeds
from agentrl.core.errors import DataError

__all__ = ["AXES", "AxisCurves", "Curves", "Measure", "at_budget", "compare_curves", "series"]

Axis = Literal["episodes", "tokens", "wall_s"]
Measure = Literal["validation", "train"]
AXES: tuple[Axis, ...] = ("episodes", "tokens", "wall_s")
POINTS = 41  # of a curve, its ends included; 40 has quarters and tenths
Series = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class AxisCurves:
    """The curves of all groups over one axis.

    Attributes:
        start: From where on all runs have been measured. budget: what all have reached.
        limited_by: The run that sets the budget, where others went on for longer.
        budgets: Evenly spaced from start to budget; empty if there is no stretch in common.
        estimates: For each group, at each budget, the mean over its seeds.
    """

    axis: Axis
    start: float
    budget: float
    limited_by: str
    budgets: tuple[float, ...]
    estimates: tuple[tuple[SeedEstimate, ...], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves over all axes.

    Attributes:
        measure: ``validation`` success, or where a run has none ``train`` success.
        left_out: Runs without a measurement.
    """

    measure: Measure
    axes: tuple[AxisCurves, ...]
    left_out: tuple[str, ...]


def series(run: ComparedRun, axis: Axis, measure: Measure) -> Series:
    """``(budget, success)`` of every measurement of a run, in order."""
    found = []
    for point in run.curve:
        validated = None if point.validation is None else point.validation.success
        success = validated if measure == "validation" else point.train_success
        if success is not None:
            found.append((float(getattr(point, axis)), success))
    return tuple(found)


def at_budget(measured: Series, budget: float) -> float | None:
    """Success at a budget, on the line between two measurements; ``None`` outside of them."""
    places = [place for place, _ in measured]
    after = bisect_left(places, budget)
    if after < len(places) and places[after] == budget:
        return measured[after][1]
    if after in (0, len(places)):
        return None
    (x0, y0), (x1, y1) = measured[after - 1], measured[after]
    return y0 + (y1 - y0) * (budget - x0) / (x1 - x0)


def compare_curves(groups: Sequence[RunGroup]) -> Curves:
    """Curves of the groups over what all their runs have been measured on.

    Raises:
        DataError: the validations were played on different tasks.
    """
    runs = [run for group in groups for run in group.runs if run.curve]
    measure: Measure = "validation"
    if not runs or any(not series(run, "episodes", "validation") for run in runs):
        measure = "train"
    else:
        _refuse_other_panels(runs)
    measured = {run.name for run in runs if series(run, "episodes", measure)}
    left_out = [run.name for group in groups for run in group.runs if run.name not in measured]
    axes = tuple(_axis(groups, measured, axis, measure) for axis in AXES) if measured else ()
    return Curves(measure, axes, tuple(left_out))


def _refuse_other_panels(runs: Sequence[ComparedRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.validation != first.validation:
            raise DataError(
                f"the validations of '{first.name}' and '{run.name}' were played on different "
                "tasks, so their curves cannot be compared; give runs with one environment and "
                "one evaluation.validation_tasks"
            )


def _axis(
    groups: Sequence[RunGroup], measured: set[str], axis: Axis, measure: Measure
) -> AxisCurves:
    found = {
        run.name: series(run, axis, measure)
        for group in groups
        for run in group.runs
        if run.name in measured
    }
    start = max(one[0][0] for one in found.values())
    ends = {name: one[-1][0] for name, one in found.items()}
    budget = min(ends.values())
    shortest = min(ends, key=lambda name: ends[name])
    limited_by = shortest if max(ends.values()) > budget else ""
    budgets: tuple[float, ...] = ()
    if start <= budget:
        step = (budget - start) / (POINTS - 1)
        # The ends are exactly where something was measured: rounding must not leave them.
        inner = (start + step * number for number in range(1, POINTS - 1))
        budgets = (start, *inner, budget) if start < budget else (start,)
    estimates = tuple(
        tuple(
            mean_over_seeds(values, bounds=(0.0, 1.0))
            for place in budgets
            if (values := _values(group, found, place))
        )
        for group in groups
    )
    return AxisCurves(axis, start, budget, limited_by, budgets, estimates)


def _values(group: RunGroup, found: dict[str, Series], budget: float) -> list[float]:
    values = [at_budget(found[run.name], budget) for run in group.runs if run.name in found]
    return [one for one in values if one is not None]
