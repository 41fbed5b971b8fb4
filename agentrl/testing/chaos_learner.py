"""A learner of one linear layer that says itself, row by row, what it has learnt from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError, LearnerError
from agentrl.core.protocols import Scores
from agentrl.core.trajectory import Batch, Row, UpdateStats

__all__ = ["LearntRow", "LinearLearner"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LearntRow:
    """A row whose gradient is in the weights: of which trajectory, and of which of its tokens.

    ``tokens`` are the (position, id) that had a share in the gradient.
    """

    trajectory_id: str
    tokens: tuple[tuple[int, int], ...]


class LinearLearner:
    """Predicts a token from the one before it; plain policy gradient, plain gradient descent.

    With weights W of shape (vocabulary, vocabulary) and the previous token u of token t::

        log pi(t) = log_softmax(W[u])[t],    loss = -1/N * sum(w * A * log pi(t))

    over the N tokens with mask 1. Ids are taken modulo the vocabulary.

    Args:
        vocabulary: Of the layer.
        learning_rate: Of gradient descent.
        on_learnt: Told, after each step, of the rows that made it: collected where their gradients
            are added up, from nothing but the rows.
        on_publish: Told of each new version.
    """

    def __init__(
        self,
        vocabulary: int = 64,
        learning_rate: float = 0.5,
        *,
        on_learnt: Callable[[Sequence[LearntRow]], None] = lambda rows: None,
        on_publish: Callable[[int], None] = lambda version: None,
    ) -> None:
        self.weights: Array = np.zeros((vocabulary, vocabulary))
        self.updates = 0
        self.version = 0
        self._learning_rate = learning_rate
        self._on_learnt = on_learnt
        self._on_publish = on_publish

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        """Make one step per batch.

        Raises:
            DataError: a batch without rows. LearnerError: a gradient that is not finite.
        """
        for batch in batches:
            if not batch.rows:
                raise DataError(f"batch '{batch.id}' has no rows; leave it out")
            gradient, learnt = self._gradient(batch)
            if not np.isfinite(gradient).all():
                raise LearnerError(
                    f"the gradient of batch '{batch.id}' is not finite; look at its advantages"
                )
            self.weights = self.weights - self._learning_rate * gradient
            self.updates += 1
            self._on_learnt(learnt)
            norm = float(np.linalg.norm(gradient))
            on_update(UpdateStats(self.updates, self.version, {"grad_norm": norm}))

    def score(
        self,
        rows: Sequence[Row],
        *,
        hidden_layer: int | None = None,
        actions_only: bool = False,
    ) -> Scores:
        """Log-probabilities of the rows' tokens; there are no hidden states."""
        return Scores([self._score(row, actions_only) for row in rows])

    def publish(self) -> int:
        """Count a new version, and tell of it."""
        self.version += 1
        self._on_publish(self.version)
        return self.version

    def save(self, path: Path) -> None:
        """Write weights and counters to the folder ``path``, whole or not at all."""
        new = path.with_name(f".{path.name}.new")
        for folder in (new, path):
            shutil.rmtree(folder, ignore_errors=True)
        new.mkdir(parents=True)
        np.save(new / "weights.npy", self.weights)
        counters = {"updates": self.updates, "version": self.version}
        (new / "counters.json").write_text(json.dumps(counters))
        new.rename(path)

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote.

        Raises:
            DataError: there is none.
        """
        if not (path / "counters.json").exists():
            raise DataError(f"there is no checkpoint of a linear learner in '{path}'")
        self.weights = np.load(path / "weights.npy", allow_pickle=False)
        counters = json.loads((path / "counters.json").read_text())
        self.updates, self.version = counters["updates"], counters["version"]

    def _gradient(self, batch: Batch) -> tuple[Array, list[LearntRow]]:
        gradient = np.zeros_like(self.weights)
        learnt = []
        total = sum(sum(row.action_mask) for row in batch.rows)
        for row in batch.rows:
            before, after = self._pairs(row)
            places = np.flatnonzero(row.action_mask)
            share = row.weight * np.asarray(row.advantages)[places] / total
            u, t = before[places - 1], after[places - 1]
            error = _softmax(self.weights[u])
            error[np.arange(len(t)), t] -= 1.0  # minus the gradient of log pi
            np.add.at(gradient, u, share[:, None] * error)
            tokens = tuple((int(one), row.token_ids[one]) for one in places)
            learnt.append(LearntRow(row.trajectory_id, tokens))
        return gradient, learnt

    def _score(self, row: Row, actions_only: bool) -> list[float]:
        before, after = self._pairs(row)
        chosen = np.log(_softmax(self.weights[before]))[np.arange(len(after)), after]
        scores = [0.0, *chosen.tolist()]
        if actions_only:
            scores = [s if acted else 0.0 for s, acted in zip(scores, row.action_mask, strict=True)]
        return scores

    def _pairs(self, row: Row) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        ids = np.asarray(row.token_ids, dtype=np.int64) % len(self.weights)
        return ids[:-1], ids[1:]


def _softmax(logits: Array) -> Array:
    shifted: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return shares
