"""Every training episode was played once, and no group of an iteration is missing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from agentrl.audit.findings import Finding, judged
from agentrl.audit.record import RunRecord
from agentrl.audit.splits import role_of
from agentrl.audit.versions import staleness_bound
from agentrl.config import ReinforceStage
from agentrl.rollout.taken import recorded_takes
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

    Of every iteration that is over each group must be there, whole: those that the run file names
    (synchronous), or that the iteration says it has taken (asynchronous). What strategies ask for
    follows from what was played before, so nothing is known to be missing there.
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
    sizes = Counter(group for group, _ in episodes)
    over: dict[str, list[int]] = defaultdict(list)
    for event in record.iterations:
        over[event.data["stage"]].append(event.data["iteration"])
    chosen = False
    for name, iterations in over.items():
        stage = record.config.stages[int(name.removeprefix("stage"))]
        assert isinstance(stage, ReinforceStage)
        if stage.strategies:
            chosen = True
        elif staleness_bound(record.config):
            offenders += _not_as_taken(record, name, stage.group_size, iterations, sizes)
        else:
            offenders += _not_as_planned(name, stage, iterations, sizes)
    counts = {
        "iterations": sum(map(len, over.values())),
        "groups": len(sizes),
        "episodes": len(episodes),
        "attempts": sum(map(len, episodes.values())),
        "infra failures": sum(some[-1].outcome == "infra" for some in episodes.values()),
    }
    words = (
        f"{counts['episodes']:,} episodes in {counts['groups']:,} groups, {counts['iterations']:,} "
        f"iterations over; {counts['attempts']:,} attempts, {counts['infra failures']:,} episodes "
        "ended in an infra failure"
    )
    if chosen:
        words += "; what strategies ask for is not known from the run file, so none can be missed"
    return judged("plays", CLAIM, words, offenders, counts)


def _not_as_planned(
    name: str, stage: ReinforceStage, iterations: Sequence[int], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Groups of synchronous iterations that were not played, or not whole."""
    found = {}
    for group, size in sizes.items():
        place = PLACE.match(group)
        if place and place[1] == name:
            found[int(place[2]), int(place[3])] = size
    for iteration in iterations:
        for place_number in range(stage.tasks_per_iteration):
            size = found.get((iteration, place_number), 0)
            if size != stage.group_size:
                yield (
                    f"{name}, iteration {iteration}, place {place_number}: {size} of "
                    f"{stage.group_size} episodes were played"
                )


def _not_as_taken(
    record: RunRecord, name: str, size: int, iterations: Sequence[int], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Groups that asynchronous iterations say they have taken, twice or not whole."""
    takes = recorded_takes(record.store, name)
    silent = sorted(set(iterations) - {one.number for one in takes})
    yield from (f"{name}, iteration {one} does not say which groups it took" for one in silent)
    fates = Counter(group for one in takes for group in one.positions)
    for group, count in fates.items():
        if count > 1:
            yield f"group '{group}' was taken by {count} iterations"
        if sizes.get(group, 0) != size:
            yield f"group '{group}' was taken, and {sizes.get(group, 0)} of {size} were played"
