"""Plug-ins by name: ``"name"``, ``"module:attr"`` or the object itself.

Names are entry points of the group ``agentrl.<kind>``; built-ins register in the same way. Nothing
is imported but what is asked for. A ``"module:attr"`` runs that module's code.

If two packages register one name, agentrl's own entry wins, so that installing a package never
changes what a built-in name means. Two foreign packages with one name are refused as ambiguous.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from agentrl.core.errors import AgentRLError, ConfigError, UnknownPluginError, nearest

__all__ = ["KINDS", "make", "names", "resolve", "unregistered", "verify"]

KINDS = (
    "annotator",
    "credit",
    "dialect",
    "engine",
    "env",
    "evaluator",
    "learner",
    "memory",
    "renderer",
    "sandbox",
    "store",
    "strategy",
    "tool",
    "tracker",
    "user",
)
_DISTRIBUTION = "agentrl-framework"
_CHECKOUT = Path(__file__).resolve().parents[1]


def names(kind: str) -> tuple[str, ...]:
    """Names that installed packages register for ``kind``, sorted.

    Raises:
        UnknownPluginError: ``kind`` is not one of ``KINDS``.
    """
    return tuple(sorted({entry.name for entry in _entries(kind)}))


def resolve(kind: str, spec: Any) -> Any:
    """The plug-in that ``spec`` names.

    Args:
        kind: One of ``KINDS``.
        spec: A registered name, ``"module:attr"`` (``attr`` may be dotted), or any other object,
            which is returned as it is.

    Raises:
        UnknownPluginError: no such kind or name.
        ConfigError: the name is ambiguous, or its module or attribute cannot be imported (the
            cause is chained). An ``AgentRLError`` that the module raises passes through.
    """
    if not isinstance(spec, str):
        _entries(kind)  # refuses an unknown kind
        return spec
    if ":" in spec:
        _entries(kind)
        return _load(kind, spec, spec)
    return _load(kind, spec, _choose(kind, spec).value)


def make(kind: str, spec: Any, options: Mapping[str, Any] | None = None, /, **supplied: Any) -> Any:
    """Make the part that ``spec`` names.

    A class, a function or a partial is called with keyword arguments; any other object already is
    the part and takes none.

    Args:
        kind: One of ``KINDS``.
        spec: As for ``resolve``.
        options: Keyword arguments from the run file.
        supplied: Keyword arguments from the caller (a tokenizer, a model), which a run file
            cannot set.

    Raises:
        UnknownPluginError, ConfigError: as for ``resolve``; an option the factory does not accept,
            or one it needs and was not given. What the factory itself raises passes through.
    """
    factory, options = verify(kind, spec, options, tuple(supplied)), dict(options or {})
    return factory(**options, **supplied) if _is_called(factory) else factory


def verify(
    kind: str, spec: Any, options: Mapping[str, Any] | None = None, supplied: Sequence[str] = ()
) -> Any:
    """Check what ``make`` would check without making the part; returns what ``spec`` names.

    Args:
        kind: As for ``make``, likewise ``spec`` and ``options``.
        supplied: Names of the keyword arguments that the caller would supply.

    Raises:
        UnknownPluginError, ConfigError: as for ``make``.
    """
    factory = resolve(kind, spec)
    label = f"{kind} '{spec}'" if isinstance(spec, str) else f"{kind} {_title(spec)}"
    options = dict(options or {})
    if _is_called(factory):
        _check_options(label, factory, options, supplied)
    elif options:
        raise ConfigError(
            f"{label} is a finished object and takes no options, got "
            f"{', '.join(sorted(options))}; give the options to the class or function that "
            "makes it"
        )
    return factory


def _is_called(factory: Any) -> bool:
    return inspect.isclass(factory) or inspect.isroutine(factory) or _is_partial(factory)


def _is_partial(value: Any) -> bool:
    return isinstance(value, functools.partial)


def _title(value: Any) -> str:
    return f"'{getattr(value, '__qualname__', type(value).__qualname__)}'"


def _entries(kind: str) -> tuple[EntryPoint, ...]:
    if kind not in KINDS:
        raise UnknownPluginError(
            f"unknown plug-in kind '{kind}'{nearest(kind, KINDS) or '.'} Known: {', '.join(KINDS)}."
        )
    return tuple(entry_points(group=f"agentrl.{kind}"))


def _choose(kind: str, name: str) -> EntryPoint:
    """The entry point called ``name``; agentrl's own wins, two foreign ones are ambiguous."""
    found = {entry.value: entry for entry in _entries(kind) if entry.name == name}
    if not found:
        known = names(kind)
        if name in _declared(kind):
            raise UnknownPluginError(
                f"{kind} '{name}' is in this checkout, and was not when it was installed: run "
                f"pip install --no-deps -e {_CHECKOUT} again. Installed: {', '.join(known) or '-'}."
            )
        raise UnknownPluginError(
            f"unknown {kind} '{name}'{nearest(name, known) or '.'} "
            f"Installed: {', '.join(known) or 'none'}.\n"
            "From a package: pip install it; from a file: 'my.module:Class'."
        )
    own = [entry for entry in found.values() if _package(entry) == _DISTRIBUTION]
    candidates = own or sorted(found.values(), key=lambda entry: entry.value)
    if len(candidates) > 1:
        listed = ", ".join(f"'{entry.value}' ({_package(entry)})" for entry in candidates)
        raise ConfigError(
            f"{kind} '{name}' is registered by several packages: {listed}; "
            "write the 'module:attr' you mean instead of the name"
        )
    return candidates[0]


