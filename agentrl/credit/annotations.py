"""What only a model can know about a step, put on the step by an annotator.

| name | value on a step | who reads it |
|---|---|---|
| ``hidden`` | hidden state of the prompt's last token, d numbers | BiPACE |
| ``progress`` | estimated progress that the step made | SPA |
| ``votes`` | a judge's votes, each 1, -1 or ``None`` (not understood) | RLAnything |
| ``episode_teacher_logprobs``, ``step_teacher_logprobs`` | one per sampled token | OPID, learner |
| ``skill_reward`` | reward of a step of kind ``skill`` | SEED |
| ``belief_entropy`` | uncertainty left by a step of kind ``summary`` | MMPO |
| ``blueprint``, ``role`` | the plan carried out; ``macro`` on the step that wrote it | HiMAC |
| ``node`` | the tree node the step belongs to | TreeRL |
| ``prefix``, ``exemplar`` | replayed from another episode; shown to be right | R3L |

An estimator lists the annotations without which it has nothing to say in ``needs``, an annotator
those that it adds in ``gives``: a run whose stage lacks one is refused before it starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Step
from agentrl.credit.columns import Columns
from agentrl.credit.functional import Array

__all__ = ["AnnotatedStep", "annotate", "annotation", "annotations_of", "numbers", "vectors"]


@dataclass(frozen=True, slots=True)
class AnnotatedStep(Step):
    """A step with annotations."""

    annotations: Mapping[str, Any] = field(default_factory=dict)


def annotate(step: Step, **values: Any) -> AnnotatedStep:
    """The step with ``values`` added to its annotations."""
    kept = {one.name: getattr(step, one.name) for one in fields(Step)}
    kept.pop("annotations", None)
    return AnnotatedStep(**kept, annotations={**annotations_of(step), **values})


def annotations_of(step: Step) -> Mapping[str, Any]:
    """The annotations of a step; empty if nobody annotated it."""
    found: Mapping[str, Any] = getattr(step, "annotations", {})
    return found


def annotation(columns: Columns, name: str, kind: str = "act") -> list[Any]:
    """An annotation of every step of ``kind``, in order.

    Raises:
        DataError: a step of that kind lacks it.
    """
    return [value for _, value in _annotated(columns, name, kind)]


def numbers(columns: Columns, name: str, kind: str = "act") -> Array:
    """An annotation that is a number, of every step of ``kind``, in order; shape (n,).

    Raises:
        DataError: a step of that kind lacks it, or has anything but a finite number.
    """
    found = np.zeros(0)
    pairs = list(_annotated(columns, name, kind))
    try:
        found = np.array([value for _, value in pairs], dtype=np.float64)
        good = found.shape == (len(pairs),) and bool(np.isfinite(found).all())
    except (TypeError, ValueError):
        good = False
    if not good:
        position, value = next(pair for pair in pairs if not _finite(pair[1]))
        raise DataError(
            f"{columns.where(position)} has {value!r} as annotation '{name}', expected a finite "
            "number; an annotator must score every step or raise"
        )
    return found


def vectors(columns: Columns, name: str, kind: str = "act") -> Array:
    """An annotation that is a direction, of every step of ``kind``, in order; shape (n, d).

    Raises:
        DataError: a step of that kind lacks it, has another number of components than the first,
            one that is not finite, or nothing but zeros (which points nowhere).
    """
    found: list[Array] = []
    for position, value in _annotated(columns, name, kind):
        try:
            one = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            one = np.full((1, 1), np.nan)  # no numbers at all: refused below
        size = len(found[0]) if found else one.size
        if one.shape != (size,) or not size or not np.isfinite(one).all() or not one.any():
            raise DataError(
                f"{columns.where(position)} has {_short(value)} as annotation '{name}', expected "
                f"{size if found else 'some'} finite numbers that are not all 0; take all of them "
                "from one layer of one model"
            )
        found.append(one)
    return np.array(found).reshape(len(found), len(found[0]) if found else 0)


def _annotated(columns: Columns, name: str, kind: str) -> Iterator[tuple[int, Any]]:
    for position, step in enumerate(columns.steps):
        if step.kind != kind:
            continue
        values = annotations_of(step)
        if name not in values:
            raise DataError(
                f"{columns.where(position)} (action {step.action_key!r}) has no annotation "
                f"'{name}', found {', '.join(sorted(values)) or 'none'}; add an annotator that "
                f"gives '{name}' to every step of kind '{kind}'"
            )
        yield position, values[name]


def _finite(value: Any) -> bool:
    try:
        return np.ndim(value) == 0 and math.isfinite(value)
    except (TypeError, ValueError):
        return False


def _short(value: Any) -> str:
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return repr(value)[:80]
    shown = ", ".join(f"{one:g}" for one in values.ravel()[:4])
    return f"[{shown}{', ...' if values.size > 4 else ''}] of shape {values.shape}"
