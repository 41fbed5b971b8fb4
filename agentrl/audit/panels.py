"""Every evaluation task was played exactly once per trial, and success is what the episodes say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from agentrl.audit.findings import Finding, judged, unchecked
from agentrl.audit.listing import Listing, validates
from agentrl.audit.plays import attempt_faults
from agentrl.audit.record import RunRecord
from agentrl.audit.splits import role_of
from agentrl.config import RunConfig
from agentrl.store.records import TrajectorySummary

__all__ = ["Panel", "check_panel_plan", "check_panels", "planned_panels"]

CLAIM = "every evaluation task was played exactly once per trial"
PLAN = "every evaluation task will be played exactly once per trial"
EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Panel:
    """What an evaluation has to play.

    Attributes:
        purpose: Name of the evaluation.
        tasks: Ids; ``None``: not known here.
        size: How many tasks. trials: episodes of each.
    """

    purpose: str
    tasks: tuple[str, ...] | None
    size: int
    trials: int


def planned_panels(config: RunConfig, listing: Listing) -> list[Panel]:
    """The evaluations that a run makes once each; of validations one stands for all."""
    settings = config.evaluation
    names = ["before", "after"] if config.stages else ["before"]
    panels = []
    for name in names:
        panels.append(_panel(name, "test", settings.tasks, settings.trials, listing))
        if settings.greedy:
            panels.append(_panel(f"{name}/greedy", "test", settings.tasks, 1, listing))
    if validates(config):
        panels.append(_panel("validation", "validation", settings.validation_tasks, 1, listing))
    return panels


def _panel(purpose: str, role: str, size: int, trials: int, listing: Listing) -> Panel:
    tasks = listing.tasks.get(role)
    ids = None if tasks is None else tuple(task.id for task in tasks[:size])
    return Panel(purpose, ids, size, trials)


def check_panel_plan(config: RunConfig, listing: Listing) -> Finding:
    """The panels of a run file: large enough, and no task twice in one."""
    if listing.missing:
        return unchecked("panels", PLAN, listing.missing)
    panels = planned_panels(config, listing)
    offenders = []
    for panel in panels:
        tasks = panel.tasks or ()
        if len(tasks) < panel.size:
            offenders.append(
                f"'{panel.purpose}' wants {panel.size:,} tasks, and its split has {len(tasks):,}"
            )
        twice = sorted({one for one in tasks if tasks.count(one) > 1})
        offenders += [f"'{panel.purpose}' lists task '{one}' twice" for one in twice]
    words = [f"{one.purpose} {one.size:,} x {one.trials}" for one in panels]
    counts = {one.purpose: one.size * one.trials for one in panels}
    return judged("panels", PLAN, f"tasks x trials: {', '.join(words)}", offenders, counts)


def check_panels(record: RunRecord, listing: Listing) -> Finding:
    """Of every evaluation on record; in a finished run all that it had to make."""
    planned = {one.purpose: one for one in planned_panels(record.config, listing)}
    played: dict[str, list[TrajectorySummary]] = defaultdict(list)
    for line in record.lines.values():
        if role_of(line.purpose) in ("validation", "test"):
            played[line.purpose].append(line)
    reported: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for event in record.evaluations:
        reported[event.data["purpose"]].append(event.data)
    counts = {"evaluations": 0, "episodes": 0, "attempts": 0, "infra failures": 0, "unfinished": 0}
    offenders = list(_missing(record, planned, played))
    for purpose in dict.fromkeys((*played, *reported)):
        panel = planned.get("validation" if role_of(purpose) == "validation" else purpose)
        reports = reported.get(purpose, [])
        under_way = not reports and not record.finished
        counts["evaluations"] += not under_way
        counts["unfinished"] += under_way
        offenders += _once(purpose, panel, played.get(purpose, []), under_way, counts)
        offenders += _reports(purpose, reports, played.get(purpose, []))
    found = (
        f"{counts['evaluations']:,} evaluations of {counts['episodes']:,} episodes, in "
        f"{counts['attempts']:,} attempts; {counts['infra failures']:,} episodes ended in an infra "
        "failure"
    )
    if counts["unfinished"]:
        found += f"; {counts['unfinished']:,} evaluation under way, judged as far as it went"
    missing = ""
    if listing.missing:
        missing = f"which tasks the panels should hold is unknown, for {listing.missing}"
    return judged("panels", CLAIM, found, offenders, counts, missing=missing)


def _missing(
    record: RunRecord, planned: Mapping[str, Panel], played: Mapping[str, Sequence[object]]
) -> Iterator[str]:
    every = record.config.evaluation.every
    for event in record.iterations:
        stage, number = event.data["stage"], event.data["iteration"]
        purpose = f"validation/{stage}/{number}"
        if every and (number + 1) % every == 0 and purpose not in played:
            yield f"iteration {number} of {stage} is over, and '{purpose}' was never played"
    if not record.finished or record.command != "train":
        return
    for purpose in planned:
        if purpose != "validation" and purpose not in played:
            yield f"the run is finished, and its evaluation '{purpose}' was never played"


def _once(
    purpose: str,
    panel: Panel | None,
    lines: Sequence[TrajectorySummary],
    under_way: bool,
    counts: dict[str, int],
) -> Iterator[str]:
    """What was played too often, too seldom, or again although it had finished."""
    places: dict[tuple[str, int], list[TrajectorySummary]] = defaultdict(list)
    for line in lines:
        places[line.task_id, line.trial].append(line)
    counts["attempts"] += len(lines)
    counts["episodes"] += len(places)
    for (task, trial), attempts in places.items():
        counts["infra failures"] += attempts[-1].outcome == "infra"
        yield from attempt_faults(f"'{purpose}': task '{task}', trial {trial}", attempts)
    if panel is None:
        return
    trials = range(panel.trials)
    known = panel.tasks
    tasks = {task for task, _ in places}
    for task, trial in places:
        if (known is not None and task not in known) or trial not in trials:
            yield (
                f"'{purpose}': task '{task}', trial {trial} was played, and is not of its panel of "
                f"{panel.size:,} tasks x {panel.trials}"
            )
    if under_way:
        return
    if known is None and len(tasks) != panel.size:
        yield f"'{purpose}': {len(tasks):,} tasks were played, and its panel has {panel.size:,}"
    for task in sorted(tasks) if known is None else known:
        for trial in trials:
            if (task, trial) not in places:
                yield f"'{purpose}': task '{task}', trial {trial} was never played"


def _reports(
    purpose: str, reports: Sequence[Mapping[str, object]], lines: Sequence[TrajectorySummary]
) -> Iterator[str]:
    """The success that was reported is that of the episodes on record."""
    if len(reports) > 1:
        yield f"'{purpose}' was reported {len(reports)} times"
    if not reports or not lines:
        if reports:
            yield f"'{purpose}' was reported, and none of its episodes is on record"
        return
    by_task: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line.outcome != "infra":
            by_task[line.task_id].append(float(line.success is True))
    success = fmean(fmean(some) for some in by_task.values()) if by_task else float("nan")
    told = reports[-1]["success"]
    if not (isinstance(told, float | int) and abs(success - told) <= EQUAL):
        yield (
            f"'{purpose}' was reported with success {told}, and its {len(lines):,} attempts on "
            f"record give {success}"
        )
