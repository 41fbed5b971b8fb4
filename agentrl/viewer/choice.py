"""Which episodes to put on a page: few, and those that show the most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from agentrl.store.records import TrajectorySummary

__all__ = ["choose"]

GROUPS = 6  # training groups, spread over the run
PAIRS = 4  # test tasks shown before and after


def choose(lines: Sequence[TrajectorySummary], limit: int) -> list[TrajectorySummary]:
    """Pick at most ``limit`` episodes, the most telling first.

    In this order: test tasks failed before and solved after, and one that was lost; from groups
    spread over the training run in which some succeeded and some failed, one of each, since there
    credit says something; an infra failure; then whatever came first.
    """
    picked: dict[str, TrajectorySummary] = {}
    for line in (*_changed(lines), *_instructive(lines), *_broken(lines), *lines):
        picked.setdefault(line.id, line)
        if len(picked) >= limit:
            break
    return list(picked.values())[:limit]


def _changed(lines: Sequence[TrajectorySummary]) -> Iterable[TrajectorySummary]:
    sides: dict[str, dict[str, TrajectorySummary]] = {"before": {}, "after": {}}
    for line in lines:
        if line.purpose in sides and line.trial == 0:
            sides[line.purpose][line.task_id] = line
    before, after = sides["before"], sides["after"]
    won, lost = [], []
    for task in before.keys() & after.keys():
        pair = (before[task], after[task])
        outcomes = [one.outcome for one in pair]
        if outcomes == ["failure", "success"]:
            won.append(pair)
        elif outcomes == ["success", "failure"]:
            lost.append(pair)
    # Short episodes are read; ids settle ties, so that one store always gives one page.
    won.sort(key=lambda pair: (pair[0].steps + pair[1].steps, pair[0].task_id))
    lost.sort(key=lambda pair: (pair[0].steps + pair[1].steps, pair[0].task_id))
    return [line for pair in (*won[: PAIRS - 1], *lost[:1]) for line in pair]


def _instructive(lines: Sequence[TrajectorySummary]) -> Iterable[TrajectorySummary]:
    groups: dict[str, list[TrajectorySummary]] = defaultdict(list)
    for line in lines:
        if line.takes_part:
            groups[line.group_id].append(line)
    mixed = [
        group
        for group in groups.values()
        if any(one.advantage_low != 0 or one.advantage_high != 0 for one in group)
        and len({one.reward for one in group}) > 1
    ]
    step = max(1, len(mixed) / GROUPS)
    spread = [mixed[int(place * step)] for place in range(min(GROUPS, len(mixed)))]
    found = []
    for group in spread:
        ranked = sorted(group, key=lambda one: (one.reward or 0.0, -one.steps, one.id))
        found += [ranked[-1], ranked[0]]
    return found


def _broken(lines: Sequence[TrajectorySummary]) -> Iterable[TrajectorySummary]:
    return [line for line in lines if line.outcome == "infra"][:1]
