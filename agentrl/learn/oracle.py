"""The learner's loss in plain torch, one token at a time: what TRL's must agree with.

Written from the equations, in float64, without padding, micro-batches or TRL. Slow; for tests, and
for whoever doubts an upgrade of TRL.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from agentrl.config import LearnerConfig
from agentrl.core.trajectory import Row

__all__ = ["oracle_gradient", "oracle_loss", "oracle_token_loss"]


def oracle_token_loss(
    logprob: torch.Tensor,
    *,
    behaviour: float | None,
    advantage: float,
    weight: float,
    config: LearnerConfig,
    reference: float | None = None,
) -> torch.Tensor:
    """Loss of one sampled token.

    With ratio ``r = exp(logprob - behaviour)`` (or, without behaviour policy, ``r`` of value 1 and
    the gradient of ``logprob``)::

        dapo:   -w * min(r a, clip(r, 1 - low, 1 + high) a)
        cispo:  -w * stop_gradient(min(r, 1 + high)) a logprob
        KL:     + coefficient * r (exp(d) - d - 1),    d = reference - logprob

    Sources: DAPO (arXiv 2503.14476) Eq. 8; CISPO (arXiv 2506.13585) Eq. 4-5, whose ratio is capped
    above only, as in TRL; the KL term is the k3 estimator times the ratio (DeepSeek-V3.2), so that
    its gradient is that of KL(policy || reference) also off policy. It bears no weight.
    """
    old = logprob.detach() if behaviour is None else logprob.new_tensor(behaviour)
    ratio = torch.exp(logprob - old)
    if config.loss == "dapo":
        clipped = ratio.clamp(1 - config.epsilon_low, 1 + config.epsilon_high)
        loss = -weight * torch.minimum(ratio * advantage, clipped * advantage)
    else:
        capped = ratio.detach().clamp(max=1 + config.epsilon_high)
        loss = -weight * capped * advantage * logprob
    if reference is not None:
        difference = reference - logprob
        loss = loss + config.kl_coefficient * ratio * (difference.exp() - difference - 1)
    return loss


def oracle_loss(
    model: Any,
    rows: Sequence[Row],
    config: LearnerConfig,
    *,
    temperature: float,
    reference: Any = None,
) -> torch.Tensor:
    """Mean of the token losses over all sampled tokens of ``rows``; see ``oracle_token_loss``.

    Args:
        model: A causal language model, best in float64.
        rows: All rows of one update.
        config: Loss, clipping and KL coefficient.
        temperature: Of the policy.
        reference: Frozen model of the KL term; needed if ``kl_coefficient`` is above 0.
    """
    losses = []
    for row in rows:
        logprobs = _logprobs(model, row, temperature)
        anchors = None
        if config.kl_coefficient > 0:
            with torch.no_grad():
                anchors = _logprobs(reference, row, temperature)
        for position, sampled in enumerate(row.action_mask):
            if sampled:
                old = row.behaviour_logprobs
                losses.append(
                    oracle_token_loss(
                        logprobs[position - 1],
                        behaviour=None if old is None else old[position],
                        advantage=row.advantages[position],
                        weight=row.weight,
                        config=config,
                        reference=None if anchors is None else float(anchors[position - 1]),
                    )
                )
    return torch.stack(losses).mean()


def oracle_gradient(
    model: Any,
    rows: Sequence[Row],
    config: LearnerConfig,
    *,
    temperature: float,
    reference: Any = None,
) -> dict[str, torch.Tensor]:
    """Gradient of ``oracle_loss`` by parameter name, float64; ``model`` itself is left alone."""
    precise = copy.deepcopy(model).double().eval().requires_grad_(True)
    frozen = None if reference is None else copy.deepcopy(reference).double().eval()
    loss = oracle_loss(precise, rows, config, temperature=temperature, reference=frozen)
    loss.backward()  # type: ignore[no-untyped-call]
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad
        for name, one in precise.named_parameters()
    }


def _logprobs(model: Any, row: Row, temperature: float) -> torch.Tensor:
    """Log-probability of tokens 1, 2, ... of a row, shape (tokens - 1,)."""
    token_ids = torch.tensor([row.token_ids])
    logits = model(input_ids=token_ids).logits[0, :-1]
    normalised = torch.log_softmax(logits / temperature, dim=-1)
    return torch.stack([normalised[place, token] for place, token in enumerate(row.token_ids[1:])])
