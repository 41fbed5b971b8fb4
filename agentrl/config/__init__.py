"""The run file: one YAML file = one run. Unknown keys are refused with the nearest known name."""

from __future__ import annotations

from agentrl.config.agent import AgentConfig, EngineConfig, SamplingConfig
from agentrl.config.env import EnvConfig, WorkersConfig
from agentrl.config.learner import LOSS_SETTINGS, DistillationConfig, LearnerConfig
from agentrl.config.model import NO_WEIGHTS, LoraConfig, ModelConfig, TinyModelConfig
from agentrl.config.reading import load_config
from agentrl.config.rollout import RolloutConfig
from agentrl.config.run import CheckpointsConfig, EvaluationConfig, RunConfig, StoreConfig
from agentrl.config.section import PluginConfig, Section
from agentrl.config.stages import CloneStage, ReinforceStage, Stage

__all__ = [
    "LOSS_SETTINGS",
    "NO_WEIGHTS",
    "AgentConfig",
    "CheckpointsConfig",
    "CloneStage",
    "DistillationConfig",
    "EngineConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "LoraConfig",
    "ModelConfig",
    "PluginConfig",
    "ReinforceStage",
    "RolloutConfig",
    "RunConfig",
    "SamplingConfig",
    "Section",
    "Stage",
    "StoreConfig",
    "TinyModelConfig",
    "WorkersConfig",
    "load_config",
]