def unregistered(kind: str) -> tuple[str, ...]:
    """Names of the checkout that its installation does not know, because it is older.

    ``pip install --no-deps -e CHECKOUT`` makes them known.
    """
    return tuple(sorted(set(_declared(kind)) - set(names(kind))))


def _declared(kind: str) -> tuple[str, ...]:
    """Names that the checkout's own pyproject.toml declares; an installation may be older."""
    try:
        text = (_CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        ours = project["name"] == _DISTRIBUTION
        return tuple(project["entry-points"][f"agentrl.{kind}"]) if ours else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # no checkout, or one that is being edited


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown package"


def _load(kind: str, spec: str, target: str) -> Any:
    module_name, _, path = target.partition(":")
    label = f"{kind} '{spec}'" if spec == target else f"{kind} '{spec}' ({target})"
    if not module_name or not path or ":" in path or module_name.startswith("."):
        raise ConfigError(f"{label} must look like 'my.module:Class'")
    try:
        found: Any = importlib.import_module(module_name)
    except AgentRLError:
        raise  # a MissingDependencyError already says what to install
    except Exception as error:
        raise ConfigError(
            f"{label}: importing '{module_name}' failed with {type(error).__name__}: {error}; "
            "the module must be installed or lie in a folder of sys.path (PYTHONPATH)"
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            known = [one for one in dir(found) if not one.startswith("_")]
            raise ConfigError(
                f"{label}: '{module_name}' has no '{path}'{nearest(part, known) or '.'} "
                f"It has: {', '.join(known) or 'nothing public'}."
            ) from error
    return found


def _check_options(
    label: str, factory: Any, options: Mapping[str, Any], supplied: Sequence[str]
) -> None:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return  # a builtin without a signature answers for itself
    by_keyword = [
        one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    accepted = [one.name for one in by_keyword if one.name not in supplied]
    listed = f"Accepted: {', '.join(accepted) or 'none'}."
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    for name in options:
        if name in supplied or (name not in accepted and not takes_any):
            raise ConfigError(
                f"{label} has no option '{name}'{nearest(name, accepted) or '.'} {listed}"
            )
    for name in supplied:
        if not takes_any and name not in (one.name for one in by_keyword):
            raise ConfigError(
                f"{label} must take the keyword argument '{name}', which agentrl supplies; "
                f"it takes: {', '.join(one.name for one in by_keyword) or 'none'}"
            )
    missing = [
        one.name
        for one in by_keyword
        if one.default is one.empty and one.name not in options and one.name not in supplied
    ]
    if missing:
        raise ConfigError(f"{label} needs the option {', '.join(map(repr, missing))}. {listed}")
