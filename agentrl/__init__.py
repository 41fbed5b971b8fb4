"""agentrl: train tool-using LLM agents with multi-turn reinforcement learning."""

from __future__ import annotations

__version__ = "0.1.0"
