"""The run file's ``agent``, ``engine`` and ``sampling``: who plays, and how it is drawn."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from agentrl.config.section import PluginConfig, Section

__all__ = ["AgentConfig", "EngineConfig", "SamplingConfig"]


class AgentConfig(Section):
    """How the policy meets the environment, and its budgets per episode."""

    renderer: PluginConfig = PluginConfig(name="chat")
    memory: PluginConfig = PluginConfig(name="transcript")
    action_format: Literal["bare", "tagged", "tools", "chat"] = Field(
        "tagged",
        description="bare: the whole answer; tagged: <think>..</think><action>..</action>; "
        "tools: calls in tool_dialect; chat: the message itself, for agents of somebody else's.",
    )
    tool_dialect: str = Field(
        "auto", description="How calls are written; auto: as the chat template writes them."
    )
    system_prompt: str = ""
    max_steps: int = Field(50, ge=1)
    max_tokens: int = Field(8192, ge=1, description="Prompt and answer of one step, in tokens.")
    max_seconds: float = Field(600.0, gt=0)
    max_truncated: int = Field(
        0, ge=0, description="Cut answers in a row that end the episode; 0: max_steps does."
    )


class EngineConfig(Section):
    """What samples."""

    name: str = "hf"
    options: dict[str, Any] = Field(default_factory=dict)
    threads: int = Field(
        0,
        ge=0,
        description="Of its own process (rollout.max_staleness above 0); 0: half of the cores.",
    )


class SamplingConfig(Section):
    """How training rollouts and sampled evaluations are drawn."""

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    max_tokens: int = Field(256, ge=1, description="Longest answer of one step.")
