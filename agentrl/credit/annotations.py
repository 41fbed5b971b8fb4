"""What only a model can know about a step, put on the step by an annotator.

| name | value on a step | who reads it |
|---|---|---|
| ``hidden`` | hidden state of the prompt's last token, d numbers | BiPACE |
| ``progress`` | estimated progress that the step made | SPA |
| ``votes`` | a judge's votes, each 1, -1 or ``None`` (not understood) | RLAnything |
| ``episode_teacher_logprobs``, ``step_teacher_logprobs`` | one per sampled token | OPID |
| ``skill_reward`` | reward of a step of kind ``skill`` | SEED |
| ``belief_entropy`` | uncertainty left by a step of kind ``summary`` | MMPO |
| ``blueprint``, ``role`` | the plan carried out; ``macro`` on the step that wrote it | HiMAC |
| ``node`` | the tree node the step belongs to | TreeRL |
| ``prefix``, ``exemplar`` | replayed from another episode; shown to be right | R3L |

An estimator lists the annotations without which it has nothing to say in ``needs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Step
from agentrl.credit.columns import Columns

__all__ = ["AnnotatedStep", "annotate", "annotation", "annotations_of"]


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
    found = []
    for step in columns.steps:
        if step.kind != kind:
            continue
        values = annotations_of(step)
        if name not in values:
            raise DataError(
                f"step {step.index} (action {step.action_key!r}) has no annotation '{name}', found "
                f"{', '.join(sorted(values)) or 'none'}; add an annotator that gives '{name}' to "
                f"every step of kind '{kind}'"
            )
        found.append(values[name])
    return found
