"""agentrl: train tool-using LLM agents with multi-turn reinforcement learning.

The public records, seams and errors live in ``agentrl.core`` and are found here by name. They are
imported on first use; ``import agentrl`` itself loads none of the dependencies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what __getattr__ finds at run time, for type checkers and editors
    from agentrl.core.errors import (
        AbandonedError,
        AgentRLError,
        BlockedError,
        ConfigError,
        DataError,
        DeadlineError,
        EngineError,
        EnvDiedError,
        EnvError,
        EpisodeError,
        LearnerError,
        MissingDependencyError,
        PoisonedTaskError,
        RecallError,
        SandboxDiedError,
        SandboxError,
        SandboxOutputLimitError,
        SandboxTimeoutError,
        SandboxUnavailableError,
        SchemaVersionError,
        StoreError,
        ToolError,
        UnknownPluginError,
        UserError,
        WeightSyncError,
    )
    from agentrl.core.message import (
        Message,
        ParseFailure,
        ToolCall,
        ToolSpec,
    )
    from agentrl.core.protocols import (
        Annotator,
        CreditEstimator,
        Demonstration,
        Demonstrator,
        Engine,
        Env,
        EnvFactory,
        Learner,
        Memory,
        Renderer,
        SandboxProvider,
        Scores,
        Store,
        Tool,
        ToolProvider,
        ToolResult,
        UserSimulator,
        View,
    )
    from agentrl.core.task import (
        Task,
        content_hash,
        derive_seed,
    )
    from agentrl.core.trajectory import (
        Batch,
        CreditResult,
        Failure,
        Group,
        Observation,
        Row,
        Sample,
        Sampling,
        Segment,
        Step,
        StepResult,
        StopReason,
        Timings,
        Trajectory,
        UpdateStats,
    )

__version__ = "0.1.0"

__all__ = [
    "AbandonedError",
    "AgentRLError",
    "Annotator",
    "Batch",
    "BlockedError",
    "ConfigError",
    "CreditEstimator",
    "CreditResult",
    "DataError",
    "DeadlineError",
    "Demonstration",
    "Demonstrator",
    "Engine",
    "EngineError",
    "Env",
    "EnvDiedError",
    "EnvError",
    "EnvFactory",
    "EpisodeError",
    "Failure",
    "Group",
    "Learner",
    "LearnerError",
    "Memory",
    "Message",
    "MissingDependencyError",
    "Observation",
    "ParseFailure",
    "PoisonedTaskError",
    "RecallError",
    "Renderer",
    "Row",
    "Sample",
    "Sampling",
    "SandboxDiedError",
    "SandboxError",
    "SandboxOutputLimitError",
    "SandboxProvider",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SchemaVersionError",
    "Scores",
    "Segment",
    "Step",
    "StepResult",
    "StopReason",
    "Store",
    "StoreError",
    "Task",
    "Timings",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolProvider",
    "ToolResult",
    "ToolSpec",
    "Trajectory",
    "UnknownPluginError",
    "UpdateStats",
    "UserError",
    "UserSimulator",
    "View",
    "WeightSyncError",
    "__version__",
    "content_hash",
    "derive_seed",
]

_MODULES = ("errors", "message", "protocols", "task", "trajectory")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = vars(importlib.import_module(f"agentrl.core.{module}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module 'agentrl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
