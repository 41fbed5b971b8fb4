"""How old the policy is that sampled a group, and which groups an update learns from. Pure.

The age of a group at a policy version is that version minus the oldest that sampled any of it. A
group is learnt from while its age is at most the bound, ``max_staleness``.

How groups of at most that age can be had without throwing any away: let iteration ``v`` (from 0,
its updates begin with version ``v``) learn from ``B`` groups, ``n_k`` being those begun under
versions up to ``v + k - bound`` and not learnt from yet. Then it is enough that after iteration
``v`` is chosen::

    n_k <= k B    for k = 0 .. bound

for ``B`` of them can go into each of the iterations ``v + 1 .. v + k``, and none has to go into a
later one. The oldest go in first. If that holds once all groups are complete, it holds after the
next iteration too, because before it at most ``(bound + v + 1) B`` groups were begun of which
``v B`` were learnt from (``groups_admitted``). So the learner only has to wait, sometimes: for
slow groups that are old, while quick ones that are new are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.core.trajectory import Group

__all__ = ["Asynchrony", "Settled", "aged", "choose", "groups_admitted", "oldest_version"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A group that is complete, in the order of being so.

    Attributes:
        position: Its place in the stage's order of groups, from 0.
        group: What was played.
        discarded: It is below its quorum and is not learnt from.
    """

    position: int
    group: Group
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Asynchrony:
    """How an iteration's groups came about beside the learner.

    Attributes:
        version: Of the weights that its updates began with.
        ages: Of the groups learnt from, by id.
        stale: Of those that were too old, by id; they are not learnt from.
        discarded: Ids of groups below their quorum.
        waited_s: Seconds that the learner waited for groups.
        overlap: Share of the seconds of the updates in which the engine computed, in [0, 1];
            ``None``: the engine keeps no counters.
        ahead: Groups under way, or complete, when the iteration was over.
    """

    version: int
    ages: Mapping[str, int] = field(default_factory=dict)
    stale: Mapping[str, int] = field(default_factory=dict)
    discarded: Sequence[str] = ()
    waited_s: float = 0.0
    overlap: float | None = None
    ahead: int = 0

    def to_data(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {
            "version": self.version,
            "ages": dict(self.ages),
            "stale": dict(self.stale),
            "discarded": list(self.discarded),
            "waited_s": self.waited_s,
            "overlap": self.overlap,
            "ahead": self.ahead,
        }

    def measures(self) -> dict[str, float | None]:
        """Numbers for trackers; ``None``: unknown."""
        ages = list(self.ages.values())
        return {
            "staleness_mean": sum(ages) / len(ages) if ages else None,
            "staleness_max": max(ages, default=None),
            "stale_groups": len(self.stale),
            "waited_s": self.waited_s,
            "overlap": self.overlap,
            "groups_ahead": self.ahead,
        }


def oldest_version(group: Group) -> int | None:
    """The oldest version that sampled any of a group; ``None``: nothing was sampled."""
    versions = [
        step.sample.policy_version
        for one in group.trajectories
        for step in one.steps
        if step.sample.token_ids
    ]
    return min(versions, default=None)


def aged(group: Group, version: int) -> int:
    """Age of a group at ``version``.

    0 where nothing was sampled, or where newer weights did: those of a run that was killed, and
    goes on from an older checkpoint.
    """
    oldest = oldest_version(group)
    return 0 if oldest is None else max(0, version - oldest)


def groups_admitted(
    iteration: int, *, bound: int, per_iteration: int, iterations: int, stale: int
) -> int:
    """How many groups of a stage may have been begun when ``iteration`` is the next to be learnt.

    ::

        min(iteration + bound + 1, iterations) * per_iteration + stale

    Source: AReaL (arXiv 2505.24298), Eq. 3, in whole iterations.

    Args:
        iteration: From 0; so many are over.
        bound: Largest age.
        per_iteration: Groups of one.
        iterations: Of the stage: it plays no more than it will learn from.
        stale: Groups that were too old; others are played in their places.
    """
    return min(iteration + bound + 1, iterations) * per_iteration + stale


def choose(
    complete: Sequence[Settled],
    under_way: Iterable[int],
    *,
    version: int,
    bound: int,
    count: int,
    wait: bool,
) -> tuple[Settled, ...] | None:
    """The groups of an iteration; ``None``: not yet, others have to be complete first.

    The oldest, and of equally old ones those that were complete first; given in the order in which
    they became complete.

    Args:
        complete: None of them too old.
        under_way: Of the groups that are not complete the version each was admitted under.
        version: Of the weights that the updates will begin with.
        bound: Largest age.
        count: Groups of an iteration; discarded ones take a place too.
        wait: Choose none while a group that is left would grow too old, whatever comes.
    """
    if len(complete) < count:
        return None
    versions = [_version(one.group, version) for one in complete]
    order = sorted(range(len(complete)), key=lambda place: (versions[place], place))
    left = [*under_way, *(versions[place] for place in order[count:])]
    for later in range(bound if wait else 0):
        if sum(one <= version + later - bound for one in left) > later * count:
            return None
    return tuple(complete[place] for place in sorted(order[:count]))


def _version(group: Group, now: int) -> int:
    oldest = oldest_version(group)
    return now if oldest is None else oldest
