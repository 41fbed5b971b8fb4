"""The step part: steps taken from one state against each other. Shared by GiGPO and its kin."""

from __future__ import annotations

from itertools import compress
from operator import attrgetter

import numpy as np

from agentrl.core.errors import DataError
from agentrl.credit.columns import Columns
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Labels,
    RowError,
    exact_partition,
    invalid_action_penalty,
    normalise,
    similarity_partition,
    step_returns,
)
from agentrl.credit.options import StateOptions, lone_get_zero

__all__ = ["penalised_returns", "state_part", "state_partition"]


def state_partition(
    columns: Columns, *, similarity: float | None = None, reference: bool = False
) -> Labels:
    """Which steps share a state, shape (M,); -1 for steps that are compared with nothing.

    Args:
        columns: The steps.
        similarity: Threshold of ``similarity_partition``; ``None``: equal anchors only. Steps are
            taken in the order of (trial, index), which no shuffling of the records changes; in
            reference mode in the order given.
        reference: Behave as the published code does.

    Raises:
        DataError: an anchor is not JSON-like, or (with ``similarity``) not text: names the step.
    """
    rows = columns.rows
    if similarity is not None and not reference:
        rows = rows[np.lexsort((columns.index[rows], columns.trajectory[rows]))]
    group = columns.group[rows]
    labels = np.full(len(columns.act), -1, dtype=np.int64)
    try:
        if similarity is None:
            anchors = map(attrgetter("anchor"), compress(columns.steps, columns.act.tolist()))
            labels[rows] = exact_partition(anchors, group, reference=reference)
        else:
            steps = tuple(columns.steps)
            texts = [steps[row].anchor for row in rows.tolist()]
            labels[rows] = similarity_partition(texts, group, similarity, reference=reference)
    except RowError as error:
        raise DataError(f"{columns.where(int(rows[error.row]))}: {error}") from None
    return labels


def penalised_returns(columns: Columns, options: StateOptions) -> Array:
    """G' of the acts, shape (M,): their discounted return less their penalty; 0 elsewhere."""
    rows = columns.rows
    returns = step_returns(
        columns.reward[rows], columns.trajectory[rows], columns.index[rows], options.discount
    )
    penalty = invalid_action_penalty(columns.valid[rows], options.invalid_action_penalty)
    return columns.on_steps(returns - penalty)


def state_part(
    columns: Columns,
    states: Labels,
    options: StateOptions,
    returns: Array | None = None,
) -> Array:
    """A_S, shape (M,): ``normalise(G'; steps of the same state)``, ddof 1, not yet weighted.

    A state seen once gives 0, and so does every state of a group of one trajectory unless
    ``singleton`` is ``raw``.

    Source: GiGPO, Eq. 6-7 (arXiv 2505.10978).

    Args:
        columns: The steps.
        states: Which steps share a state, shape (M,); -1: compared with nothing.
        options: The estimator whose options these are.
        returns: Replaces G', shape (M,).
    """
    part = normalise(
        penalised_returns(columns, options) if returns is None else returns,
        states,
        normaliser=options.normaliser,
        ddof=1,
        epsilon=options.epsilon,
        singleton="zero",
        tolerance=None if options.reference else EQUAL_TOLERANCE,
    )
    return np.where(columns.alone, 0.0, part) if lone_get_zero(options) else part
