"""Scores of whole rows: what annotators ask of the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.protocols import Scores
from agentrl.core.trajectory import Row
from agentrl.learn.logprobs import TokenScores, pad_right
from agentrl.learn.plan import plan_micro_batches

__all__ = ["ScoreTokens", "score_rows"]

ScoreTokens = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], TokenScores]
"""(token ids, which to score, which are no pads), all (rows, length) -> scores of the chosen."""


@torch.no_grad()
def score_rows(
    model: Any,
    rows: Sequence[Row],
    *,
    score: ScoreTokens,
    budget_tokens: int,
    hidden_layer: int | None = None,
    actions_only: bool = False,
) -> Scores:
    """Log-probability of the tokens of every row; see ``TrlLearner.score``.

    Raises:
        ConfigError: the model has no such hidden layer.
        DataError: a row is empty.
    """
    if any(not row.token_ids for row in rows):
        raise DataError("cannot score a row without tokens")
    lengths = [len(row.token_ids) for row in rows]
    logprobs: list[list[float]] = [[] for _ in rows]
    hidden: list[npt.NDArray[np.float32] | None] = [None] * len(rows)
    for positions in plan_micro_batches(lengths, budget_tokens=budget_tokens):
        token_ids = pad_right(
            [rows[one].token_ids for one in positions], dtype=torch.long, device=model.device
        )
        attended = pad_right(
            [[1] * lengths[one] for one in positions], dtype=torch.long, device=model.device
        )
        chosen = attended.bool()
        if actions_only:
            chosen = pad_right(
                [rows[one].action_mask for one in positions], dtype=torch.bool, device=model.device
            )
        chosen[:, 0] = False
        found = score(token_ids, chosen, attended).logprobs
        spread = found.new_zeros(chosen.shape).masked_scatter(chosen, found).tolist()
        for one, values in zip(positions, spread, strict=True):
            logprobs[one] = values[: lengths[one]]
        if hidden_layer is not None:
            states = _hidden(model, token_ids, attended, hidden_layer)
            for state, one in zip(states, positions, strict=True):
                before = np.zeros((lengths[one], state.shape[1]), np.float32)
                before[1:] = state[: lengths[one] - 1].float().cpu().numpy()
                hidden[one] = before
    return Scores(logprobs, hidden if hidden_layer is not None else None)


def _hidden(
    model: Any, token_ids: torch.Tensor, attended: torch.Tensor, layer: int
) -> torch.Tensor:
    output = model.base_model(
        input_ids=token_ids, attention_mask=attended, use_cache=False, output_hidden_states=True
    )
    count = len(output.hidden_states)
    if not -count <= layer < count:
        raise ConfigError(
            f"hidden_layer={layer} does not exist; this model has 0 (embedding) to {count - 1}"
        )
    states: torch.Tensor = output.hidden_states[layer]
    return states
