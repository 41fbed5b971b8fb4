"""The in-process engine: any transformers causal language model, with continuous batching."""

from agentrl.engines.hf.engine import EngineStats, HfEngine

__all__ = ["EngineStats", "HfEngine"]
