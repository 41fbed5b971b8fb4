"""Terms that are added to an objective: distillation, and the KL that TRL cannot give.

All take and give tensors of shape (B, T - 1) with a gradient by ``logprobs``.
"""

from __future__ import annotations

import torch

from agentrl.config import DistillationConfig
from agentrl.learn.objectives import limited

__all__ = ["distillation_losses", "kl_losses"]


def kl_losses(
    logprobs: torch.Tensor,
    reference: torch.Tensor,
    behaviour: torch.Tensor | None,
    *,
    corrected: bool,
) -> torch.Tensor:
    """Estimator of KL(policy || reference) on tokens of the behaviour policy.

    ::

        r (exp(k) - k - 1),    k = reference - logprob,    r = exp(logprob - behaviour)

    It is TRL's own, for objectives in which TRL is given another ratio than that to the behaviour
    policy. Source: k3 of Schulman, with the ratio of DeepSeek-V3.2, which makes its gradient that
    of the KL also off policy.

    Args:
        logprobs: Of the policy. reference: of the reference model.
        behaviour: Of the policy that sampled; ``None``: r is 1 with the gradient of ``logprobs``.
        corrected: With the factor r.
    """
    k = reference - logprobs
    losses = k.exp() - k - 1
    if not corrected:
        return losses
    present = logprobs.detach()
    apart = torch.zeros_like(present) if behaviour is None else limited(present - behaviour)
    return losses * (logprobs - (present - apart)).exp()


def distillation_losses(
    config: DistillationConfig,
    logprobs: torch.Tensor,
    behaviour: torch.Tensor | None,
    teacher: torch.Tensor,
) -> torch.Tensor:
    """Loss of each token towards a teacher, without the coefficient.

    ::

        gated        sg(sigmoid(beta (teacher - logprob))) (teacher - logprob)
        delta        -sg(clip(teacher - behaviour)) logprob
        importance   -clip(sg(teacher - behaviour) exp(logprob - behaviour))

    ``sg`` stops the gradient. ``gated`` only ever raises the probability of what was sampled, most
    where the teacher likes it better; ``delta`` also lowers it. A clipped token has no gradient
    under ``importance``.

    Sources: gated is SEED's (github.com/jinyangwu/SEED), coefficient 0.01 and beta 5 there; the
    others are OPID's (github.com/jinyangwu/OPID), coefficient 0 in its scripts.

    Args:
        config: Which, and its settings.
        logprobs: Of the policy. behaviour: of the policy that sampled; ``None``: the present one.
        teacher: Of the informed policy; any number where it did not score.
    """
    present = logprobs.detach()
    old = present if behaviour is None else behaviour
    if config.kind == "gated":
        return torch.sigmoid(config.beta * (teacher - present)) * (teacher - logprobs)
    bound = float("inf") if config.clip is None else config.clip
    if config.kind == "delta":
        return -(teacher - old).clamp(-bound, bound) * logprobs
    ratios = (logprobs - (present - limited(present - old))).exp()
    return -((teacher - old) * ratios).clamp(-bound, bound)
