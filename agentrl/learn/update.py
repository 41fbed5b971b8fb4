"""A batch as the learner computes it: what is trained, what is counted, what is refused."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.config import LearnerConfig
from agentrl.core.errors import DataError
from agentrl.core.trajectory import Batch, Row
from agentrl.learn.micro_batch import check_rows, rows_to_compute, taught_tokens

__all__ = ["Update", "prepare_update"]


@dataclass(frozen=True, slots=True)
class Update:
    """The rows of one optimiser step.

    Attributes:
        batch: As it was given.
        rows: Those that can have a gradient; none: there is nothing to learn from the batch.
        action_tokens: Sampled tokens of all rows, the denominator of the loss.
        taught_tokens: Those of them that a teacher scored, if there is a distillation term.
        taught_weight: Sum of their weights, the denominator of that term.
    """

    batch: Batch
    rows: tuple[Row, ...]
    action_tokens: int
    taught_tokens: int = 0
    taught_weight: float = 0.0

    def sizes(self) -> dict[str, float]:
        """What is reported about the rows."""
        every = self.batch.rows
        return {
            "action_tokens": float(self.action_tokens),
            "taught_tokens": float(self.taught_tokens),
            "tokens": float(sum(len(row.token_ids) for row in every)),
            "rows": float(len(every)),
            "rows_skipped": float(len(every) - len(self.rows)),
        }


def prepare_update(batch: Batch, config: LearnerConfig) -> Update:
    """Check a batch and count it.

    Raises:
        DataError: no sampled token, a row that does not fit, or some rows with and some without
            the proximal log-probabilities that the loss reads.
    """
    check_rows(batch.rows)
    action_tokens = sum(sum(row.action_mask) for row in batch.rows)
    if not action_tokens:
        raise DataError(f"batch '{batch.id}' has no action token; leave such batches out")
    distilled = config.distillation is not None
    rows = rows_to_compute(batch.rows, every_action=_acts_on_all(config), distilled=distilled)
    if config.loss == "decoupled":
        _check_proximal(batch)
    if not distilled:
        return Update(batch, rows, action_tokens)
    taught = [sum(taught_tokens(row)) for row in rows]
    weight = sum(row.weight * count for row, count in zip(rows, taught, strict=True))
    return Update(batch, rows, action_tokens, sum(taught), weight)


def _acts_on_all(config: LearnerConfig) -> bool:
    """Whether tokens with advantage 0 have a gradient too: of a KL term, or of CPGD's drift."""
    return config.kl_coefficient > 0 or (config.loss == "cpgd" and config.of_loss("drift") != 0)


def _check_proximal(batch: Batch) -> None:
    read = [row for row in batch.rows if row.behaviour_logprobs is not None and any(row.advantages)]
    given = sum(row.proximal_logprobs is not None for row in read)
    if given not in (0, len(read)):
        raise DataError(
            f"batch '{batch.id}' has proximal log-probabilities on {given} of {len(read)} rows; "
            "give them to all or to none (none: the present weights are the proximal ones)"
        )
