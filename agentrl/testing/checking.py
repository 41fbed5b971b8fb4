"""``agentrl check KIND NAME``: the contract suite of a kind, run on a plug-in by its name."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from agentrl.core.errors import ConfigError, nearest
from agentrl.registry import make, verify
from agentrl.testing.contract import Finding, run_checks

__all__ = ["CHECKABLE", "check_plugin", "read_option"]


def _credit(spec: str, options: Mapping[str, Any]) -> Any:
    return make("credit", spec, options)


def _dialect(spec: str, options: Mapping[str, Any]) -> Any:
    """A dialect; one that is made of a tokenizer gets that of the option ``model`` (a path)."""
    from agentrl.dialects.choice import find_dialect

    own = dict(options)
    path, tokenizer = own.pop("model", None), None
    if own:
        raise ConfigError(f"a dialect takes no options but model, got {', '.join(sorted(own))}")
    if path is not None:
        from agentrl.models.loading import load_tokenizer

        tokenizer = load_tokenizer(path)
    return find_dialect(spec, tokenizer=tokenizer)


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
    verify("engine", spec, own, ("model",))
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    return EngineSubject(
        make=lambda: make("engine", spec, own, model=model),
        prompt_ids=(5, 6, 7),
        vocabulary_size=vocabulary,
        # So many that a policy that was trained, and repeats itself, meets one too.
        stop_token_ids=(2,) if path is None else tuple(range(0, vocabulary, 3)),
    )


def _echo(prompt: tuple[int, ...], index: int) -> tuple[int, ...]:
    """Answers that depend on the prompt alone and sometimes hold the stop id."""
    return tuple((sum(prompt) + 3 * one) % 8 for one in range(64))


def _env(spec: str, options: Mapping[str, Any]) -> Any:
    verify("env", spec, options)
    return lambda: make("env", spec, options)


def _learner(spec: str, options: Mapping[str, Any]) -> Any:
    """A learner of a tiny random model, at a learning rate at which one update can be seen."""
    from agentrl.config import LearnerConfig
    from agentrl.testing.contracts.learner import LearnerSubject
    from agentrl.testing.tiny_models import tiny_model

    vocabulary = 64
    config = LearnerConfig(learning_rate=1e-2, micro_batch_tokens=64)
    supplied = ("model", "tokenizer", "config", "temperature", "publish")
    verify("learner", spec, options, supplied)

    def fresh(publish: Callable[[int], None]) -> Any:
        values = (tiny_model(vocab_size=vocabulary), None, config, 1.0, publish)
        return make("learner", spec, options, **dict(zip(supplied, values, strict=True)))

    return LearnerSubject(fresh, vocabulary)


def _memory(spec: str, options: Mapping[str, Any]) -> Any:
    verify("memory", spec, options)
    return lambda: make("memory", spec, options)


def _renderer(spec: str, options: Mapping[str, Any]) -> Any:
    """A renderer with the tokenizer of the option ``model`` (a path), or with a tiny one."""
    own = dict(options)
    path = own.pop("model", None)
    if path is None:
        from agentrl.testing.tiny_tokenizers import tiny_tokenizer

        return make("renderer", spec, own, tokenizer=tiny_tokenizer())
    from agentrl.models.loading import load_tokenizer

    return make("renderer", spec, own, tokenizer=load_tokenizer(path))


def _store(spec: str, options: Mapping[str, Any]) -> Any:
    verify("store", spec, options, ("directory",))

    def opened(directory: Path) -> Any:
        return make("store", spec, options, directory=directory)

    return opened


def _strategy(spec: str, options: Mapping[str, Any]) -> Any:
    verify("strategy", spec, options)
    return lambda: make("strategy", spec, options)


def _tool(spec: str, options: Mapping[str, Any]) -> Any:
    """A tool, or several; the option ``arguments`` holds what to call it with."""
    from agentrl.testing.contracts.tool import ToolSubject

    own = dict(options)
    arguments = own.pop("arguments", {})
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"arguments must be a mapping of a call's arguments, got {arguments!r}")
    subject = ToolSubject({"name": spec, "options": own})
    names = [one.name for one in subject.toolbox().specs]
    if arguments and names and not set(arguments) <= set(names):
        if len(names) != 1:
            raise ConfigError(
                f"tool '{spec}' is several tools ({', '.join(names)}): give the arguments of each "
                "by its name, such as arguments='{" + names[0] + ": {...}}'"
            )
        arguments = {names[0]: arguments}
    return replace(subject, arguments=arguments)


_SUBJECTS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "credit": _credit,
    "dialect": _dialect,
    "engine": _engine,
    "env": _env,
    "learner": _learner,
    "memory": _memory,
    "renderer": _renderer,
    "store": _store,
    "strategy": _strategy,
    "tool": _tool,
}
CHECKABLE = tuple(_SUBJECTS)


def check_plugin(kind: str, name: str, options: Sequence[str] = ()) -> list[Finding]:
    """Run the contract suite of ``kind`` on the plug-in ``name``.

    Args:
        kind: One of ``CHECKABLE``.
        name: A registered name or ``module:attr``.
        options: ``key=value`` each, values in YAML: the plug-in's keyword arguments. Engines,
            renderers and dialects also take ``model=PATH``, the model or tokenizer to be tried
            with; tools ``arguments={...}``, what to call them with.

    Raises:
        ConfigError: an unknown kind or name, or an option that the plug-in does not take.
    """
    if kind not in _SUBJECTS:
        raise ConfigError(
            f"cannot check the kind '{kind}'{nearest(kind, CHECKABLE) or '.'} "
            f"There are contract suites for: {', '.join(CHECKABLE)}."
        )
    subject = _SUBJECTS[kind](name, dict(read_option(one) for one in options))
    checks = importlib.import_module(f"agentrl.testing.contracts.{kind}").CHECKS
    return [*asyncio.run(run_checks(checks, subject)), *_notes(subject)]


def _notes(subject: Any) -> list[Finding]:
    """What a renderer knows of its chat template: where it rewrites history, what it lacks."""
    known = ("prefix_breaks", "treatments", "notes")
    texts = [text for name in known for text in getattr(subject, name, ())]
    return [Finding(text, True, "", note=True) for text in texts]


def read_option(text: str) -> tuple[str, Any]:
    """A ``key=value`` whose value is YAML.

    Raises:
        ConfigError: it is none.
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigError(f"option '{text}' must look like key=value")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of option '{text}' is not valid YAML: {error}") from None
