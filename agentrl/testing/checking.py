"""``agentrl check KIND NAME``: the contract suite of a kind, run on a plug-in by its name."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from agentrl.core.errors import ConfigError, nearest
from agentrl.registry import make, resolve
from agentrl.testing.contract import Finding, run_checks

__all__ = ["CHECKABLE", "check_plugin"]


def _env(spec: str, options: Mapping[str, Any]) -> Any:
    return lambda: make("env", spec, options)


def _engine(spec: str, options: Mapping[str, Any]) -> Any:
    """An engine on the model of the option ``model`` (a path), or on a tiny random one."""
    from agentrl.testing.contracts.engine import EngineSubject

    own = dict(options)
    path = own.pop("model", None)
    if path is None:
        from agentrl.testing.tiny_models import tiny_model

        model: Any = tiny_model()
    else:
        from agentrl.models.loading import load_model

        model = load_model(path)
    if spec == "scripted" and "script" not in own:
        own["script"] = _echo
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    return EngineSubject(
        make=lambda: make("engine", spec, own, model=model),
        prompt_ids=(5, 6, 7),
        vocabulary_size=vocabulary,
        stop_token_ids=(2,),
    )


def _echo(prompt: tuple[int, ...], index: int) -> tuple[int, ...]:
    """Answers that depend on the prompt alone and sometimes hold the stop id."""
    return tuple((sum(prompt) + 3 * one) % 8 for one in range(64))


def _credit(spec: str, options: Mapping[str, Any]) -> Any:
    return make("credit", spec, options)


def _memory(spec: str, options: Mapping[str, Any]) -> Any:
    return lambda: make("memory", spec, options)


_SUBJECTS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "credit": _credit,
    "engine": _engine,
    "env": _env,
    "memory": _memory,
}
CHECKABLE = tuple(_SUBJECTS)


def check_plugin(kind: str, name: str, options: Sequence[str] = ()) -> list[Finding]:
    """Run the contract suite of ``kind`` on the plug-in ``name``.

    Args:
        kind: One of ``CHECKABLE``.
        name: A registered name or ``module:attr``.
        options: ``key=value`` each, values in YAML: the plug-in's keyword arguments.

    Raises:
        ConfigError: an unknown kind or name, or an option that the plug-in does not take.
    """
    if kind not in _SUBJECTS:
        raise ConfigError(
            f"cannot check the kind '{kind}'{nearest(kind, CHECKABLE)} "
            f"There are contract suites for: {', '.join(CHECKABLE)}."
        )
    resolve(kind, name)
    subject = _SUBJECTS[kind](name, dict(_option(one) for one in options))
    checks = importlib.import_module(f"agentrl.testing.contracts.{kind}").CHECKS
    return asyncio.run(run_checks(checks, subject))


def _option(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigError(f"option '{text}' must look like key=value")
    return key, yaml.safe_load(value)
