"""Rows as the tensors of one forward and backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Row
from agentrl.learn.logprobs import pad_right
from agentrl.learn.plan import plan_micro_batches

__all__ = ["MicroBatch", "check_rows", "cut", "rows_to_compute", "taught_tokens"]


PER_TOKEN = (
    "action_mask",
    "behaviour_logprobs",
    "advantages",
    "proximal_logprobs",
    "teacher_logprobs",
)


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
        proximal: Those under the policy at the start of the updates; ``None``: the present one.
        teacher: Those under a teacher, 0 where ``taught`` is False; ``None`` like ``taught``.
        taught: Action tokens that the teacher scored, bool, shape (B, T - 1); ``None`` if no row
            has any.
    """

    token_ids: torch.Tensor
    chosen: torch.Tensor
    attended: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    behaviour: torch.Tensor | None
    proximal: torch.Tensor | None
    teacher: torch.Tensor | None
    taught: torch.Tensor | None

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
        for name in PER_TOKEN:
            field = getattr(row, name)
            if field is not None and len(field) != length:
                raise DataError(f"{where} has {length} tokens but {len(field)} {name}")
        if not length or row.action_mask[0]:
            raise DataError(
                f"{where} is empty or its first token is an action: no token precedes it, so it "
                "has no probability. A prompt must not be empty"
            )


def taught_tokens(row: Row) -> tuple[bool, ...]:
    """Which tokens of a row are actions that a teacher scored."""
    given = row.teacher_logprobs or (None,) * len(row.token_ids)
    return tuple(
        bool(sampled) and one is not None
        for sampled, one in zip(row.action_mask, given, strict=True)
    )


def rows_to_compute(
    rows: Sequence[Row], *, every_action: bool, distilled: bool = False
) -> tuple[Row, ...]:
    """Rows that can have a gradient: with actions, and with an advantage other than 0.

    Args:
        rows: All rows of an update.
        every_action: Keep rows whose advantages are all 0; a KL term or CPGD's drift gives them a
            gradient.
        distilled: Keep rows that a teacher scored.
    """
    return tuple(
        row
        for row in rows
        if any(row.action_mask)
        and (every_action or any(row.advantages) or (distilled and any(taught_tokens(row))))
    )


def cut(
    rows: Sequence[Row], *, budget_tokens: int, device: torch.device, dtype: torch.dtype
) -> Iterator[MicroBatch]:
    """Micro-batches of all rows.

    Rows with and without a behaviour policy are never mixed, nor with and without a proximal one.
    """
    kinds = {(row.behaviour_logprobs is None, row.proximal_logprobs is None) for row in rows}
    for kind in sorted(kinds):
        part = [
            row
            for row in rows
            if (row.behaviour_logprobs is None, row.proximal_logprobs is None) == kind
        ]
        lengths = [len(row.token_ids) for row in part]
        for positions in plan_micro_batches(lengths, budget_tokens=budget_tokens):
            yield _tensors([part[position] for position in positions], device, dtype)


def _tensors(rows: Sequence[Row], device: torch.device, dtype: torch.dtype) -> MicroBatch:
    chosen = pad_right([row.action_mask for row in rows], dtype=torch.bool, device=device)
    weight = torch.tensor([[row.weight] for row in rows], dtype=dtype).to(device)

    def on_actions(columns: Sequence[Sequence[float] | None]) -> torch.Tensor | None:
        """One value per token; 0 off actions, whatever the rows hold there."""
        if any(one is None for one in columns):
            return None
        values = pad_right([one or () for one in columns], dtype=dtype, device=device)
        return values.masked_fill(~chosen, 0.0)[:, 1:]

    teacher = taught = None
    if any(row.teacher_logprobs is not None for row in rows):
        taught = pad_right([taught_tokens(row) for row in rows], dtype=torch.bool, device=device)
        taught = taught[:, 1:]
        teacher = on_actions([_filled(row) for row in rows])
    advantages = on_actions([row.advantages for row in rows])
    assert advantages is not None
    return MicroBatch(
        token_ids=pad_right([row.token_ids for row in rows], dtype=torch.long, device=device),
        chosen=chosen,
        attended=pad_right(
            [[1] * len(row.token_ids) for row in rows], dtype=torch.long, device=device
        ),
        advantages=advantages * weight,
        weights=(chosen * weight)[:, 1:],
        behaviour=on_actions([row.behaviour_logprobs for row in rows]),
        proximal=on_actions([row.proximal_logprobs for row in rows]),
        teacher=teacher,
        taught=taught,
    )


def _filled(row: Row) -> list[float]:
    """The teacher's log-probabilities with 0 where there is none."""
    return [one or 0.0 for one in row.teacher_logprobs or (None,) * len(row.token_ids)]
