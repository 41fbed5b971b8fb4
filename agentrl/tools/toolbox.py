"""The tools of an environment: checked once, then made fresh for each episode.

An entry of the list is

- a registered name (``"calculator"``), ``"module:attr"``, or ``{"name": ..., "options": {...}}``;
- a class, or a ``functools.partial`` of one: an object of it is made for each episode. Its
  ``__init__`` gets ``task``, ``seed`` and ``sandbox`` where it has parameters of these names. A
  class with ``shared = True`` is made once for all episodes (an index is built once);
- a function, shared by all episodes;
- an object: shared too, so it must be read-only, or what one episode does another would see;
- a ``ToolProvider``, which opens tools for the episode.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agentrl.core.errors import AgentRLError, ConfigError, EnvError
from agentrl.core.message import ToolCall, ToolSpec
from agentrl.core.protocols import SandboxProvider, ToolProvider
from agentrl.core.task import Task
from agentrl.registry import make, resolve, verify
from agentrl.tools.blocking import LoopWatch
from agentrl.tools.definition import Definition, definitions_of
from agentrl.tools.dispatch import Dispatched, DispatchLimits, dispatch
from agentrl.tools.running import LiveTool, Runs

__all__ = ["OpenTools", "Toolbox"]

_SUPPLIED = ("task", "seed", "sandbox")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the list.

    ``make`` makes the object of an episode, given ``wants`` of ``_SUPPLIED``; without it
    ``shared`` serves all. ``provider`` opens tools that nobody knows before.
    """

    definitions: tuple[Definition, ...] = ()
    runs: tuple[Runs, ...] = ()
    make: Callable[..., Any] | None = None
    wants: tuple[str, ...] = ()
    shared: Any = None
    provider: ToolProvider | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class OpenTools:
    """The tools of one episode, ready to be called.

    Attributes:
        specs: What the model is told of them.
        parts: The objects that were made for this episode, and those shared.
        ending: Names of the tools that can end the episode.
    """

    specs: tuple[ToolSpec, ...]
    parts: tuple[Any, ...]
    ending: tuple[str, ...]
    _live: Mapping[str, LiveTool]
    _limits: DispatchLimits
    _watch: LoopWatch
    _clock: Callable[[], float]

    async def answer(self, calls: Sequence[ToolCall]) -> Dispatched:
        """Run the calls of one message; see ``dispatch``."""
        return await dispatch(calls, self._live, self._limits, watch=self._watch, clock=self._clock)


