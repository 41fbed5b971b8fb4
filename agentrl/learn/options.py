"""Which fields of TRL's configuration may be set from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.config import LOSS_SETTINGS, LearnerConfig
from agentrl.core.errors import ConfigError

__all__ = ["check_options"]

# Fields of GRPOConfig that act on each token alone, so that our micro-batches keep them exact.
SAFE_OPTIONS = ("use_bias_correction_kl",)
UNSAFE_OPTIONS = {
    "delta": "set learner.dual_clip",
    "importance_sampling_level": "a ratio per sequence averages the advantages of a trajectory; "
    "learner.loss=gspo_token has one per answer and keeps them",
    "loss_type": f"set learner.loss, one of {', '.join(LOSS_SETTINGS)}: TRL's others are "
    "normalised per pass",
    "off_policy_mask_threshold": "with advantages per token TRL masks tokens, not sequences",
    "top_entropy_quantile": "TRL takes the quantile of each forward pass, not of the batch",
    "entropy_coef": "TRL averages entropy over each forward pass, not over the batch",
    "num_iterations": "one batch is one optimiser step; yield it again for another",
    "beta": "set learner.kl_coefficient",
}


def check_options(config: LearnerConfig, options: Mapping[str, Any]) -> None:
    """Refuse what TRL would accept and get wrong.

    Raises:
        ConfigError: with the reason.
    """
    if config.loss not in LOSS_SETTINGS:
        raise ConfigError(
            f"learner.loss={config.loss} is not one of {', '.join(LOSS_SETTINGS)}: TRL normalises "
            "other losses within each forward pass, so the gradient would depend on "
            "micro_batch_tokens"
        )
    for name in options:
        if name not in SAFE_OPTIONS:
            reason = UNSAFE_OPTIONS.get(name, "it is set by the learner or does not act on a token")
            raise ConfigError(
                f"the TRL option {name}={options[name]!r} is refused: {reason}. "
                f"Possible: {', '.join(SAFE_OPTIONS)}"
            )
