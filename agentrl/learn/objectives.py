"""The losses that ``learner.loss`` names, as what TRL's own loss is given to compute them.

Of a sampled token TRL computes, with ratio ``r = exp(logprob - old)``::

    dapo     -min(r A, clip(r, 1 - low, 1 + high) A)
    cispo    -stop_gradient(min(r, 1 + high)) A logprob

An objective chooses which of the two, ``old``, ``A`` (the advantage ``a`` times the weight ``w`` of
the token) and the edges. Where ``old`` is the present log-probability itself, ``r`` is 1 with the
gradient of ``logprob``: then ``A`` alone says what happens, whatever it was made from.

Everywhere ``d`` is ``logprob - behaviour``, the log-ratio to the policy that sampled. In ratios it
is limited to [-20, 20]: beyond, a float32 ratio or its gradient would no longer be a number, and
one broken log-probability would stop the run. Rows without a behaviour policy (demonstrations) have
``d = 0`` with the gradient of ``logprob``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from agentrl.config import LOSS_SETTINGS, LearnerConfig
from agentrl.learn.micro_batch import MicroBatch

__all__ = ["LIMIT", "Objective", "Surrogate", "limited", "objective_of"]

LIMIT = 20.0
ROW_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class Surrogate:
    """What TRL's loss is given for one micro-batch; no gradient, all of shape (B, T - 1).

    Attributes:
        advantages: TRL's ``A``, weight and all.
        old: What the ratio is taken to; ``None``: the present log-probabilities.
        log_ratios: Of the ratio that the objective bounds, for reports; ``None``: there is none.
        clipped: Which tokens have lost their gradient by a clip, if there are ratios.
        losses: Losses of the tokens, where TRL's number has the right gradient and another value.
        shares: More to report: means over the sampled tokens, by name.
    """

    advantages: torch.Tensor
    old: torch.Tensor | None = None
    log_ratios: torch.Tensor | None = None
    clipped: torch.Tensor | None = None
    losses: torch.Tensor | None = None
    shares: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss with its settings resolved.

    Attributes:
        trl_loss: Which loss of TRL's computes it.
        low: Largest distance of a ratio below 1 before the clip; 1: no clip.
        high: Likewise above 1.
        dual_clip: Bound of the ratio where the advantage is negative.
        tau, drift, weight_cap: As in the functions below.
        own_kl: The ratio TRL sees is not ``exp(d)``, so the KL term is not left to TRL.
    """

    trl_loss: Literal["dapo", "cispo"]
    make: Callable[[Objective, MicroBatch, torch.Tensor], Surrogate]
    low: float = 1.0
    high: float = 0.0
    dual_clip: float | None = None
    tau: float = 0.0
    drift: float = 0.0
    weight_cap: float | None = None
    own_kl: bool = False

    def surrogate(self, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
        """What TRL is given, with the present ``logprobs``, shape (B, T - 1), 0 off actions."""
        return self.make(self, micro, logprobs)


def objective_of(config: LearnerConfig) -> Objective:
    """The objective that the configuration names."""
    values = {name: config.of_loss(name) for name in LOSS_SETTINGS[config.loss]}
    low, high = values.pop("epsilon_low", None), values.pop("epsilon_high", None)
    if config.loss == "loop":
        assert high is not None
        low = high / (1 + high)
    make, trl_loss, own_kl = _MADE_BY[config.loss]
    return Objective(
        trl_loss,
        make,
        low=1.0 if low is None else low,
        high=0.0 if high is None else high,
        own_kl=own_kl,
        **values,  # type: ignore[arg-type]
    )


def limited(log_ratios: torch.Tensor) -> torch.Tensor:
    """Log-ratios within what a ratio can be made from."""
    return log_ratios.clamp(-LIMIT, LIMIT)


def _to_behaviour(objective: Objective, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
    """``dapo``, ``cispo`` and ``loop``: TRL's loss as it is.

    ::

        dapo    -w min(exp(d) a, clip(exp(d), 1 - epsilon_low, 1 + epsilon_high) a)
        cispo   -w stop_gradient(min(exp(d), 1 + epsilon_high)) a logprob
        loop    dapo with the clip [1 / (1 + e), 1 + e], e = epsilon_high: the same distance from 1
                in the logarithm on both sides. In TRL's terms low = e / (1 + e), high = e
        dual_clip (dapo, where a < 0): exp(d) is at most dual_clip, with gradient 0 beyond

    Sources: DAPO (arXiv 2503.14476) Eq. 8, dual clip (arXiv 1912.09729); CISPO (arXiv 2506.13585)
    Eq. 4-5, its ratio capped above only; LOOP (arXiv 2502.01600, code apple/ml-loop), e = 0.1.
    """
    if micro.behaviour is None:
        return Surrogate(micro.advantages)
    old, log_ratios = _bounded(logprobs, micro.behaviour)
    return Surrogate(micro.advantages, old, log_ratios, _clipped(objective, log_ratios, micro))


def _no_ratio(objective: Objective, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
    """``no_ratio``: R3L's OPMD, REINFORCE without ratio and clip, so text of anyone is allowed.

    ::

        -w a logprob / (1 + tau)

    TRL's ``cispo`` at ratio 1. Where the sampling policy is another, this is biased on purpose: the
    ratio is reported and not used, in the KL term neither.

    Source: R3L (github.com/shiweijiezero/R3L), tau = 1. With tau = 0: plain REINFORCE.
    """
    advantages = micro.advantages / (1 + objective.tau)
    if micro.behaviour is None:
        return Surrogate(advantages)
    log_ratios = limited(logprobs - micro.behaviour)
    return Surrogate(advantages, None, log_ratios, torch.zeros_like(micro.scored))


def _gspo_token(objective: Objective, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
    """``gspo_token``: one ratio per answer, its gradient spread over the answer's tokens.

    ::

        s   = exp(min(mean of d over the answer, 10))
        s_k = stop_gradient(s) exp(logprob_k - stop_gradient(logprob_k))
        -w min(s_k a_k, clip(s_k, 1 - epsilon_low, 1 + epsilon_high) a_k)

    An answer is a run of tokens sampled one after another: one step, however many share a row. So
    the ratio does not depend on how memory cuts an episode into rows, and every token keeps its
    own advantage. TRL's ``dapo`` with ``old = stop_gradient(logprob) - log s``.

    Source: GSPO (arXiv 2507.18071) Sec. 4.3, epsilons 3e-4 and 4e-4. They suit answers of hundreds
    of tokens in equal precision of engine and learner: look at ``clip_fraction``.
    """
    if micro.behaviour is None:
        return Surrogate(micro.advantages)
    means = _answer_means(logprobs - micro.behaviour, micro.scored).clamp(max=ROW_LIMIT)
    clipped = _clipped(objective, means, micro)
    return Surrogate(micro.advantages, logprobs - means, limited(means), clipped)


def _cpgd(objective: Objective, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
    """``cpgd``: the log-ratio is clipped instead of the ratio, and drift is paid for.

    ::

        w (max(-a d, -a clip(d, log(1 - epsilon_low), log(1 + epsilon_high)))
           + drift (exp(d) - 1 - d))

    Its gradient by ``logprob`` is ``w (-a [not clipped] + drift (exp(d) - 1))``: a large ratio
    does not amplify an advantage. TRL's ``cispo`` at ratio 1 with the negative of that as ``A``.

    Source: CPGD (arXiv 2505.12504); the estimator of KL(behaviour || policy) is our reading.
    """
    if micro.behaviour is None:
        return Surrogate(micro.advantages, losses=torch.zeros_like(micro.advantages))
    d, a = logprobs - micro.behaviour, micro.advantages
    ratios = limited(d).exp()
    clipped = _clipped(objective, d, micro)
    edges = d.clamp(
        torch.log1p(torch.tensor(-objective.low, dtype=torch.float64)).item(),
        torch.log1p(torch.tensor(objective.high, dtype=torch.float64)).item(),
    )
    pull = objective.drift * micro.weights
    losses = torch.maximum(-a * d, -a * edges) + pull * (ratios - 1 - d)
    advantages = a.masked_fill(clipped, 0.0) - pull * (ratios - 1)
    return Surrogate(advantages, None, limited(d), clipped, losses)


def _decoupled(objective: Objective, micro: MicroBatch, logprobs: torch.Tensor) -> Surrogate:
    """``decoupled``: PPO around the weights at the start of the updates, for older samples.

    ::

        v = exp(proximal - behaviour)                        0 where v > weight_cap
        r = exp(logprob - proximal)
        -w v min(r a, clip(r, 1 - epsilon_low, 1 + epsilon_high) a)

    The clip bounds what the iteration changes; what lies between the sampling policy and its start
    is corrected by the weight ``v`` and costs no clipped tokens. TRL's ``dapo`` with
    ``old = proximal`` and ``v`` folded into ``A``. In the first update of an iteration the present
    policy is the proximal one (``proximal`` is ``None``): ``r`` is 1. ``dual_clip`` as in ``dapo``.

    Source: decoupled objective (arXiv 2110.00641) as in AReaL (arXiv 2505.24298), which leaves
    tokens beyond a cap out (5 in its recipes).
    """
    if micro.behaviour is None:
        return Surrogate(micro.advantages)
    proximal = logprobs if micro.proximal is None else micro.proximal
    corrections = limited(proximal - micro.behaviour).exp()
    left_out = torch.zeros_like(micro.scored)
    if objective.weight_cap is not None:
        left_out = corrections > objective.weight_cap
    advantages = micro.advantages * corrections.masked_fill(left_out, 0.0)
    old, log_ratios = _bounded(logprobs, proximal)
    clipped = _clipped(objective, log_ratios, micro) & ~left_out
    shares = {"behaviour_weight": corrections, "left_out": left_out}
    return Surrogate(advantages, old, log_ratios, clipped, shares=shares)


_MADE_BY: Mapping[
    str,
    tuple[
        Callable[[Objective, MicroBatch, torch.Tensor], Surrogate],
        Literal["dapo", "cispo"],
        bool,
    ],
] = {
    "dapo": (_to_behaviour, "dapo", False),
    "cispo": (_to_behaviour, "cispo", False),
    "loop": (_to_behaviour, "dapo", False),
    "no_ratio": (_no_ratio, "cispo", False),
    "gspo_token": (_gspo_token, "dapo", True),
    "cpgd": (_cpgd, "cispo", True),
    "decoupled": (_decoupled, "dapo", True),
}


def _bounded(logprobs: torch.Tensor, old: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``old`` moved as far as the limit of the log-ratio wants, and the log-ratios."""
    differences = logprobs - old
    bounded = limited(differences)
    # Elsewhere ``old`` stays what it was, to the last bit.
    return torch.where(differences == bounded, old, logprobs - bounded), bounded


def _clipped(objective: Objective, log_ratios: torch.Tensor, micro: MicroBatch) -> torch.Tensor:
    """Tokens whose gradient the clip removes."""
    ratios, a = log_ratios.exp(), micro.advantages
    clipped = ((ratios < 1 - objective.low) & (a < 0)) | ((ratios > 1 + objective.high) & (a > 0))
    if objective.dual_clip is not None:
        clipped |= (ratios > objective.dual_clip) & (a < 0)
    return clipped


def _answer_means(values: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    """Mean of ``values`` over each run of ``scored`` tokens, on every token of the run; else 0."""
    starts = scored.clone()
    starts[:, 1:] &= ~scored[:, :-1]
    # Numbered from 0 through the whole micro-batch: a run never goes on in the next row.
    answers = starts.flatten().cumsum(0)[scored.flatten()] - 1
    count = int(starts.sum())
    picked = values[scored]
    sums = picked.new_zeros(count).index_add(0, answers, picked)
    sizes = picked.new_zeros(count).index_add(0, answers, torch.ones_like(picked))
    return torch.zeros_like(values).masked_scatter(scored, (sums / sizes)[answers])
