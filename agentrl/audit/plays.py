"""Every training episode was played once, and no group of an iteration is missing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from agentrl.audit.findings import Finding, judged
from agentrl.audit.record import RunRecord
from agentrl.audit.splits import role_of
from agentrl.audit.versions import staleness_bound
from agentrl.config import ReinforceStage
from agentrl.store.records import TrajectorySummary

__all__ = ["attempt_faults", "check_plays"]

CLAIM = "every training episode was played once, and none of an iteration is missing"
PLACE = re.compile(r"(stage\d+)-(\d+)-(\d+)-")


def attempt_faults(where: str, attempts: Sequence[TrajectorySummary]) -> Iterator[str]:
    """What is wrong with one episode: its attempts count from 0, and the machine ended all but one.

    Args:
        where: The episode, in words.
        attempts: In any order.
    """
    ordered = sorted(attempts, key=lambda one: one.attempt)
    finished = [one.id for one in ordered if one.outcome != "infra"]
    if len(finished) > 1:
        yield f"{where} was played {len(finished)} times: {', '.join(finished)}"
        return
    if len({one.group_id for one in ordered}) > 1:
        yield f"{where} was played in several groups: {', '.join(one.id for one in ordered)}"
    elif [one.attempt for one in ordered] != list(range(len(ordered))):
        numbers = ", ".join(str(one.attempt) for one in ordered)
        yield f"{where} has the attempts {numbers}, expected 0 to {len(ordered) - 1}"
    elif finished and finished[0] != ordered[-1].id:
        yield f"{where} was played again after {finished[0]} had finished"


def check_plays(record: RunRecord) -> Finding | None:
    """Of all training episodes; ``None``: the run played none.

    Where the run file alone says what an iteration plays (synchronous, without strategies), every
    group of every iteration that is over must be there, whole.
    """
    episodes: dict[tuple[str, int], list[TrajectorySummary]] = defaultdict(list)
    for line in record.lines.values():
        if role_of(line.purpose) == "train":
            episodes[line.group_id, line.trial].append(line)
    if not episodes:
        return None
    offenders: list[str] = []
    for (group, trial), attempts in episodes.items():
        offenders += attempt_faults(f"group '{group}', trial {trial}", attempts)
    sizes: dict[str, int] = defaultdict(int)
    for group, _ in episodes:
        sizes[group] += 1
    over = record.store.events("iteration")
    for event in over:
        offenders += _missing(record, event.data["stage"], event.data["iteration"], sizes)
    broken = sum(attempts[-1].outcome == "infra" for attempts in episodes.values())
    counts = {
        "iterations": len(over),
        "groups": len(sizes),
        "episodes": len(episodes),
        "attempts": sum(map(len, episodes.values())),
        "infra failures": broken,
    }
    words = (
        f"{len(episodes):,} episodes in {len(sizes):,} groups, {len(over):,} iterations over; "
        f"{counts['attempts']:,} attempts, {broken:,} episodes ended in an infra failure"
    )
    return judged("plays", CLAIM, words, offenders, counts)


def _missing(record: RunRecord, name: str, iteration: int, sizes: dict[str, int]) -> Iterator[str]:
    """Groups of an iteration that is over which were not played, or not whole."""
    number = int(name.removeprefix("stage"))
    stage = record.config.stages[number]
    exact = isinstance(stage, ReinforceStage) and not stage.strategies
    if not exact or staleness_bound(record.config):
        return
    assert isinstance(stage, ReinforceStage)
    found: dict[int, int] = {}
    for group, size in sizes.items():
        place = PLACE.match(group)
        if place and (place[1], int(place[2])) == (name, iteration):
            found[int(place[3])] = size
    for place_number in range(stage.tasks_per_iteration):
        size = found.get(place_number, 0)
        if size != stage.group_size:
            yield (
                f"{name}, iteration {iteration}, place {place_number}: {size} of "
                f"{stage.group_size} episodes were played"
            )
