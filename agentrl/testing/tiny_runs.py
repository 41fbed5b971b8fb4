"""A whole run in a second or two: a tiny new policy in the toy corridor, on one thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.config import RunConfig, load_config

__all__ = ["tiny_run", "tiny_run_data"]


def tiny_run_data(run_dir: Path) -> dict[str, Any]:
    """A run file's content: two cloning updates, two iterations of two updates, small panels."""
    return {
        "run_dir": str(run_dir),
        "seed": 1,
        "threads": 1,
        "model": {
            "create": {
                "hidden_size": 32,
                "layers": 2,
                "heads": 2,
                "vocab_size": 320,
                "context_tokens": 512,
                "text_tasks": 32,
            },
            "device": "cpu",
        },
        "env": {"name": "toy", "options": {"max_rooms": 3, "max_steps": 6}},
        "agent": {
            "renderer": {"name": "plain"},
            "action_format": "bare",
            "max_steps": 6,
            "max_tokens": 256,
        },
        "sampling": {"max_tokens": 4},
        "learner": {"learning_rate": 3e-3},
        "stages": [
            {"kind": "clone", "updates": 2, "episodes_per_update": 4, "demonstrations": 8},
            {
                "kind": "rl",
                "iterations": 2,
                "tasks_per_iteration": 3,
                "group_size": 3,
                "updates_per_iteration": 2,
            },
        ],
        "evaluation": {"tasks": 4, "validation_tasks": 3, "every": 1},
    }


def tiny_run(run_dir: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The run with ``key=value`` overrides."""
    return load_config(tiny_run_data(run_dir), overrides)
