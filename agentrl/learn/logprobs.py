"""Log-probabilities of chosen tokens under a causal language model, and nothing more than those.

Observations outnumber actions, so the vocabulary head runs only where a token is asked for. Rows
are padded on the right: under causal attention no real token sees a pad, so no attention mask is
needed and the fast causal kernel serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import log_softmax
from torch.utils.checkpoint import checkpoint

__all__ = ["TokenScores", "chosen_logprobs", "has_plain_head", "pad_right"]

# Above this many logits (positions x vocabulary) they are made in pieces and again in the backward
# pass: 2**26 float32 values are 256 MiB.
LOGITS_AT_ONCE = 2**26
# Names under which model families scale or cap their logits outside the head.
LOGIT_TRANSFORMS = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Of n chosen tokens, in row-major order: log-probabilities and entropies (no gradient)."""

    logprobs: torch.Tensor
    entropies: torch.Tensor


def pad_right(
    sequences: Sequence[Sequence[Any]], *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Sequences as one tensor, shape (rows, longest), zeros after the end of each."""
    longest = max(map(len, sequences))
    padded = [list(one) + [0] * (longest - len(one)) for one in sequences]
    return torch.tensor(padded, dtype=dtype).to(device)


def has_plain_head(model: Any) -> bool:
    """Whether the logits are just the output embedding of the last hidden state."""
    text = model.config.get_text_config()
    return all(getattr(text, name, None) in (None, 1, 1.0) for name in LOGIT_TRANSFORMS)


def chosen_logprobs(
    model: Any, token_ids: torch.Tensor, chosen: torch.Tensor, *, temperature: float
) -> TokenScores:
    """Score ``token_ids[chosen]`` given what precedes each, at ``temperature``.

    Computes ``log softmax(logits / temperature)`` in float32 (float64 for a float64 model).

    Args:
        model: A causal language model of transformers with a plain head.
        token_ids: Rows padded on the right, shape (rows, length).
        chosen: Which tokens to score, bool of the same shape; the first column must be False.
        temperature: Temperature the tokens were sampled at, above 0.

    Returns:
        n scores, n the number of True in ``chosen``.
    """
    states = model.base_model(input_ids=token_ids, use_cache=False).last_hidden_state
    return score_states(
        model, states[:, :-1][chosen[:, 1:]], token_ids[chosen], temperature=temperature
    )


def score_states(
    model: Any, states: torch.Tensor, targets: torch.Tensor, *, temperature: float
) -> TokenScores:
    """Score ``targets``, shape (n,), given the hidden state before each, shape (n, width)."""
    head = model.get_output_embeddings()

    def score(part: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(part)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        every = log_softmax(logits if temperature == 1.0 else logits / temperature, dim=-1)
        with torch.no_grad():
            entropies = -(every.exp() * every).sum(-1)
        return every.gather(1, tokens[:, None]).squeeze(1), entropies

    rows = max(1, LOGITS_AT_ONCE // head.weight.shape[0])
    if len(targets) <= rows:
        return TokenScores(*score(states, targets))
    pieces = [
        checkpoint(
            score,
            states[start : start + rows],
            targets[start : start + rows],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start in range(0, len(targets), rows)
    ]
    return TokenScores(*(torch.cat([piece[index] for piece in pieces]) for index in (0, 1)))
