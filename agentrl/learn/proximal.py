"""The policy at the start of an iteration's updates: what the decoupled loss clips against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentrl.core.protocols import Learner
from agentrl.core.trajectory import Batch, Row

__all__ = ["with_proximal_logprobs"]


def with_proximal_logprobs(batches: Sequence[Batch], learner: Learner) -> tuple[Batch, ...]:
    """The batches of one iteration with ``proximal_logprobs``, from the learner as it is now.

    To be called before the first of them is trained on. Costs one forward pass of the action tokens
    of rows that will need it: the first batch needs none (the learner as it then is *is* the
    proximal policy), nor do rows whose advantages are all 0. So one update per iteration is free.

    Args:
        batches: In the order they will be trained on, whatever versions sampled their rows.
        learner: Scores them, once.
    """
    read = [
        (place, position)
        for place, batch in enumerate(batches)
        for position, row in enumerate(batch.rows)
        if place and _reads_it(row)
    ]
    if not read:
        return tuple(batches)
    rows = [list(batch.rows) for batch in batches]
    scores = learner.score([rows[place][position] for place, position in read], actions_only=True)
    for (place, position), logprobs in zip(read, scores.logprobs, strict=True):
        row = rows[place][position]
        rows[place][position] = replace(row, proximal_logprobs=tuple(logprobs))
    return tuple(replace(batch, rows=tuple(of)) for batch, of in zip(batches, rows, strict=True))


def _reads_it(row: Row) -> bool:
    return row.behaviour_logprobs is not None and any(row.advantages)
