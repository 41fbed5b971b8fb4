"""The run file's ``learner``: the optimiser and the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from agentrl.config.section import Section

__all__ = ["LOSS_SETTINGS", "DistillationConfig", "LearnerConfig"]


# What each loss reads, and what holds where the run file says nothing: the published value.
LOSS_SETTINGS: Mapping[str, Mapping[str, float | None]] = {
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.2, "dual_clip": None},
    "cispo": {"epsilon_high": 0.2},
    "loop": {"epsilon_high": 0.1},
    "no_ratio": {"tau": 1.0},
    "gspo_token": {"epsilon_low": 3e-4, "epsilon_high": 4e-4},
    "cpgd": {"epsilon_low": 0.2, "epsilon_high": 0.2, "drift": 0.1},
    "decoupled": {"epsilon_low": 0.2, "epsilon_high": 0.2, "dual_clip": None, "weight_cap": 5.0},
}


class DistillationConfig(Section):
    """A term of the loss that draws the policy towards a teacher's log-probabilities."""

    kind: Literal["gated", "delta", "importance"] = Field(
        "gated", description="gated: SEED's; delta and importance: OPID's."
    )
    coefficient: float = Field(0.01, gt=0)
    beta: float = Field(5.0, ge=0, description="gated: how sharply the gate opens.")
    clip: float | None = Field(
        None, gt=0, description="delta, importance: bound of a token's weight."
    )

    @model_validator(mode="after")
    def _has_a_clip(self) -> DistillationConfig:
        if self.kind == "gated" and self.clip is not None:
            raise ValueError(f"kind=gated has no clip, got {self.clip:g}: remove it")
        return self


class LearnerConfig(Section):
    """The optimiser and the loss."""

    learning_rate: float = Field(1e-6, gt=0)
    warmup_updates: int = Field(0, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    weight_decay: float = Field(0.0, ge=0)
    adam_beta2: float = Field(0.999, gt=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    loss: Literal["dapo", "cispo", "loop", "no_ratio", "gspo_token", "cpgd", "decoupled"] = Field(
        "dapo",
        description="The objective; with rollout.max_staleness above 0 the default is decoupled.",
    )
    epsilon_low: float | None = Field(
        None, gt=0, lt=1, description="Clip below 1; null here and below: the loss's own value."
    )
    epsilon_high: float | None = Field(None, gt=0, description="Clip above 1.")
    dual_clip: float | None = Field(
        None, gt=1, description="dapo, decoupled: bound of the ratio where the advantage is < 0."
    )
    tau: float | None = Field(None, ge=0, description="no_ratio: divides the loss by 1 + tau.")
    drift: float | None = Field(None, ge=0, description="cpgd: weight of the pull back.")
    weight_cap: float | None = Field(
        None, gt=0, description="decoupled: tokens whose weight is larger are left out."
    )
    distillation: DistillationConfig | None = Field(
        None, description="Needs teacher log-probabilities from an annotator."
    )
    kl_coefficient: float = Field(0.0, ge=0, description="KL to the reference model (k3).")
    trajectory_weighting: Literal["equal", "tokens"] = Field(
        "equal", description="equal: every trajectory counts once; tokens: every token does."
    )
    micro_batch_tokens: int = Field(16384, ge=1, description="Padded tokens of one forward pass.")

    @model_validator(mode="after")
    def _loss_reads_its_settings(self) -> LearnerConfig:
        reads = LOSS_SETTINGS[self.loss]
        names = dict.fromkeys(name for one in LOSS_SETTINGS.values() for name in one)
        for name in names:
            if name not in reads and getattr(self, name) is not None:
                others = ", ".join(loss for loss, one in LOSS_SETTINGS.items() if name in one)
                raise ValueError(
                    f"loss={self.loss} has no {name} (it reads {', '.join(reads)}), so "
                    f"{name}={getattr(self, name):g} would change nothing: remove it (null in a "
                    f"stage), or choose a loss that reads it ({others})"
                )
        return self

    def of_loss(self, name: str) -> float | None:
        """A setting that the loss reads: as given, or else the loss's own value.

        Raises:
            KeyError: the loss does not read it.
        """
        published = LOSS_SETTINGS[self.loss][name]
        given: float | None = getattr(self, name)
        return published if given is None else given
