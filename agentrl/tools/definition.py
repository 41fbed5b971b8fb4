"""What a tool is before any episode: its spec, how it is run, and what makes it.

A tool is written as

- a class with a docstring and a typed ``__call__`` (async or not): made fresh for each episode; its
  ``__init__`` may ask for ``task``, ``seed`` and ``sandbox`` by these names;
- an annotated function with a docstring;
- a class whose methods are marked with ``@tool``: several tools that share what the episode did;
- an object with a ``spec`` of its own (``agentrl.core.protocols.Tool``).

Attributes of the class, or ``@tool(...)``, say how it is run: see ``Settings``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MethodType
from typing import Any, TypeVar, overload

from agentrl.core.errors import ConfigError
from agentrl.core.message import ToolSpec
from agentrl.tools.arguments import Arguments, read_arguments
from agentrl.tools.docstring import read_docstring
from agentrl.tools.schema import problem_of_schema

__all__ = ["Definition", "Settings", "definitions_of", "tool"]

C = TypeVar("C", bound=Callable[..., Any])
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MARK = "agentrl_tool"
_ANYONE = object()  # stands for the object of a method whose signature is read


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tool is run.

    Attributes:
        read_only: It changes nothing. Calls of read-only tools run at once, all others one after
            the other.
        quick: A function that is not async runs in the event loop, not in a thread of its own: for
            what takes microseconds.
        may_end: It can end the episode. Where one is offered, text alone is no answer.
        deadline_s: Most seconds of a call; ``None``: what the environment allows.
        tell_late: A call past its deadline is told to the model (its own code ran for ever, say).
            Otherwise it is an infra failure: a dead server is no fault of the policy.
        max_parallel: Most calls at once, over all episodes; ``None``: any number.
    """

    read_only: bool = False
    quick: bool = False
    may_end: bool = False
    deadline_s: float | None = None
    tell_late: bool = False
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool. ``method`` is what of its object is called; "" for the object itself.

    ``arguments`` is ``None`` for a tool with a spec of its own, which checks what it is given.
    """

    spec: ToolSpec
    settings: Settings
    method: str
    arguments: Arguments | None
    may_return_none: bool = True
    source: str = ""

    @property
    def name(self) -> str:
        return self.spec.name


@overload
def tool(source: C, /) -> C: ...
@overload
def tool(
    *,
    name: str | None = None,
    read_only: bool = False,
    quick: bool = False,
    may_end: bool = False,
    deadline_s: float | None = None,
    tell_late: bool = False,
    max_parallel: int | None = None,
) -> Callable[[C], C]: ...
def tool(source: Any = None, /, *, name: str | None = None, **settings: Any) -> Any:
    """Mark a function or method as a tool and say how it is run (``Settings``)."""

    def mark(function: Any) -> Any:
        setattr(function, _MARK, True)
        for key, value in {"name": name, **settings}.items():
            if value is not None:
                setattr(function, key, value)
        return function

    return mark if source is None else mark(source)


def definitions_of(source: Any) -> tuple[Definition, ...]:
    """The tools that a class, function or object is.

    Raises:
        ConfigError: it is none, or cannot be shown to a model; says why.
    """
    if isinstance(source, functools.partial):
        if not inspect.isclass(source.func):
            raise ConfigError(
                f"{_shown(source)} is no tool: a partial of a class makes its objects, one of a "
                "function has no name and docstring; write a function"
            )
        source = source.func  # its keywords are for __init__
    own = getattr(source, "spec", None)
    if isinstance(own, ToolSpec):
        return (_with_own_spec(source, own),)
    if inspect.isroutine(source):
        return (_of_function(source, source, "", _origin(source)),)
    kind = source if inspect.isclass(source) else type(source)
    marked = [name for name, one in _defined(kind).items() if _is_marked(one)]
    if any("__call__" in vars(one) for one in kind.__mro__):
        if marked:
            raise ConfigError(
                f"{_origin(kind)} has both __call__ and methods marked with @tool "
                f"({', '.join(marked)}); a class is one tool, or several"
            )
        return (_of_class(source, kind),)
    if not marked:
        raise ConfigError(
            f"{_shown(source)} is no tool: give a function, a class with __call__ or with methods "
            "marked with @tool, or an object with a spec (a ToolSpec)"
        )
    return tuple(
        _of_function(_unbound(kind, name), getattr(kind, name), name, f"{_origin(kind)}.{name}")
        for name in marked
    )


def _of_class(source: Any, kind: type) -> Definition:
    call = _unbound(kind, "__call__")
    text = kind.__doc__
    if text is None or (is_dataclass(kind) and text.startswith(f"{kind.__name__}(")):
        text = call.__doc__  # a dataclass writes itself a docstring that says nothing
    name = getattr(source, "name", None)
    if not isinstance(name, str):
        name = _WORDS.sub("_", kind.__name__).lower()
    return _define(name, text, source, call, "__call__", _origin(kind))


def _of_function(call: Any, source: Any, method: str, origin: str) -> Definition:
    name = getattr(source, "name", None) or source.__name__
    return _define(str(name), source.__doc__, source, call, method, origin)


def _define(
    name: str, text: str | None, source: Any, call: Any, method: str, origin: str
) -> Definition:
    label = f"the tool '{name}' ({origin})"
    _check_name(name, label)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise ConfigError(f"{label} yields; a tool returns its whole text at once")
    documented = read_docstring(text)
    if not documented.description:
        raise ConfigError(
            f"{label} has no docstring; say in one what it does and, under 'Args:', what each "
            "parameter is: it is all that the model knows of it"
        )
    settings = _settings(source, label)
    arguments = read_arguments(call, documented, label)
    spec = ToolSpec(name, documented.description, arguments.json_schema(), settings.read_only)
    return Definition(spec, settings, method, arguments, arguments.may_return_none, origin)


def _with_own_spec(source: Any, spec: ToolSpec) -> Definition:
    # A tool that stands for one elsewhere says where that is.
    origin = getattr(source, "origin", None) or _origin(
        source if inspect.isclass(source) else type(source)
    )
    label = f"the tool '{spec.name}' ({origin})"
    _check_name(spec.name, label)
    if not callable(source):
        raise ConfigError(f"{label} has a spec and no __call__")
    problem = problem_of_schema(spec.parameters)
    if problem is not None:
        raise ConfigError(f"{label}: {problem}")
    settings = _settings(source, label, read_only=spec.read_only)
    return Definition(spec, settings, "", None, source=origin)


def _check_name(name: str, label: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{label}: a name must be 1 to 64 letters, digits, _ and -, or templates and parsers "
            "of calls do not carry it; give another with the attribute 'name' or @tool(name=...)"
        )


def _settings(source: Any, label: str, *, read_only: bool | None = None) -> Settings:
    values: dict[str, Any] = {
        one.name: getattr(source, one.name, one.default) for one in fields(Settings)
    }
    if read_only is not None:
        values["read_only"] = read_only
    for name, value in values.items():
        number = not isinstance(value, bool) and isinstance(value, int | float) and value > 0
        if name == "deadline_s":
            right, expected = value is None or number, "seconds above 0, or None"
        elif name == "max_parallel":
            right = value is None or (number and isinstance(value, int))
            expected = "a number above 0, or None"
        else:
            right, expected = isinstance(value, bool), "True or False"
        if not right:
            raise ConfigError(f"{label}: {name} must be {expected}, got {value!r}")
    return Settings(**values)


def _unbound(kind: type, name: str) -> Any:
    """The method as it looks once it is bound: without ``self``."""
    function = inspect.getattr_static(kind, name)
    return MethodType(function, _ANYONE) if inspect.isfunction(function) else getattr(kind, name)


def _is_marked(member: Any) -> bool:
    return getattr(getattr(member, "__func__", member), _MARK, False) is True


def _defined(kind: type) -> Mapping[str, Any]:
    """What the class and its bases define, in that order, bases first."""
    return {name: one for base in reversed(kind.__mro__) for name, one in vars(base).items()}


def _origin(source: Any) -> str:
    return f"{getattr(source, '__module__', '?')}.{getattr(source, '__qualname__', source)}"


def _shown(source: Any) -> str:
    text = repr(source)
    return text if len(text) <= 80 else text[:77] + "..."
