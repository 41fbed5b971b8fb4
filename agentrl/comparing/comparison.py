"""Runs compared: curves at equal budgets, final scores paired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.comparing.curves import Curves, compare_curves
from agentrl.comparing.grouping import RunGroup, group_runs
from agentrl.comparing.runs import ComparedRun, read_run
from agentrl.comparing.scores import GroupScore, Pair, compare_scores
from agentrl.core.errors import ConfigError

__all__ = ["Comparison", "compare_runs"]

ALIKE = 0.01  # budgets this close are equal: an episode fails here and there


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison came to.

    Attributes:
        groups: Runs by configuration, the first being what the others are compared with.
        curves: At equal budgets. scores: final ones. pairs: groups against the first.
        notes: What a reader has to know, in words.
    """

    groups: tuple[RunGroup, ...]
    curves: Curves
    scores: tuple[GroupScore, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "groups": [_group_data(group) for group in self.groups],
            "measure": self.curves.measure,
            "curves": [
                {
                    "axis": one.axis,
                    "start": one.start,
                    "budget": one.budget,
                    "limited_by": one.limited_by,
                    "budgets": one.budgets,
                    "groups": [
                        {"group": group.label, "estimates": estimates}
                        for group, estimates in zip(self.groups, one.estimates, strict=True)
                    ],
                }
                for one in self.curves.axes
            ],
            "scores": self.scores,
            "pairs": self.pairs,
            "notes": self.notes,
        }


def _group_data(group: RunGroup) -> dict[str, Any]:
    return {
        "label": group.label,
        "settings": group.settings,
        "runs": [
            {
                "run": run.name,
                "seed": run.seed,
                "finished": run.finished,
                **dict(zip(("episodes", "tokens", "wall_s"), spent(run), strict=True)),
                "success": {how: score.success for how, score in run.scores.items()},
            }
            for run in group.runs
        ],
    }


def spent(run: ComparedRun) -> tuple[int, int, float]:
    """Training episodes, sampled tokens and seconds until the last iteration of a run."""
    if not run.curve:
        return 0, 0, 0.0
    last = run.curve[-1]
    return last.episodes, last.tokens, last.wall_s


def compare_runs(paths: Sequence[Path]) -> Comparison:
    """Compare runs, finished or not; the group of the first is what others are compared with.

    Raises:
        ConfigError: fewer than two runs, no run at a path, one run (or one configuration and seed)
            twice.
        DataError: panels differ.
        StoreError: a run has no store yet, or a damaged one.
    """
    if len(paths) < 2:
        raise ConfigError(f"a comparison needs at least two runs, got {len(paths)}")
    twice = [path for path in paths if [one.resolve() for one in paths].count(path.resolve()) > 1]
    if twice:
        raise ConfigError(f"'{twice[0]}' is named twice: give every run once")
    groups = group_runs([read_run(path) for path in paths])
    curves = compare_curves(groups)
    scores, pairs = compare_scores(groups)
    return Comparison(groups, curves, scores, pairs, tuple(_notes(groups, curves, pairs)))


def _notes(groups: Sequence[RunGroup], curves: Curves, pairs: Sequence[Pair]) -> Iterator[str]:
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        if not run.finished:
            words = "its report is missing" if run.scores else "it has no final score"
            yield f"{run.name} is not finished: {words}, and its curve goes as far as it has come"
    for name in curves.left_out:
        yield f"{name} has no {curves.measure} success on record and is not among the curves"
    for axis in curves.axes:
        if not axis.budgets:
            yield f"the curves have no stretch of {axis.axis} in common"
    alone = [group.label for group in groups if len(group.runs) == 1]
    if alone:
        yield (
            f"one seed says nothing of other seeds: {'; '.join(alone)}. Run the same file with "
            "other seeds (seed=2 run_dir=...)"
        )
    if pairs:
        yield from _unequal_budgets(groups)
    elif len(groups) > 1:
        yield (
            "no scores are paired: the first group and another need a finished run each; its first "
            f"run is {groups[0].runs[0].name}"
        )


def _unequal_budgets(groups: Sequence[RunGroup]) -> Iterator[str]:
    episodes = {
        group.label: max(spent(run)[0] for run in group.runs if run.scores)
        for group in groups
        if any(run.scores for run in group.runs)
    }
    if max(episodes.values()) > (1 + ALIKE) * min(episodes.values()):
        words = ", ".join(f"{label} {count:,}" for label, count in episodes.items())
        yield (
            f"final scores are after unequal numbers of episodes ({words}): at equal budgets only "
            "the curves compare"
        )
