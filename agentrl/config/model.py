"""The run file's ``model``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agentrl.config.section import Section

__all__ = ["NO_WEIGHTS", "ModelConfig", "TinyModelConfig"]

NO_WEIGHTS = "none"


class TinyModelConfig(Section):
    """A small random policy, and a tokenizer trained on the environment's own text."""

    hidden_size: int = Field(128, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    vocab_size: int = Field(512, ge=260)
    context_tokens: int = Field(1024, ge=64)
    text_tasks: int = Field(512, ge=1, description="Train tasks whose text trains the tokenizer.")


class ModelConfig(Section):
    """The policy's model: one that exists (``path``), or a tiny new one (``create``)."""

    path: str | None = Field(
        None, description="Folder, hub id, or builtin:NAME (shipped); none: the engine has its own."
    )
    create: TinyModelConfig | None = None
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    device: str = Field("auto", description="cpu, cuda, cuda:N, or auto: a GPU if there is one.")

    @model_validator(mode="after")
    def _one_source(self) -> ModelConfig:
        if (self.path is None) == (self.create is None):
            raise ValueError("give exactly one of path (an existing model) and create (a tiny one)")
        return self
