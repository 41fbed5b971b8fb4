"""Where the advantage of each step came from, and why a step or a trajectory got none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agentrl.core.trajectory import Step, Trajectory
from agentrl.credit.compared import BATCH, GROUP, Compared
from agentrl.store.records import StoredTrajectory
from agentrl.viewer.explain_known import SAME, Known, advantage_of, own_number, statistics
from agentrl.viewer.explanation import Member, Part, StepCredit
from agentrl.viewer.wording import action_line, rounded, shortened, state_line

__all__ = ["member_of"]


def member_of(one: StoredTrajectory, episodes: Sequence[StoredTrajectory], known: Known) -> Member:
    """One trajectory of the group and each of its steps.

    Args:
        one: The trajectory. episodes: all attempts of the group, itself included.
        known: What is known of the group's credit.
    """
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
    one: StoredTrajectory, position: int, episodes: Sequence[StoredTrajectory], known: Known
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
    advantage = advantage_of(one, position)
    silent = advantage == 0.0 and (tokens is None or (tokens[1], tokens[2]) == (0.0, 0.0))
    return StepCredit(
        step=position,
        kind=step.kind,
        action=action_line(step),
        state=state_line(step),
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
    known: Known,
) -> Part:
    part = known.parts.get(name)
    if part is None:
        return Part(name, value)
    assert one.credit is not None
    labels = one.credit.groups.get(part.within)
    label = None if labels is None else labels[position]
    row = known.row(one, position)
    key = (name, label)  # all steps of a cluster have the same company
    if key not in known.among:
        rows = _rows(part, label, row, episodes, known)
        known.among[key] = (statistics(part, rows), len(rows))
    among, company = known.among[key]
    found = Part(
        name=name,
        value=value,
        what=part.what,
        own=own_number(part, row) if label is None or label >= 0 else None,
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
    known: Known,
) -> list[int]:
    """The steps that one was compared with, itself included."""
    columns = known.columns
    if part.within == BATCH:
        return list(range(len(columns.index)))
    if part.within == GROUP:
        return [] if row is None else np.flatnonzero(columns.group == columns.group[row]).tolist()
    if label is None or label < 0:
        return []
    found = (
        known.row(one, position)
        for one in episodes
        if one.credit is not None
        for position, other in enumerate(one.credit.groups.get(part.within, ()))
        if other == label
    )
    return [one for one in found if one is not None]


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
        return f"all that it was compared with are equal ({rounded(part.among.mean)})"
    if part.among is not None and part.own is not None and abs(part.own - part.among.mean) < SAME:
        return f"it is exactly the mean ({rounded(part.among.mean)})"
    return ""
