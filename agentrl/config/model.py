"""The run file's ``model``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agentrl.config.section import Section

__all__ = ["NO_WEIGHTS", "LoraConfig", "ModelConfig", "TinyModelConfig"]

NO_WEIGHTS = "none"


class TinyModelConfig(Section):
    """A small random policy, and a tokenizer trained on the environment's own text."""

    hidden_size: int = Field(128, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    vocab_size: int = Field(512, ge=260)
    context_tokens: int = Field(1024, ge=64)
    text_tasks: int = Field(512, ge=1, description="Train tasks whose text trains the tokenizer.")


class LoraConfig(Section):
    """Train small matrices beside the model's linear layers in the place of its weights (LoRA)."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0, description="What is added is scaled by alpha / rank.")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="Of the adapter's input, in updates only; never in rollouts."
    )
    target_modules: Literal["all-linear"] | list[str] = Field(
        "all-linear", description="all-linear: every linear layer but the head; or names of layers."
    )
    dtype: Literal["float32", "model"] = Field(
        "float32", description="Of the adapter: float32, or model: that of the model's weights."
    )

    @model_validator(mode="after")
    def _has_targets(self) -> LoraConfig:
        if not self.target_modules:
            raise ValueError("target_modules is empty: name layers, or give all-linear")
        return self


class ModelConfig(Section):
    """The policy's model: one that exists (``path``), or a tiny new one (``create``)."""

    path: str | None = Field(
        None, description="Folder, hub id, or builtin:NAME (shipped); none: the engine has its own."
    )
    create: TinyModelConfig | None = None
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    device: str = Field("auto", description="cpu, cuda, cuda:N, or auto: a GPU if there is one.")

    lora: LoraConfig | None = Field(
        None, description="Train an adapter only; none: all weights are trained."
    )
    adapter: str | None = Field(
        None, description="Folder of an adapter that model.lora begins with; none: a new one."
    )

    @model_validator(mode="after")
    def _adapter_has_lora(self) -> ModelConfig:
        if self.adapter is not None and self.lora is None:
            raise ValueError(
                "adapter is given without lora: add lora with the rank, alpha and target_modules "
                "of its adapter_config.json"
            )
        if self.lora is not None and self.path == NO_WEIGHTS:
            raise ValueError("path=none has no weights that lora could be added to: remove lora")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> ModelConfig:
        if (self.path is None) == (self.create is None):
            raise ValueError("give exactly one of path (an existing model) and create (a tiny one)")
        return self
