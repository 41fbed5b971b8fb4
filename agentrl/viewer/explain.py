"""Why each step of a group got its credit: which steps were compared, and what each part came from.

Advantages, parts and partitions are those that the run recorded. The numbers that were compared
(scores, returns) and their means are worked out from the recorded rewards with the options of the
run's estimator (``agentrl.credit.compared``). The estimator is also run again on what was recorded,
and the explanation says whether that gives what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agentrl.core.errors import AgentRLError, DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group, Step, Trajectory
from agentrl.credit.columns import Columns, columns_of
from agentrl.credit.compared import BATCH, GROUP, Compared, compared
from agentrl.credit.functional import EQUAL_TOLERANCE, Array
from agentrl.store.records import StoredTrajectory, TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.side_by_side import group_episodes
from agentrl.viewer.wording import message_parts, shortened

__all__ = [
    "Cluster",
    "Explanation",
    "Member",
    "Part",
    "Partition",
    "Place",
    "Statistics",
    "StepCredit",
    "explain",
]

ACTION, STATE = 70, 100  # characters of an action and of a state
SAME = 1e-9


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


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the group's credit besides what was recorded."""

    columns: Columns
    place: Mapping[tuple[str, int], int]
    parts: Mapping[str, Compared] = field(default_factory=dict)
    among: dict[tuple[str, int | None], tuple[Statistics | None, int]] = field(default_factory=dict)


def explain(
    store: SqliteStore,
    group_id: str,
    *,
    estimator: CreditEstimator | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    unknown: str = "",
    chosen: str = "",
) -> Explanation:
    """Explain the credit of a group.

    Args:
        store: Store of the run; it may be written meanwhile.
        group_id: Which group.
        estimator: The run's. ``None``: what was recorded is shown without what was compared.
        name: Its name, likewise its ``options``. unknown: why there is none.
        chosen: Why this group is shown.

    Raises:
        DataError: the group has no episode, or none that credit was recorded for.
    """
    episodes = group_episodes(store, group_id)
    if not episodes:
        raise DataError(f"no episode of group '{group_id}' was recorded; list them: agentrl view")
    if all(one.credit is None for one in episodes):
        raise DataError(_no_credit(episodes[0]))
    known, check, agrees = _known(store, episodes, estimator, unknown)
    line = episodes[0].summary
    return Explanation(
        group=line.group_id,
        task=line.task_id,
        env=line.env,
        kind=line.kind,
        purpose=line.purpose,
        iteration=line.iteration,
        estimator=name,
        options=options or {},
        chosen=chosen,
        check=check,
        agrees=agrees,
        rules={part: one.rule for part, one in known.parts.items()},
        partitions=tuple(_partitions(episodes, known)),
        members=tuple(_member(one, episodes, known) for one in episodes),
    )


def _no_credit(one: StoredTrajectory) -> str:
    line = one.summary
    if line.purpose.split("/")[0] != "train":
        return (
            f"group '{line.group_id}' was played for '{line.purpose}', from which nothing is "
            "learnt, so it has no credit; choose a group of purpose 'train'"
        )
    return (
        f"group '{line.group_id}' has no credit: its iteration {line.iteration} is still being "
        "played, or ended before credit was given; choose an earlier one"
    )


# What the estimator says of the group


def _known(
    store: SqliteStore,
    episodes: Sequence[StoredTrajectory],
    estimator: CreditEstimator | None,
    unknown: str,
) -> tuple[_Known, str, bool | None]:
    batch = [_as_credited(episodes)]
    spans = getattr(estimator, "scope", "group") == "batch"
    if spans:
        batch = _batch(store, episodes)
    try:
        columns = columns_of(batch)
    except DataError as error:
        empty = _Known(columns_of([]), {})
        return empty, f"The record cannot be read by credit: {error}.", None
    scored = (one for group in batch for one in group.trajectories if one.scored)
    ids = [(one.id, step.index) for one in scored for step in one.steps]
    place = {name: row for row, name in enumerate(ids)}
    if estimator is None:
        why = f": {unknown}" if unknown else ""
        return _Known(columns, place), f"What was compared is not known{why}.", None
    parts = {one.part: one for one in compared(estimator, columns)}
    return _Known(columns, place, parts), *_check(batch, episodes, estimator)


def _as_credited(episodes: Sequence[StoredTrajectory]) -> Group:
    """The group as credit saw it: of every trial the last attempt."""
    last = {one.trajectory.trial: one.trajectory for one in episodes}
    return Group(episodes[0].summary.group_id, episodes[0].task, tuple(last.values()))


def _batch(store: SqliteStore, episodes: Sequence[StoredTrajectory]) -> list[Group]:
    """All groups of the iteration: what an estimator whose statistics span the batch was given."""
    line = episodes[0].summary
    lines = store.find(TrajectoryFilter(purpose=line.purpose, iteration=line.iteration))
    given = dict.fromkeys(one.group_id for one in lines if one.takes_part is not None)
    return [_as_credited(group_episodes(store, one)) for one in given]


