"""Draws one token per row, each row from a random stream of its own.

The uniform number of a draw is a hash of (key of the request, number of the token), so it depends
neither on the batch nor on the order of drawing, and costs the same for one row as for a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from agentrl.core.trajectory import Sampling

__all__ = ["draw", "stream_key", "uniforms"]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stream_key(seed: int) -> int:
    """64 bits that name the stream of ``seed`` (any integer): one round of splitmix64."""
    mixed = (seed + _STEP) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 31)


def uniforms(keys: Sequence[int], places: Sequence[int]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1), the ``places[i]``-th of stream ``keys[i]``; 48 random bits each.

    splitmix64 (Steele, Lea and Flood, 2014) as a counter-based generator.
    """
    state = np.array(keys, np.uint64) + (np.array(places, np.uint64) + 1) * np.uint64(_STEP)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    drawn: npt.NDArray[np.float64] = (state >> np.uint64(16)) * 2.0**-48
    return drawn


def draw(
    logits: torch.Tensor, sampling: Sequence[Sampling], uniform: npt.NDArray[np.float64]
) -> tuple[list[int], list[float]]:
    """Draw a token per row, and its log-probability.

    The token is the inverse of the cumulative distribution at ``uniform``, over the tokens that
    ``top_k`` and then ``top_p`` leave. Its log-probability is that of the full distribution::

        log softmax(logits / temperature)[token]

    At temperature 0 the token is the most probable one (the first of equals), and its
    log-probability that of temperature 1.

    Args:
        logits: Shape (B, V).
        sampling: One per row. uniform: numbers in [0, 1), shape (B,).

    Returns:
        Ids and log-probabilities. A row whose logits are NaN or infinite has log-probability NaN.
    """
    temperatures = [one.temperature for one in sampling]
    scale = logits.new_tensor([one or 1.0 for one in temperatures], dtype=torch.float32)
    logprobs = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    weights = logprobs.exp()
    cut = [row for row, one in enumerate(sampling) if one.top_k > 0 or one.top_p < 1]
    if cut:
        weights[cut] = _truncated(weights[cut], [sampling[row] for row in cut])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    target = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    greedy = [one == 0 for one in temperatures]
    if any(greedy):
        best = logprobs.argmax(dim=-1, keepdim=True)
        ids = torch.where(torch.tensor(greedy, device=ids.device)[:, None], best, ids)
    chosen = logprobs.gather(1, ids)[:, 0]
    return ids[:, 0].tolist(), chosen.tolist()


def _truncated(weights: torch.Tensor, sampling: Sequence[Sampling]) -> torch.Tensor:
    """Weights, 0 outside each row's ``top_k`` most probable tokens, then outside its nucleus.

    The nucleus (Holtzman et al., 2020) is the smallest set of most probable tokens whose share of
    what ``top_k`` left is at least ``top_p``.
    """
    size = weights.shape[-1]
    top_k = torch.tensor([one.top_k or size for one in sampling], device=weights.device)
    top_p = torch.tensor([_uncut(one.top_p) for one in sampling], device=weights.device)
    ordered, order = weights.sort(dim=-1, descending=True, stable=True)
    ordered[torch.arange(size, device=weights.device) >= top_k[:, None]] = 0
    before = ordered.cumsum(dim=-1) - ordered
    ordered[before >= top_p[:, None] * ordered.sum(dim=-1, keepdim=True)] = 0
    return torch.zeros_like(weights).scatter_(-1, order, ordered)


def _uncut(top_p: float) -> float:
    """1 means all: rounding must not cut the tail."""
    return top_p if top_p < 1 else float("inf")
