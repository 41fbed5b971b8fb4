"""Final scores of groups, paired task by task on the panel that all have played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from agentrl.comparing.grouping import RunGroup
from agentrl.comparing.runs import ComparedRun, PanelScore
from agentrl.comparing.seeds import SeedEstimate, difference_over_seeds, mean_over_seeds
from agentrl.core.errors import DataError
from agentrl.evaluate.statistics import PairedDifference, paired_difference

__all__ = ["GroupScore", "Pair", "compare_scores", "verdict"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GroupScore:
    """Success of a group's finished policies.

    Attributes:
        group: Its label. how: ``sampled`` or ``greedy``.
        estimate: Mean over its finished runs. For one run the interval is that of its panel.
        method: How the interval was made.
        runs: Runs that are finished, of all in the group.
    """

    group: str
    how: str
    estimate: SeedEstimate
    runs: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A group against the first.

    Attributes:
        how: ``sampled`` or ``greedy``. first: label of the one. other: of the other.
        over_tasks: Other less first, task by task (each the mean over seeds and trials), with an
            interval over tasks and an exact sign test: for these policies, on other such tasks.
        over_seeds: The difference of means, over seeds: for other seeds, on these tasks. ``None``:
            a side has one seed, and nothing is known of others.
        verdict: ``better``, ``worse`` or ``no difference is shown``.
    """

    how: str
    first: str
    other: str
    over_tasks: PairedDifference
    over_seeds: SeedEstimate | None
    verdict: str


def compare_scores(groups: Sequence[RunGroup]) -> tuple[tuple[GroupScore, ...], tuple[Pair, ...]]:
    """Scores of all groups, and every group against the first.

    A group of which no run is finished has none.

    Raises:
        DataError: the panels differ; the message says in what.
    """
    scores: list[GroupScore] = []
    pairs: list[Pair] = []
    for how in ("sampled", "greedy"):
        finished = [(group, runs) for group in groups if (runs := _with_score(group, how))]
        if not finished:
            continue
        _refuse_other_panels([run for _, runs in finished for run in runs], how)
        scores += [_group_score(group, runs, how) for group, runs in finished]
        (first, ours), *others = finished
        if first is groups[0]:
            pairs += [_pair(first, ours, other, theirs, how) for other, theirs in others]
    return tuple(scores), tuple(pairs)


def _with_score(group: RunGroup, how: str) -> list[ComparedRun]:
    return [run for run in group.runs if how in run.scores]


def _group_score(group: RunGroup, runs: Sequence[ComparedRun], how: str) -> GroupScore:
    estimate = mean_over_seeds(
        [run.scores[how].success for run in runs], confidence=CONFIDENCE, bounds=(0.0, 1.0)
    )
    if len(runs) == 1:
        report = runs[0].scores[how].report
        method = f"one seed: {report.method} over tasks"
        estimate = SeedEstimate(report.success, report.low, report.high, 1, method)
    return GroupScore(group.label, how, estimate, (len(runs), len(group.runs)))


def _pair(
    first: RunGroup,
    ours: Sequence[ComparedRun],
    other: RunGroup,
    theirs: Sequence[ComparedRun],
    how: str,
) -> Pair:
    over_tasks = paired_difference(
        _pooled(ours, how), _pooled(theirs, how), seed=0, confidence=CONFIDENCE
    )
    same_seeds = [run.seed for run in ours] == [run.seed for run in theirs]
    over_seeds = difference_over_seeds(
        [run.scores[how].success for run in ours],
        [run.scores[how].success for run in theirs],
        paired=same_seeds,
        confidence=CONFIDENCE,
    )
    return Pair(
        how, first.label, other.label, over_tasks, over_seeds, verdict(over_tasks, over_seeds)
    )


def _pooled(runs: Sequence[ComparedRun], how: str) -> dict[str, list[float]]:
    """Task id to the success of each run, the mean of its trials: every seed counts equally."""
    pooled: dict[str, list[float]] = {}
    for run in runs:
        for task, trials in run.scores[how].by_task.items():
            pooled.setdefault(task, []).extend([fmean(trials)] if trials else [])
    return pooled


def verdict(over_tasks: PairedDifference, over_seeds: SeedEstimate | None) -> str:
    """Better or worse only where everything that is known agrees.

    The interval over tasks leaves out 0, the exact sign test agrees, and the interval over seeds,
    where there is one, leaves out 0 on the same side.
    """
    if over_tasks.p_value > 1 - CONFIDENCE:
        return "no difference is shown"
    low, high = over_tasks.low, over_tasks.high
    if over_seeds is not None and over_seeds.low is not None and over_seeds.high is not None:
        low, high = min(low, over_seeds.low), max(high, over_seeds.high)
    if low > 0:
        return "better"
    return "worse" if high < 0 else "no difference is shown"


def _refuse_other_panels(runs: Sequence[ComparedRun], how: str) -> None:
    first = runs[0]
    for run in runs[1:]:
        differs = _difference(first.scores[how], run.scores[how])
        if differs:
            raise DataError(
                f"'{first.name}' and '{run.name}' were tested on different panels ({how}), so they "
                f"cannot be paired: {differs}. Give runs with one environment, one "
                "evaluation.tasks and one evaluation.trials"
            )


def _difference(one: PanelScore, other: PanelScore) -> str:
    """In what two panels differ; empty if in nothing."""
    words = []
    for name, mine, theirs in (
        ("first", one.contents, other.contents),
        ("second", other.contents, one.contents),
    ):
        only = sorted(mine.keys() - theirs.keys())
        if only:
            words.append(f"{len(only):,} tasks only in the {name} (such as '{only[0]}')")
    shared = one.contents.keys() & other.contents.keys()
    changed = sorted(task for task in shared if one.contents[task] != other.contents[task])
    if changed:
        words.append(f"{len(changed):,} tasks have other contents (such as '{changed[0]}')")
    if one.report.trials != other.report.trials:
        words.append(f"{one.report.trials} trials a task against {other.report.trials}")
    return ", ".join(words)