def _check(
    batch: Sequence[Group], episodes: Sequence[StoredTrajectory], estimator: CreditEstimator
) -> tuple[str, bool | None]:
    """Run the estimator again on what was recorded, and compare."""
    needs = getattr(estimator, "needs", ())
    if needs:
        return (
            f"The estimator was not run again: it reads {', '.join(needs)}, which annotators add "
            "and the store does not keep.",
            None,
        )
    try:
        result = estimator.assign(batch)
    except AgentRLError as error:
        return f"Running the estimator again failed: {error}.", False
    differences = list(_differences(batch, result, episodes))
    worst = max((one for _, one in differences), default=0.0)
    if worst <= SAME:
        return "The estimator, run again on what was recorded, gives what is stored.", True
    where = max(differences, key=lambda pair: pair[1])[0]
    return (
        f"The estimator, run again on what was recorded, gives something else (by up to {worst:.3g}"
        f", at {where}): its code has changed since, or it read annotations, which the store does "
        "not keep. Advantages, parts and clusters are those that were recorded.",
        False,
    )


def _differences(
    batch: Sequence[Group], result: CreditResult, episodes: Sequence[StoredTrajectory]
) -> Iterator[tuple[str, float]]:
    """How far each recorded advantage is from what came out now."""
    ids = [one.id for group in batch for one in group.trajectories]
    now = dict(zip(ids, result.step_advantages, strict=True))
    for one in episodes:
        if one.credit is None or one.trajectory.id not in now:
            continue
        stored, again = one.credit.step_advantages, now[one.trajectory.id]
        if stored is None or again is None:
            yield f"'{one.trajectory.id}'", 0.0 if stored is again else float("inf")
            continue
        for step, (x, y) in enumerate(zip(stored, again, strict=True)):
            yield f"'{one.trajectory.id}' step {step}", abs(x - y)


# Clusters


def _partitions(episodes: Sequence[StoredTrajectory], known: _Known) -> Iterator[Partition]:
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
    known: _Known,
) -> Cluster:
    first, position = members[0]
    rows = [known.place.get((one.trajectory.id, _index(one, at))) for one, at in members]
    return Cluster(
        label=label,
        state=_state(first.trajectory.steps[position]),
        members=tuple(
            Place(
                trial=one.trajectory.trial,
                step=at,
                action=_action(one.trajectory.steps[at]),
                own=_own(part, row),
                part=_contribution(part, one, at),
                advantage=_advantage(one, at),
            )
            for (one, at), row in zip(members, rows, strict=True)
        ),
        among=_statistics(part, [row for row in rows if row is not None]),
    )


def _names(episodes: Sequence[StoredTrajectory]) -> list[str]:
    names = (name for one in episodes if one.credit is not None for name in one.credit.groups)
    return list(dict.fromkeys(names))


# Steps


def _member(one: StoredTrajectory, episodes: Sequence[StoredTrajectory], known: _Known) -> Member:
    line = one.summary
    takes_part = one.credit is not None and one.credit.step_advantages is not None
    steps = range(len(one.trajectory.steps)) if takes_part else ()
    return Member(
        id=line.id,
        trial=line.trial,
        attempt=line.attempt,
        outcome=line.outcome,
        score=line.reward,
        takes_part=takes_part,
        why_none="" if takes_part else _absent(one, episodes),
        steps=tuple(_step(one, position, episodes, known) for position in steps),
    )


def _absent(one: StoredTrajectory, episodes: Sequence[StoredTrajectory]) -> str:
    """Why a trajectory takes no part."""
    trajectory = one.trajectory
    why = _unscored(trajectory)
    later = [x for x in episodes if x.trajectory.trial == trajectory.trial and x is not one]
    if later and max(x.trajectory.attempt for x in later) > trajectory.attempt:
        return f"{why}; the trial was played again as attempt {later[-1].trajectory.attempt}"
    return why if one.credit is not None else f"no credit was recorded for it ({why})"


def _unscored(trajectory: Trajectory) -> str:
    failure = trajectory.failure
    if failure is not None:
        message = shortened(failure.message, 300)
        return f"infra failure at {failure.boundary}: {failure.error}: {message}"
    for step in trajectory.steps:
        if step.result is not None and step.result.reward is None:
            return f"unscored: the environment gave step {step.index} no reward"
    if not trajectory.sampled_tokens:
        return f"nothing was sampled ({trajectory.stop_reason.value} came first)"
    return "the estimator left it out"


def _step(
    one: StoredTrajectory, position: int, episodes: Sequence[StoredTrajectory], known: _Known
) -> StepCredit:
    assert one.credit is not None
    step = one.trajectory.steps[position]
    parts = tuple(
        _part(name, values[position], one, position, episodes, known)
        for name, values in one.credit.parts.items()
    )
    tokens = None
    if one.credit.token_advantages is not None:
        by_token = one.credit.token_advantages[position]
        if by_token:
            tokens = (sum(by_token) / len(by_token), min(by_token), max(by_token))
    advantage = _advantage(one, position)
    silent = advantage == 0.0 and (tokens is None or (tokens[1], tokens[2]) == (0.0, 0.0))
    return StepCredit(
        step=position,
        kind=step.kind,
        action=_action(step),
        state=_state(step),
        reward=step.reward,
        valid=step.result is None or step.result.action_valid,
        parts=parts,
        sum=sum(part.value for part in parts),
        advantage=advantage,
        tokens=tokens,
        why_none=_why_none(parts) if silent else "",
    )


