"""Whether the parts that a run names exist, take their options, and fit the environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.config import NO_WEIGHTS, RunConfig
from agentrl.core.errors import ConfigError
from agentrl.core.protocols import Demonstrator, EnvFactory
from agentrl.dialects.choice import AUTO
from agentrl.models.loading import resolve_model
from agentrl.models.lora import require_peft
from agentrl.registry import make, names, resolve, verify
from agentrl.trackers.sending import check_trackers

__all__ = ["check_engine_options", "check_forms", "check_model", "part_checks"]

WEIGHTS = {
    "config.json": "config.json",
    "weights (*.safetensors)": "*.safetensors",
    "a tokenizer (tokenizer.json)": "tokenizer*",
}


def part_checks(config: RunConfig, *, trains: bool) -> list[Callable[[], Any]]:
    """Checks of names and options; nothing is made that needs weights, and no torch is loaded."""
    engine, renderer, memory = config.engine, config.agent.renderer, config.agent.memory
    checks: list[Callable[[], Any]] = [
        partial(verify, "renderer", renderer.name, renderer.options, ("tokenizer",)),
        partial(make, "memory", memory.name, memory.options),
    ]
    if engine.name not in names("engine"):
        checks.insert(0, partial(check_engine_options, config))
    checks.append(partial(check_whose_model, config, trains=trains))
    if config.agent.tool_dialect != AUTO:
        checks.append(partial(resolve, "dialect", config.agent.tool_dialect))
    if trains:
        checks += [partial(check_trackers, [one]) for one in config.trackers]
    return checks


def check_engine_options(config: RunConfig) -> None:
    """Refuse an engine that is not known or does not take its options; hf's loads torch."""
    verify("engine", config.engine.name, config.engine.options, ("model",))


def check_whose_model(config: RunConfig, *, trains: bool) -> None:
    """Refuse an engine with a model of its own where weights of ours are needed, or the reverse."""
    name, path = config.engine.name, config.model.path
    if name == "hf" and path != NO_WEIGHTS:
        return  # resolving it would load torch
    engine = resolve("engine", name)
    own = not getattr(engine, "needs_model", True)
    if trains and not getattr(engine, "trainable", True):
        raise ConfigError(
            f"engine '{name}' cannot be trained from: it gives no token ids and log-probabilities "
            "of the policy's own, and text that is encoded again is not what was sampled. It is "
            "for agentrl evaluate and agentrl rollout, simulated users and judges; to train, use "
            "engine hf"
        )
    if own and path != NO_WEIGHTS:
        raise ConfigError(
            f"engine '{name}' has a model of its own, so none is loaded: set model: {{path: "
            f"{NO_WEIGHTS}}} instead of {path or 'create'}"
        )
    if not own and path == NO_WEIGHTS:
        raise ConfigError(
            f"model.path: {NO_WEIGHTS} is for an engine that has a model of its own, and '{name}' "
            "needs weights: give model.path or model.create"
        )


def check_forms(config: RunConfig, factory: EnvFactory) -> None:
    """Refuse a form of action that the environment does not read."""
    form, name = config.agent.action_format, config.env.name
    if getattr(factory, "tools", ()) and form != "tools":
        raise ConfigError(
            f"the environment '{name}' has tools, and agent.action_format={form} never calls one: "
            "set agent.action_format: tools"
        )
    wanted = getattr(factory, "action_format", form)
    if wanted != form:
        raise ConfigError(
            f"the environment '{name}' needs agent.action_format: {wanted}, and {form} is set"
        )


def check_model(config: RunConfig, factory: EnvFactory | None) -> None:
    """Refuse a model that cannot be begun with, after a look at its folder.

    A hub id is not looked up: that would need the network.
    """
    if config.model.path == NO_WEIGHTS:
        return
    if config.model.lora is not None:
        require_peft()
        adapter = config.model.adapter
        if adapter and not (Path(adapter).expanduser() / "adapter_config.json").is_file():
            raise ConfigError(
                f"model.adapter: no adapter in '{adapter}' (working directory {Path.cwd()}); "
                "expected a folder with adapter_config.json, as RUN/adapter of a finished run"
            )
    if config.model.create is not None:
        if factory is not None and not isinstance(factory, Demonstrator):
            raise ConfigError(
                "model.create trains a tokenizer on an expert's episodes, and the environment "
                f"'{config.env.name}' has no expert; set model.path to a model that exists"
            )
        return
    folder = Path(resolve_model(str(config.model.path)))
    if not folder.is_dir():
        return
    missing = [name for name, pattern in WEIGHTS.items() if not list(folder.glob(pattern))]
    if missing:
        raise ConfigError(
            f"the model folder '{folder}' holds no {' and no '.join(missing)}; save model and "
            "tokenizer there with save_pretrained"
        )
