"""The in-process engine in a process of its own: both ends of it.

``hosted`` makes what the trainer calls; ``host`` is what the child runs. Weights pass as files of
safetensors, each tensor once (tied ones share it), in the dtype they have; so the child samples
from the very numbers that the trainer has, and only sums in another order differ. Of a model with
an adapter the merged weights pass, rounded to that dtype.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from agentrl.core.errors import ConfigError
from agentrl.engines.hf.engine import HfEngine
from agentrl.engines.hf.support import context_of
from agentrl.engines.process.engine import DEFAULT_LIMITS, Limits, ProcessEngine, Program
from agentrl.engines.work import EngineWork

__all__ = ["HfHost", "host", "hosted"]

State = Callable[[Any], Mapping[str, torch.Tensor]]
MODEL = "model"
DESCRIPTION = "hosted.json"


def hosted(
    model: Any,
    *,
    threads: int = 0,
    policy_version: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    state: State | None = None,
    **options: Any,
) -> ProcessEngine:
    """An engine that samples from a copy of ``model`` in a process of its own.

    Args:
        model: A causal language model of transformers; ``set_version`` publishes its weights.
        threads: Threads that the process computes with; 0: torch's own choice.
        policy_version: Version of the weights now.
        limits: How long the process may take.
        state: Gives the weights by name that a model of this class and configuration loads; needed
            for a model with an adapter, whose own state is no such. Default: the model's state.
        options: Of ``HfEngine``.

    Raises:
        ConfigError: the model has an adapter and ``state`` is not given.
    """
    if state is None:
        if getattr(model, "peft_config", None):
            raise ConfigError(
                "an engine in a process of its own was given a model with an adapter, and it loads "
                "whole weights: give state=plain_state of agentrl.models.lora, which merges them"
            )
        state = _own_state
    context = options.get("context_tokens")
    return ProcessEngine(
        Program("agentrl.engines.hf.hosted:host", {"threads": threads, **options}, threads),
        save=partial(_save, model, state),
        prepare=partial(_describe, model),
        size=sum(one.numel() * one.element_size() for one in _weights(model, state).values()),
        context_tokens=context_of(model) if context is None else context,
        policy_version=policy_version,
        limits=limits,
    )


def _own_state(model: Any) -> Mapping[str, torch.Tensor]:
    state: Mapping[str, torch.Tensor] = model.state_dict()
    return state


def _weights(model: Any, state: State) -> dict[str, torch.Tensor]:
    """Every tensor of the model once, by the first of its names."""
    seen: set[tuple[int, int]] = set()
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in state(model).items():
        place = (tensor.data_ptr(), tensor.numel())
        if place not in seen or not tensor.numel():
            seen.add(place)
            weights[name] = tensor
    return weights


def _save(model: Any, state: State, path: Path) -> None:
    weights = _weights(model, state)
    tensors = {name: one.detach().cpu().contiguous() for name, one in weights.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def _describe(model: Any, folder: Path) -> None:
    """What the child needs to make a model like this one."""
    (folder / MODEL).mkdir()
    model.config.save_pretrained(folder / MODEL)
    kind = type(model)
    told = {
        "class": [kind.__module__, kind.__qualname__],
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": model.config.get_text_config(decoder=True)._attn_implementation,
        "device": str(model.device),
    }
    (folder / DESCRIPTION).write_text(json.dumps(told), encoding="utf-8")


class HfHost:
    """What samples in the child."""

    def __init__(self, model: Any, **options: Any) -> None:
        self.engine = HfEngine(model, **options)
        self._state = model.state_dict()  # shares its storage with the model

    def take_up(self, file: Path, version: int) -> None:
        """Load weights between two forward passes.

        Raises:
            RuntimeError, KeyError: they are not of this model.
        """
        with (
            safe_open(str(file), "pt") as tensors,
            self.engine.changing_weights(version),
            torch.no_grad(),
        ):
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                self._state[name].copy_(tensors.get_tensor(name))

    def work(self) -> Mapping[str, float]:
        work = EngineWork.of(self.engine)
        assert work is not None
        return {
            "busy_s": work.busy_s,
            "forwards": work.forwards,
            "rows": work.rows,
            "sampled_tokens": work.sampled_tokens,
        }


def host(folder: Path, file: Path, version: int, *, threads: int, **options: Any) -> HfHost:
    """Make the child's engine; the process calls this first."""
    if threads:
        torch.set_num_threads(threads)
    told = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    weights = folder / MODEL / "model.safetensors"
    weights.unlink(missing_ok=True)
    os.link(file, weights)  # the file may be superseded, and deleted, while it is read
    module, name = told["class"]
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    model = kind.from_pretrained(
        folder / MODEL,
        dtype=getattr(torch, told["dtype"]),
        attn_implementation=told["attention"],
        local_files_only=True,
    )
    model = model.to(told["device"]).eval()
    return HfHost(model, policy_version=version, **options)
