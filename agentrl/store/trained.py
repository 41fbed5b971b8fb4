"""What each optimiser step learnt from, row by row: so a run can prove it from its own store.

A step's rows are the event ``trained``, written with its event ``update`` or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.trajectory import Batch, Row
from agentrl.store.codec import pack_ints
from agentrl.store.records import RunEvent

__all__ = [
    "TRAINED",
    "TrainedBatch",
    "TrainedRow",
    "ids_digest",
    "mask_spans",
    "trained_data",
    "trained_from",
]

TRAINED = "trained"


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """One row of an optimiser step.

    Attributes:
        trajectory_id: What it was made of.
        tokens: Its length, prompt and sampled tokens.
        spans: ``(start, end)`` of each run of tokens whose action mask was 1.
        digest: Of its token ids, as ``ids_digest`` makes it.
        weight: Weight of each of its tokens in the loss.
        policy_version: The oldest that sampled any of it, as the learner was told.
    """

    trajectory_id: str
    tokens: int
    spans: tuple[tuple[int, int], ...]
    digest: str
    weight: float
    policy_version: int

    @property
    def action_tokens(self) -> int:
        return sum(end - start for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """One optimiser step.

    Attributes:
        sequence: Number of its event.
        iteration: The iteration it belongs to.
        update: Number of the step in its stage, from 1.
        policy_version: Version of the published weights when it was made.
        id: Of the batch.
        rows: What it learnt from.
        demonstrations: Rows of an expert's episodes, which nobody sampled; they are only counted.
    """

    sequence: int
    iteration: int
    update: int
    policy_version: int
    id: str
    rows: tuple[TrainedRow, ...]
    demonstrations: int


def ids_digest(token_ids: Sequence[int]) -> str:
    """16 hex digits of SHA-256 over the ids as little-endian int32."""
    return hashlib.sha256(pack_ints(token_ids)).hexdigest()[:16]


def mask_spans(mask: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """``(start, end)`` of each run of ones, ends excluded: ``0 1 1 0 1`` gives (1, 3), (4, 5)."""
    return tuple(_runs(mask))


def _runs(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for place, one in enumerate(mask):
        if one and start is None:
            start = place
        elif not one and start is not None:
            yield start, place
            start = None
    if start is not None:
        yield start, len(mask)


def trained_data(batch: Batch, *, update: int, policy_version: int) -> dict[str, Any]:
    """The event's data; ``trained_from`` reads it."""
    # Only what the policy sampled has the log-probabilities it was sampled with.
    sampled = [row for row in batch.rows if row.behaviour_logprobs is not None]
    return {
        "update": update,
        "policy_version": policy_version,
        "batch": batch.id,
        "rows": [_row_data(row) for row in sampled],
        "demonstrations": len(batch.rows) - len(sampled),
    }


def _row_data(row: Row) -> list[Any]:
    spans = [list(one) for one in mask_spans(row.action_mask)]
    digest = ids_digest(row.token_ids)
    return [row.trajectory_id, len(row.token_ids), spans, digest, row.weight, row.policy_version]


def trained_from(event: RunEvent) -> TrainedBatch:
    """The step that an event ``trained`` is about."""
    data: Mapping[str, Any] = event.data
    return TrainedBatch(
        sequence=event.sequence,
        iteration=event.iteration,
        update=data["update"],
        policy_version=data["policy_version"],
        id=data["batch"],
        rows=tuple(
            TrainedRow(name, tokens, tuple((a, b) for a, b in spans), digest, weight, version)
            for name, tokens, spans, digest, weight, version in data["rows"]
        ),
        demonstrations=data["demonstrations"],
    )
