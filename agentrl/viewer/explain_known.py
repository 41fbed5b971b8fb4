"""What the run's estimator says of a group: which numbers were compared, and whether it agrees.

The numbers that were compared are worked out from the recorded rewards with the options of the
run's estimator (``agentrl.credit.compared``). The estimator is run again on what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl.core.errors import AgentRLError, DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of
from agentrl.credit.compared import Compared, compared
from agentrl.credit.functional import Array
from agentrl.store.records import StoredTrajectory, TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.explanation import Statistics
from agentrl.viewer.side_by_side import group_episodes
from agentrl.viewer.wording import rounded

__all__ = ["SAME", "Known", "advantage_of", "known_of", "own_number", "statistics"]

SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the group's credit besides what was recorded.

    Attributes:
        columns: The steps as the estimator saw them. parts: what each part compares, by its name.
        check: What running the estimator again came to. agrees: whether it gave what is stored;
            ``None``: it could not be run.
        among: Filled while steps are explained: by part and cluster the statistics of the numbers
            compared, and how many steps they are of. All steps of a cluster share them.
    """

    columns: Columns
    place: Mapping[tuple[str, int], int]
    check: str
    agrees: bool | None = None
    parts: Mapping[str, Compared] = field(default_factory=dict)
    among: dict[tuple[str, int | None], tuple[Statistics | None, int]] = field(default_factory=dict)

    def row(self, one: StoredTrajectory, position: int) -> int | None:
        """Row of a step in ``columns``; ``None``: credit did not see it."""
        return self.place.get((one.trajectory.id, one.trajectory.steps[position].index))


def known_of(
    store: SqliteStore,
    episodes: Sequence[StoredTrajectory],
    estimator: CreditEstimator | None,
    unknown: str,
) -> Known:
    """Ask the estimator about a group.

    Args:
        store: Where the other groups of the iteration are, if its statistics span them.
        episodes: All attempts of the group.
        estimator: The run's; ``None``: not known, and ``unknown`` says why.
    """
    batch = [_as_credited(episodes)]
    if getattr(estimator, "scope", "group") == "batch":
        batch = _batch(store, episodes)
    try:
        columns = columns_of(batch)
    except DataError as error:
        return Known(columns_of([]), {}, f"The record cannot be read by credit: {error}.")
    scored = (one for group in batch for one in group.trajectories if one.scored)
    ids = [(one.id, step.index) for one in scored for step in one.steps]
    place = {name: row for row, name in enumerate(ids)}
    if estimator is None:
        why = f": {unknown}" if unknown else ""
        return Known(columns, place, f"What was compared is not known{why}.")
    parts = {one.part: one for one in compared(estimator, columns)}
    return Known(columns, place, *_check(batch, episodes, estimator), parts)


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
        f"The estimator, run again on what was recorded, gives something else (by up to "
        f"{rounded(worst)}"
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


def statistics(part: Compared | None, rows: Sequence[int]) -> Statistics | None:
    """Statistics of what was compared on ``rows``; ``None``: the numbers are not known."""
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


def own_number(part: Compared | None, row: int | None) -> float | None:
    """The number of one step that was compared; ``None``: not known."""
    if part is None or part.values is None or row is None:
        return None
    return float(part.values[row])


def advantage_of(one: StoredTrajectory, position: int) -> float:
    """The recorded advantage of a step of a trajectory that takes part."""
    assert one.credit is not None
    assert one.credit.step_advantages is not None
    return one.credit.step_advantages[position]
