"""Who was compared with whom: the partitions of a group that were recorded, cluster by cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrl.credit.compared import Compared
from agentrl.store.records import StoredTrajectory
from agentrl.viewer.explain_known import Known, advantage_of, own_number, statistics
from agentrl.viewer.explanation import Cluster, Partition, Place
from agentrl.viewer.wording import action_line, state_line

__all__ = ["partitions_of"]


def partitions_of(episodes: Sequence[StoredTrajectory], known: Known) -> Iterator[Partition]:
    """Every partition that the estimator recorded, as the group's steps fell into it."""
    by_partition = {one.within: one for one in known.parts.values()}
    for name in _names(episodes):
        clusters: dict[int, list[tuple[StoredTrajectory, int]]] = {}
        alone = 0
        for one in episodes:
            labels = one.credit.groups.get(name, ()) if one.credit is not None else ()
            for position, label in enumerate(labels):
                if label < 0:
                    alone += 1
                else:
                    clusters.setdefault(label, []).append((one, position))
        shared = {label: members for label, members in clusters.items() if len(members) > 1}
        alone += len(clusters) - len(shared)
        found = [
            _cluster(label, members, by_partition.get(name), known)
            for label, members in shared.items()
        ]
        found.sort(key=lambda one: (-len(one.members), one.label))
        part = by_partition.get(name, Compared("", "", what=""))
        yield Partition(name, part.part, part.what, tuple(found), alone)


def _cluster(
    label: int,
    members: Sequence[tuple[StoredTrajectory, int]],
    part: Compared | None,
    known: Known,
) -> Cluster:
    first, position = members[0]
    rows = [known.row(one, at) for one, at in members]
    return Cluster(
        label=label,
        state=state_line(first.trajectory.steps[position]),
        members=tuple(
            Place(
                trial=one.trajectory.trial,
                step=at,
                action=action_line(one.trajectory.steps[at]),
                own=own_number(part, row),
                part=_contribution(part, one, at),
                advantage=advantage_of(one, at),
            )
            for (one, at), row in zip(members, rows, strict=True)
        ),
        among=statistics(part, [row for row in rows if row is not None]),
    )


def _names(episodes: Sequence[StoredTrajectory]) -> list[str]:
    names = (name for one in episodes if one.credit is not None for name in one.credit.groups)
    return list(dict.fromkeys(names))


def _contribution(part: Compared | None, one: StoredTrajectory, position: int) -> float | None:
    values = one.credit.parts.get(part.part) if part is not None and one.credit else None
    return None if values is None else values[position]
