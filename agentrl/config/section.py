"""What every part of the run file is: frozen, and without unknown keys."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PluginConfig", "Section"]


class Section(BaseModel):
    """A part of the run file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class PluginConfig(Section):
    """A plug-in by name (or ``module:attr``, which runs that code) and its keyword arguments."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
