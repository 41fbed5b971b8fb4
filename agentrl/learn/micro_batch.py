"""Rows as the tensors of one forward and backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Row
from agentrl.learn.logprobs import pad_right
from agentrl.learn.plan import plan_micro_batches

__all__ = ["MicroBatch", "check_rows", "cut", "rows_to_compute"]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows padded on the right; B rows, T tokens of the longest.

    The first token of a row is never scored, so per-token tensors start at the second.

    Attributes:
        token_ids: Shape (B, T).
        chosen: Which tokens are actions, bool, shape (B, T).
        attended: 1 on tokens, 0 on pads, shape (B, T).
        advantages: Weight times advantage, shape (B, T - 1).
        weights: Weight where ``chosen``, else 0, shape (B, T - 1).
        behaviour: Log-probabilities under the sampling policy, shape (B, T - 1); ``None`` for
            demonstrations.
    """

    token_ids: torch.Tensor
    chosen: torch.Tensor
    attended: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    behaviour: torch.Tensor | None

    @property
    def scored(self) -> torch.Tensor:
        """``chosen`` without its first column, shape (B, T - 1)."""
        return self.chosen[:, 1:]


def check_rows(rows: Sequence[Row]) -> None:
    """Refuse rows that cannot be trained on.

    Raises:
        DataError: a row has a field of another length than its tokens, or its first token is an
            action.
    """
    for row in rows:
        length = len(row.token_ids)
        where = f"a row of trajectory {row.trajectory_id}"
        for name in ("action_mask", "behaviour_logprobs", "advantages"):
            field = getattr(row, name)
            if field is not None and len(field) != length:
                raise DataError(f"{where} has {length} tokens but {len(field)} {name}")
        if not length or row.action_mask[0]:
            raise DataError(
                f"{where} is empty or its first token is an action: no token precedes it, so it "
                "has no probability. A prompt must not be empty"
            )


def rows_to_compute(rows: Sequence[Row], *, every_action: bool) -> tuple[Row, ...]:
    """Rows that can have a gradient: with actions, and with an advantage other than 0.

    If no row has one, the shortest row with actions: an update without signal is still an
    optimiser step, with a gradient of 0.

    Args:
        rows: All rows of an update.
        every_action: Keep rows whose advantages are all 0; a KL term gives them a gradient.
    """
    acting = tuple(row for row in rows if any(row.action_mask))
    if every_action or not acting:
        return acting
    busy = tuple(row for row in acting if any(row.advantages))
    return busy or (min(acting, key=lambda row: len(row.token_ids)),)


def cut(
    rows: Sequence[Row], *, budget_tokens: int, device: torch.device, dtype: torch.dtype
) -> Iterator[MicroBatch]:
    """Micro-batches of all rows; rows with and without a behaviour policy are never mixed."""
    for sampled in (True, False):
        part = [row for row in rows if (row.behaviour_logprobs is not None) is sampled]
        lengths = [len(row.token_ids) for row in part]
        for positions in plan_micro_batches(lengths, budget_tokens=budget_tokens):
            yield _tensors([part[position] for position in positions], device, dtype)


def _tensors(rows: Sequence[Row], device: torch.device, dtype: torch.dtype) -> MicroBatch:
    chosen = pad_right([row.action_mask for row in rows], dtype=torch.bool, device=device)
    weight = torch.tensor([[row.weight] for row in rows], dtype=dtype).to(device)
    advantages = pad_right([row.advantages for row in rows], dtype=dtype, device=device)
    behaviour = None
    if rows[0].behaviour_logprobs is not None:
        logprobs = [row.behaviour_logprobs or () for row in rows]
        behaviour = pad_right(logprobs, dtype=dtype, device=device)[:, 1:]
    return MicroBatch(
        token_ids=pad_right([row.token_ids for row in rows], dtype=torch.long, device=device),
        chosen=chosen,
        attended=pad_right(
            [[1] * len(row.token_ids) for row in rows], dtype=torch.long, device=device
        ),
        advantages=(advantages * weight)[:, 1:],
        weights=(chosen * weight)[:, 1:],
        behaviour=behaviour,
    )