class Toolbox:
    """A list of tools that was found to be in order.

    Args:
        entries: The tools, see the module.
        limits: What they may use for one message.
        sandbox: Opens a sandbox for each episode, if a tool asks for one.
        sandbox_spec: What it is given.
        watch: Reports tools that block the event loop.
        clock: Seconds.

    Raises:
        ConfigError: an entry that is no tool or cannot be shown to a model; two of one name; a
            sandbox that is asked for and not given.
    """

    def __init__(
        self,
        entries: Sequence[Any],
        *,
        limits: DispatchLimits | None = None,
        sandbox: SandboxProvider | None = None,
        sandbox_spec: Any = None,
        watch: LoopWatch | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._entries = [_entry(one) for one in entries]
        self._limits = DispatchLimits() if limits is None else limits
        self._sandbox = sandbox
        self._sandbox_spec = sandbox_spec
        self._watch = LoopWatch() if watch is None else watch
        self._clock = clock
        known = [one for entry in self._entries for one in entry.definitions]
        _refuse_twins(known)
        self.specs = tuple(one.spec for one in known)
        for entry in self._entries:
            if "sandbox" in entry.wants and sandbox is None:
                raise ConfigError(
                    f"{entry.label} asks for a sandbox, and there is none: give the environment "
                    "one (sandbox=...)"
                )

    def fit_to(self, count_tokens: Callable[[str], int], room_tokens: int) -> None:
        """Bound what tools say to one message by half of ``room_tokens``, if nothing else does.

        Called once the policy's tokenizer and its budget of tokens are known.
        """
        most = self._limits.output_tokens or max(room_tokens // 2, 1)
        self._limits = replace(self._limits, output_tokens=most, count_tokens=count_tokens)

    @asynccontextmanager
    async def open(self, task: Task, *, seed: int) -> AsyncIterator[OpenTools]:
        """Make the tools of an episode; what has ``aclose`` or ``close`` is closed at the end.

        Raises:
            EnvError: one could not be made.
        """
        async with AsyncExitStack() as stack:
            supplied: dict[str, Any] = {"task": task, "seed": seed}
            if any("sandbox" in entry.wants for entry in self._entries) and self._sandbox:
                opening = self._sandbox.open(self._sandbox_spec)
                supplied["sandbox"] = await stack.enter_async_context(opening)
            live: list[LiveTool] = []
            parts: list[Any] = []
            for entry in self._entries:
                made, tools = await _opened(entry, supplied, stack)
                parts += made
                live += tools
            definitions = [one.definition for one in live]
            _refuse_twins(definitions)
            yield OpenTools(
                tuple(one.spec for one in definitions),
                tuple(parts),
                tuple(one.name for one in definitions if one.settings.may_end),
                {one.definition.name: one for one in live},
                self._limits,
                self._watch,
                self._clock,
            )


async def _opened(
    entry: _Entry, supplied: Mapping[str, Any], stack: AsyncExitStack
) -> tuple[list[Any], list[LiveTool]]:
    """The objects of an entry and the tools they are."""
    if entry.provider is not None:
        found = await stack.enter_async_context(
            entry.provider.open(supplied["task"], supplied["seed"])
        )
        live = []
        for one in found:
            for definition in definitions_of(one):
                live.append(_live(definition, one, Runs(definition)))
        return list(found), live
    part = entry.shared
    if entry.make is not None:
        try:
            part = entry.make(**{name: supplied[name] for name in entry.wants})
        except AgentRLError:
            raise
        except Exception as error:
            raise EnvError(
                f"{entry.label} could not be made for the episode: {type(error).__name__}: {error}"
            ) from error
        stack.push_async_callback(_close, part, entry.label)
    pairs = zip(entry.definitions, entry.runs, strict=True)
    return [part], [_live(definition, part, runs) for definition, runs in pairs]


def _live(definition: Definition, part: Any, runs: Runs) -> LiveTool:
    named = definition.method not in ("", "__call__")
    return LiveTool(definition, getattr(part, definition.method) if named else part, runs)


async def _close(part: Any, label: str) -> None:
    """End what a tool holds.

    Raises:
        EnvError: it could not; the others are closed all the same.
    """
    close = getattr(part, "aclose", None) or getattr(part, "close", None)
    if not callable(close):
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except AgentRLError:
        raise
    except Exception as error:
        raise EnvError(f"{label} did not close: {type(error).__name__}: {error}") from error


def _entry(source: Any) -> _Entry:
    """Check one entry of the list."""
    options: Mapping[str, Any] = {}
    if isinstance(source, Mapping):
        unknown = set(source) - {"name", "options"}
        if unknown or not isinstance(source.get("name"), str):
            raise ConfigError(
                f"a tool of a run file is a name, or a mapping of 'name' and 'options', got "
                f"{dict(source)!r}"
            )
        source, options = source["name"], source.get("options") or {}
    if isinstance(source, str):
        source = _resolved(source, options)
    if isinstance(source, ToolProvider) and not inspect.isclass(source):
        return _Entry(provider=source, label=_label(source))
    definitions = definitions_of(source)
    label = f"the tool '{definitions[0].name}' ({definitions[0].source})"
    runs = tuple(Runs(one) for one in definitions)
    factory = source.func if isinstance(source, functools.partial) else source
    if not inspect.isclass(factory):
        if not inspect.isroutine(source):
            _refuse_shared_state(source, definitions, label)
        return _Entry(definitions, runs, shared=source, label=label)
    if getattr(factory, "shared", False) is True:
        part = source()
        _refuse_shared_state(part, definitions, label)
        return _Entry(definitions, runs, shared=part, label=label)
    return _Entry(definitions, runs, make=source, wants=_wants(source, label), label=label)


def _resolved(name: str, options: Mapping[str, Any]) -> Any:
    """What a name stands for, its options bound."""
    source = resolve("tool", name)
    if inspect.isclass(source) and issubclass(source, ToolProvider):
        return make("tool", source, options)
    if not inspect.isclass(source):
        return verify("tool", source, options) if options else source
    verify("tool", source, options, [one for one in _SUPPLIED if one in _parameters(source)])
    return functools.partial(source, **options) if options else source


def _wants(make: Callable[..., Any], label: str) -> tuple[str, ...]:
    parameters = _parameters(make)
    bound = make.keywords if isinstance(make, functools.partial) else {}
    missing = [
        one.name
        for one in parameters.values()
        if one.default is one.empty
        and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        and one.name not in _SUPPLIED
        and one.name not in bound
    ]
    if missing:
        raise ConfigError(
            f"{label} needs {', '.join(missing)} to be made, and an episode supplies only "
            f"{', '.join(_SUPPLIED)}: give functools.partial(Class, {missing[0]}=...), or the "
            "option in the run file"
        )
    return tuple(one for one in _SUPPLIED if one in parameters and one not in bound)


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make).parameters
    except ValueError:  # a class without an __init__ of its own, made in C
        return {}


def _refuse_shared_state(part: Any, definitions: Sequence[Definition], label: str) -> None:
    mutating = [one.name for one in definitions if not one.settings.read_only]
    if mutating:
        kind = type(part).__name__
        raise ConfigError(
            f"{label} is one object for all episodes and not marked read-only, so what one "
            f"episode does another would see: give the class, or functools.partial({kind}, ...), "
            "so that each episode gets its own; or set read_only = True if it changes nothing"
        )


def _refuse_twins(definitions: Sequence[Definition]) -> None:
    seen: dict[str, Definition] = {}
    for one in definitions:
        other = seen.setdefault(one.name, one)
        if other is not one:
            raise ConfigError(
                f"two tools are called '{one.name}': {other.source} and {one.source}; give one "
                "another name (the attribute 'name', @tool(name=...), or the option prefix of a "
                "server)"
            )


def _label(source: Any) -> str:
    return f"the tools of {type(source).__module__}.{type(source).__qualname__}"
