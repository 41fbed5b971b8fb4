"""What the iterations of an asynchronous stage took, on record: event ``taken``, one an iteration.

It is written before anything is learnt from the groups and stays when a resumed run goes back to a
checkpoint: the iterations that are made again take the same groups. So the store alone says what
became of every group, and nothing is learnt from before the weights that sampled it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agentrl.store.sqlite import SqliteStore

__all__ = ["TAKEN", "Taken", "credit_made_again", "recorded_takes"]

TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Taken:
    """What an iteration took out of the complete groups: id -> position in the stage's order.

    Attributes:
        number: Of the iteration.
        trained: Groups that it learnt from.
        stale: Groups that were too old for it.
        discarded: Groups below their quorum.
    """

    number: int
    trained: Mapping[str, int] = field(default_factory=dict)
    stale: Mapping[str, int] = field(default_factory=dict)
    discarded: Mapping[str, int] = field(default_factory=dict)

    @property
    def positions(self) -> dict[str, int]:
        return {**self.trained, **self.stale, **self.discarded}

    def to_data(self) -> dict[str, Any]:
        """Plain data for the store."""
        return asdict(self)


def recorded_takes(store: SqliteStore, stage: str) -> list[Taken]:
    """What the iterations of a stage took, in their order."""
    events = [dict(one.data) for one in store.events(TAKEN) if one.data["stage"] == stage]
    return [Taken(**{name: one[name] for name in one if name != "stage"}) for one in events]


def credit_made_again(store: SqliteStore, iteration: int) -> tuple[list[str], list[str]]:
    """Groups whose credit is made again by a run that goes on after ``iteration``, and the others.

    The iteration that a trajectory is filed under is that of its place in the order of tasks; an
    asynchronous run may have learnt from it in another.
    """
    again: list[str] = []
    kept: list[str] = []
    for event in store.events(TAKEN):
        (again if event.iteration > iteration else kept).extend(event.data["trained"])
    return again, kept
