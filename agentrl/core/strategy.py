"""The seam of strategies: which tasks are played how often, and what is learnt from.

A strategy is a small object with a state. It has the methods of ``Strategy``, and those of as many
of the other protocols as it serves; a loop asks a list of them in this order::

    admits      is this task played now?                                  ChoosesTasks
    first_size  how many episodes to begin with?                          SizesGroups
    more        the group is complete: how many further episodes?         SizesGroups
    judge       keep it, play another group in its place, or drop it?     JudgesGroups
    instead     which task in its place?                                  JudgesGroups
    trim        which trajectories of a kept group are learnt from?       SizesGroups
    unplayed    how many that say nothing were spared?                    SizesGroups
    join        which stored trajectories join a group, before credit?    JoinsGroups
    add         which stored trajectories are learnt from beside them?    AddsEpisodes
    observe     the iteration is over: the state moves on                 Strategy

All answers but that of ``observe`` depend on the state and the arguments alone and change nothing,
so the order in which groups are finished does not matter. Whatever is drawn is drawn from ``seed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Trajectory

REPLAY_MARK = "@replay:"
Verdict = Literal["keep", "again", "drop"]
Recall = Callable[[str], Trajectory]
"""A trajectory by its id, as the store has it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a stage a group is played.

    Attributes:
        iteration: From 0. number: Of the place in the iteration, from 0.
        attempt: Groups that were played at this place before it.
    """

    iteration: int
    number: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """A group that was played, whole, and what became of it."""

    place: Place
    group: Group
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Imitated:
    """A stored trajectory to learn from again, with one advantage for all of its steps."""

    trajectory: Trajectory
    advantage: float


def is_replay(trajectory_id: str) -> bool:
    """Whether the id of a trajectory (or a row's) is that of a replay of a stored one."""
    return REPLAY_MARK in trajectory_id


def original_id(trajectory_id: str) -> str:
    """The id under which the store has it; that of a fresh trajectory is its own."""
    return trajectory_id.partition(REPLAY_MARK)[0]


@runtime_checkable
class Strategy(Protocol):
    """What every strategy has. Its state is saved with each checkpoint."""

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """Take note of an iteration; returns plain numbers for reports.

        Args:
            played: Every group that was played, dropped ones too, by place and attempt.
            groups: Those learnt from, without what was replayed.
            credit: Aligned with ``groups``.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON-like data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` of an equal strategy returned."""
        ...


@runtime_checkable
class ChoosesTasks(Protocol):
    """Leaves tasks out for now; one that is left out comes again in the next epoch."""

    def admits(self, task: Task) -> bool: ...


@runtime_checkable
class SizesGroups(Protocol):
    """Decides on the number of episodes of a group, within the stage's ``group_size``."""

    def first_size(self, group_size: int) -> int:
        """Episodes to begin with; raises ``ConfigError`` where the two do not go together."""
        ...

    def more(self, group: Group, group_size: int) -> int:
        """Further episodes of a complete group; 0: it is large enough."""
        ...

    def trim(self, group: Group, *, seed: int) -> Group:
        """The group without the trajectories that are not learnt from."""
        ...

    def unplayed(self, group: Group, group_size: int) -> int:
        """Episodes that were not played because they would most likely have said nothing.

        In the mean that an update's loss is they count as if they had been played, with advantage
        0, so that playing fewer of them does not lengthen the learner's steps.
        """
        ...


@runtime_checkable
class JudgesGroups(Protocol):
    """Decides what becomes of a complete group."""

    def judge(self, group: Group, place: Place) -> Verdict:
        """``again`` must come to an end as ``place.attempt`` grows."""
        ...

    def instead(self, group: Group, place: Place, *, seed: int) -> str | None:
        """Id of the task to play after ``again``; ``None``: any that is admitted."""
        ...


@runtime_checkable
class JoinsGroups(Protocol):
    """Lets stored trajectories of a task be compared with those just played."""

    def join(self, group: Group, *, seed: int, recall: Recall) -> Sequence[Trajectory]: ...


@runtime_checkable
class AddsEpisodes(Protocol):
    """Learns again from stored trajectories, with advantages of their own."""

    def add(self, iteration: int, *, seed: int, recall: Recall) -> Sequence[Imitated]: ...
