"""What an explanation of credit holds: plain records, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.credit.functional import EQUAL_TOLERANCE

__all__ = [
    "Cluster",
    "Explanation",
    "Member",
    "Part",
    "Partition",
    "Place",
    "Statistics",
    "StepCredit",
]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the numbers that were compared: ``count`` steps, trajectories or tokens (``entries``)."""

    count: float
    entries: str
    mean: float
    std: float
    low: float
    high: float

    @property
    def equal(self) -> bool:
        """Whether nothing differs: the rule by which credit is exactly 0."""
        return self.high - self.low <= EQUAL_TOLERANCE * max(1.0, abs(self.mean))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the advantage of a step.

    Attributes:
        value: What it contributes. what, own: the number that was compared, in words and as it is.
        within: A partition, ``the group`` or ``the batch``. label: the step's cluster there.
        among: Statistics of the numbers it was compared with, itself included; ``None``: unknown.
        why_zero: Why it contributes nothing; empty if it contributes, or if that is not known.
    """

    name: str
    value: float
    what: str = ""
    own: float | None = None
    within: str = ""
    label: int | None = None
    among: Statistics | None = None
    why_zero: str = ""


@dataclass(frozen=True, slots=True)
class StepCredit:
    """Where the advantage of one step came from.

    Attributes:
        parts: They sum to ``sum``. advantage: what was recorded for the step.
        tokens: Mean, least and greatest of what was added to the advantage below the step.
        why_none: Why the step got no signal at all; empty if it got one.
    """

    step: int
    kind: str
    action: str
    state: str
    reward: float | None
    valid: bool
    parts: tuple[Part, ...]
    sum: float
    advantage: float
    tokens: tuple[float, float, float] | None = None
    why_none: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One trajectory of the group; ``why_none`` says why it takes no part (no ``steps`` then)."""

    id: str
    trial: int
    attempt: int
    outcome: str
    score: float | None
    takes_part: bool
    why_none: str
    steps: tuple[StepCredit, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A step of the group, as a member of a cluster.

    ``own`` is its number that was compared, ``part`` what the comparison contributed to its
    advantage; ``None``: unknown.
    """

    trial: int
    step: int
    action: str
    own: float | None
    part: float | None
    advantage: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Steps that were compared with one another; ``state`` is that of the first."""

    label: int
    state: str
    members: tuple[Place, ...]
    among: Statistics | None


@dataclass(frozen=True, slots=True)
class Partition:
    """Who was compared with whom.

    Attributes:
        part: The part of the advantage that compares within it; empty: unknown. what: the numbers.
        clusters: Of two and more steps, the largest first.
        alone: Steps that were compared with nothing: a state seen once, or without a label.
    """

    name: str
    part: str
    what: str
    clusters: tuple[Cluster, ...]
    alone: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why each step of a group got its credit.

    Attributes:
        estimator: Its name in the run file; ``None``: unknown. options: those of the run file.
        chosen: Why this group is shown, if nobody asked for one.
        check: What running the estimator again came to. agrees: whether it gave what is stored;
            ``None``: it could not be run.
        rules: How each part comes about, in words.
    """

    group: str
    task: str
    env: str
    kind: str
    purpose: str
    iteration: int
    estimator: str | None
    options: Mapping[str, Any]
    chosen: str
    check: str
    agrees: bool | None
    rules: Mapping[str, str]
    partitions: tuple[Partition, ...]
    members: tuple[Member, ...]
