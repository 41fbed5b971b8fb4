"""The learner's loss in plain torch, one token at a time: what TRL's must agree with.

Written from the equations, in float64, without padding, micro-batches or TRL. Slow; for tests, and
for whoever doubts an upgrade of TRL.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch

from agentrl.config import DistillationConfig, LearnerConfig
from agentrl.core.trajectory import Row

__all__ = ["oracle_gradient", "oracle_loss", "oracle_teacher_loss", "oracle_token_loss"]


def oracle_token_loss(
    logprob: torch.Tensor,
    *,
    behaviour: float | None,
    advantage: float,
    weight: float,
    config: LearnerConfig,
    proximal: float | None = None,
    answer_mean: float = 0.0,
    reference: float | None = None,
) -> torch.Tensor:
    """Loss of one sampled token.

    With ``d = logprob - behaviour`` (0 with the gradient of ``logprob`` without behaviour policy),
    ``r = exp(d)``, ``clip`` to ``[1 - low, 1 + high]``, ``sg`` for stop_gradient::

        dapo        -w min(r a, clip(r) a);     r <= dual_clip where a < 0
        cispo       -w sg(min(r, 1 + high)) a logprob
        loop        dapo with the clip [1 / (1 + high), 1 + high]
        no_ratio    -w a logprob / (1 + tau)
        gspo_token  dapo with r = sg(exp(min(answer_mean, 10))) exp(logprob - sg(logprob))
        cpgd        w (max(-a d, -a min(max(d, log(1 - low)), log(1 + high))) + drift (r - 1 - d))
        decoupled   v = exp(proximal - behaviour), 0 above weight_cap;  r = exp(logprob - proximal)
                    v times dapo;    proximal None: sg(logprob)
        KL          + coefficient r (exp(k) - k - 1),   k = reference - logprob
                    (r = exp(d); of value 1 for no_ratio). It bears no weight

    Log-ratios are limited to [-20, 20] in ratios. Sources: see ``agentrl.learn.objectives``.

    Args:
        logprob: Of the policy, with gradient.
        behaviour: Of the policy that sampled. proximal: of the policy the updates began with.
        advantage: Of the token. weight: of its row.
        config: The loss and its settings.
        answer_mean: Mean of d over the tokens of the same answer.
        reference: Of the reference model, if there is a KL term.
    """
    now = logprob.detach()
    old = now if behaviour is None else logprob.new_tensor(behaviour)
    ratio = _ratio(logprob, old)
    a, w = advantage, weight
    if config.loss == "cispo":
        loss = -w * ratio.detach().clamp(max=1 + _setting(config, "epsilon_high")) * a * logprob
    elif config.loss == "no_ratio":
        loss = -w * a * logprob / (1 + _setting(config, "tau"))
    elif config.loss == "cpgd":
        low = math.log(1 - _setting(config, "epsilon_low"))
        high = math.log(1 + _setting(config, "epsilon_high"))
        d = logprob - old
        surrogate = torch.maximum(-a * d, -a * d.clamp(low, high))
        loss = w * (surrogate + _setting(config, "drift") * (ratio - 1 - d))
    elif config.loss == "gspo_token":
        of_answer = math.exp(min(answer_mean, 10.0)) * torch.exp(logprob - now)
        loss = w * _clipped_loss(of_answer, a, config)
    elif config.loss == "decoupled" and behaviour is not None:
        near = now if proximal is None else logprob.new_tensor(proximal)
        correction = float(_ratio(near, old))
        if correction > _setting(config, "weight_cap"):
            correction = 0.0
        loss = w * correction * _clipped_loss(_ratio(logprob, near), a, config)
    else:
        loss = w * _clipped_loss(ratio, a, config)
    if reference is not None:
        k = reference - logprob
        factor = torch.exp(logprob - now) if config.loss == "no_ratio" else ratio
        loss = loss + config.kl_coefficient * factor * (k.exp() - k - 1)
    return loss


def oracle_teacher_loss(
    logprob: torch.Tensor, *, behaviour: float | None, teacher: float, config: DistillationConfig
) -> torch.Tensor:
    """Loss of one token that a teacher scored; see ``agentrl.learn.terms``."""
    now = logprob.detach()
    old = now if behaviour is None else logprob.new_tensor(behaviour)
    if config.kind == "gated":
        gate = 1 / (1 + math.exp(-config.beta * (teacher - float(now))))
        return gate * (teacher - logprob)
    bound = math.inf if config.clip is None else config.clip
    liking = teacher - old
    if config.kind == "delta":
        return -liking.clamp(-bound, bound) * logprob
    return -(liking * _ratio(logprob, old)).clamp(-bound, bound)


def oracle_loss(
    model: Any,
    rows: Sequence[Row],
    config: LearnerConfig,
    *,
    temperature: float,
    reference: Any = None,
) -> torch.Tensor:
    """Mean of the token losses over all sampled tokens of ``rows``; see ``oracle_token_loss``.

    Distillation adds its coefficient times the mean of ``oracle_teacher_loss`` over the sampled
    tokens that have a teacher, weighted by the weights of their rows.

    Args:
        model: A causal language model, best in float64.
        rows: All rows of one update.
        config: Loss, clipping and KL coefficient.
        temperature: Of the policy.
        reference: Frozen model of the KL term; needed if ``kl_coefficient`` is above 0.
    """
    losses: list[torch.Tensor] = []
    taught: list[tuple[float, torch.Tensor]] = []
    for row in rows:
        anchors = None
        if config.kl_coefficient > 0:
            with torch.no_grad():
                anchors = [0.0, *_logprobs(reference, row, temperature).tolist()]
        logprobs = _logprobs(model, row, temperature)
        losses += _row_losses(row, logprobs, anchors, config)
        if config.distillation is not None:
            taught += _row_teacher_losses(row, logprobs, config.distillation)
    loss = torch.stack(losses).mean()
    if config.distillation is not None and taught:
        weighted = torch.stack([weight * one for weight, one in taught]).sum()
        loss = loss + config.distillation.coefficient * weighted / sum(one for one, _ in taught)
    return loss


def _row_losses(
    row: Row, logprobs: torch.Tensor, anchors: Sequence[float] | None, config: LearnerConfig
) -> list[torch.Tensor]:
    means = _answer_means(row, [0.0, *logprobs.tolist()])
    old, near = row.behaviour_logprobs, row.proximal_logprobs
    return [
        oracle_token_loss(
            logprobs[position - 1],
            behaviour=None if old is None else old[position],
            advantage=row.advantages[position],
            weight=row.weight,
            config=config,
            proximal=None if near is None else near[position],
            answer_mean=means[position],
            reference=None if anchors is None else anchors[position],
        )
        for position, sampled in enumerate(row.action_mask)
        if sampled
    ]


def _row_teacher_losses(
    row: Row, logprobs: torch.Tensor, config: DistillationConfig
) -> list[tuple[float, torch.Tensor]]:
    """Weight and loss of each sampled token that a teacher scored."""
    found = []
    for position, teacher in enumerate(row.teacher_logprobs or ()):
        if teacher is not None and row.action_mask[position]:
            old = row.behaviour_logprobs
            loss = oracle_teacher_loss(
                logprobs[position - 1],
                behaviour=None if old is None else old[position],
                teacher=teacher,
                config=config,
            )
            found.append((row.weight, loss))
    return found


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


def _setting(config: LearnerConfig, name: str) -> float:
    value = config.of_loss(name)
    return math.inf if value is None else value


def _ratio(logprob: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """``exp`` of the difference, which is limited in value and keeps its gradient."""
    difference = logprob - old
    excess = (difference - difference.clamp(-20.0, 20.0)).detach()
    return torch.exp(difference - excess)


def _clipped_loss(ratio: torch.Tensor, advantage: float, config: LearnerConfig) -> torch.Tensor:
    high = 1 + _setting(config, "epsilon_high")
    low = 1 / high if config.loss == "loop" else 1 - _setting(config, "epsilon_low")
    clipped = ratio.clamp(low, high)
    if config.loss in ("dapo", "decoupled") and advantage < 0:
        ratio = ratio.clamp(max=_setting(config, "dual_clip"))
    return -torch.minimum(ratio * advantage, clipped * advantage)


def _answer_means(row: Row, logprobs: Sequence[float]) -> list[float]:
    """Mean log-ratio of the run of sampled tokens that each token belongs to."""
    means, run = [0.0] * len(row.token_ids), list[int]()
    if row.behaviour_logprobs is None:
        return means
    for position, sampled in enumerate([*row.action_mask, 0]):
        if sampled:
            run.append(position)
        elif run:
            apart = [logprobs[one] - row.behaviour_logprobs[one] for one in run]
            for one in run:
                means[one] = sum(apart) / len(run)
            run = []
    return means


def _logprobs(model: Any, row: Row, temperature: float) -> torch.Tensor:
    """Log-probability of tokens 1, 2, ... of a row, shape (tokens - 1,)."""
    token_ids = torch.tensor([row.token_ids])
    logits = model(input_ids=token_ids).logits[0, :-1]
    normalised = torch.log_softmax(logits / temperature, dim=-1)
    return torch.stack([normalised[place, token] for place, token in enumerate(row.token_ids[1:])])