def _why_none(parts: Sequence[Part]) -> str:
    if not parts:
        return "the estimator gave 0 and names no parts"
    if any(part.value for part in parts):
        return "its parts cancel out"
    said = [f"{part.name}: {part.why_zero}" for part in parts if part.why_zero]
    return "; ".join(said) or "every part is 0 by its rule"


def _part(
    name: str,
    value: float,
    one: StoredTrajectory,
    position: int,
    episodes: Sequence[StoredTrajectory],
    known: _Known,
) -> Part:
    part = known.parts.get(name)
    if part is None:
        return Part(name, value)
    assert one.credit is not None
    labels = one.credit.groups.get(part.within)
    label = None if labels is None else labels[position]
    row = known.place.get((one.trajectory.id, _index(one, position)))
    key = (name, label)  # all steps of a cluster have the same company
    if key not in known.among:
        rows = _rows(part, label, row, episodes, known)
        known.among[key] = (_statistics(part, rows), len(rows))
    among, company = known.among[key]
    found = Part(
        name=name,
        value=value,
        what=part.what,
        own=_own(part, row) if label is None or label >= 0 else None,
        within=part.within,
        label=label,
        among=among,
    )
    if value != 0.0:
        return found
    lone = sum(x.credit is not None and x.credit.step_advantages is not None for x in episodes)
    why = _why_zero(found, one.trajectory.steps[position], company, lone == 1)
    return replace(found, why_zero=why)


def _rows(
    part: Compared,
    label: int | None,
    row: int | None,
    episodes: Sequence[StoredTrajectory],
    known: _Known,
) -> list[int]:
    """The steps that one was compared with, itself included."""
    columns = known.columns
    if part.within == BATCH:
        return list(range(len(columns.index)))
    if part.within == GROUP:
        return [] if row is None else np.flatnonzero(columns.group == columns.group[row]).tolist()
    if label is None or label < 0:
        return []
    return [
        known.place[one.trajectory.id, _index(one, position)]
        for one in episodes
        if one.credit is not None
        for position, other in enumerate(one.credit.groups.get(part.within, ()))
        if other == label and (one.trajectory.id, _index(one, position)) in known.place
    ]


def _why_zero(part: Part, step: Step, steps: int, lone: bool) -> str:
    if part.label is not None and part.label < 0:
        if step.kind != "act":
            return f"a {step.kind} step is not compared by {part.within}"
        if step.anchor is None:
            return "the environment gave the state no anchor"
        return f"it has no {part.within} to be compared in"
    if lone and part.within != BATCH:
        return "no other trajectory of the group takes part"
    if part.label is not None and steps == 1:
        return f"compared with nothing: no other step has its {part.within}"
    if part.among is not None and part.among.equal:
        return f"all that it was compared with are equal ({part.among.mean:g})"
    if part.among is not None and part.own is not None and abs(part.own - part.among.mean) < SAME:
        return f"it is exactly the mean ({part.among.mean:g})"
    return ""


# Small things


def _statistics(part: Compared | None, rows: Sequence[int]) -> Statistics | None:
    if part is None or part.values is None or not rows:
        return None
    x: Array = part.values[rows]
    w = np.ones(len(x)) if part.weights is None else part.weights[rows]
    count = float(w.sum())
    if count <= 0.0:
        return None
    mean = float((w * x).sum() / count)
    square = float((w * (x - mean) ** 2).sum())
    degrees = count - part.ddof
    std = (square / degrees) ** 0.5 if degrees > 0.5 else 0.0
    return Statistics(round(count, 9), part.entries, mean, std, float(x.min()), float(x.max()))


def _own(part: Compared | None, row: int | None) -> float | None:
    if part is None or part.values is None or row is None:
        return None
    return float(part.values[row])


def _contribution(part: Compared | None, one: StoredTrajectory, position: int) -> float | None:
    values = one.credit.parts.get(part.part) if part is not None and one.credit else None
    return None if values is None else values[position]


def _index(one: StoredTrajectory, position: int) -> int:
    return one.trajectory.steps[position].index


def _advantage(one: StoredTrajectory, position: int) -> float:
    assert one.credit is not None
    assert one.credit.step_advantages is not None
    return one.credit.step_advantages[position]


def _action(step: Step) -> str:
    said = " ".join(text for _, text in message_parts(step.action))
    return _line(said, ACTION) or "(empty)"


def _state(step: Step) -> str:
    """The anchor on one line."""
    anchor = step.anchor
    if anchor is None:
        return ""
    text = anchor if isinstance(anchor, str) else json.dumps(anchor, default=repr)
    return _line(text, STATE)


def _line(text: str, limit: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
