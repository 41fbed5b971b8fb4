"""Records to JSON and back, exactly: tuples as tuples, floats bit for bit, NaN, any unicode.

What an environment gives and gets goes through ``plain`` at one end and ``restored`` at the other.
Anything but strings, numbers, booleans, ``None``, lists, tuples, mappings and the records of an
episode is refused: an array would come out as something else, or drag its library into the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

from agentrl.core.errors import DataError, EnvError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult

__all__ = ["plain", "restored", "sendable_observation", "sendable_result"]

_RECORDS = {
    f"${record.__name__}": record
    for record in (Demonstration, Message, Observation, StepResult, Task, ToolCall, ToolSpec)
}
_FIELDS = {
    record: (tag, tuple(one.name for one in fields(record))) for tag, record in _RECORDS.items()
}
_TUPLE = "$tuple"  # an object with this one key stands for a Python tuple
_PAIRS = "$pairs"  # ... and with this one for a mapping with keys that are not strings
_ESCAPE = "$"  # put before keys of mappings that begin with it themselves
_ATOMS = frozenset({str, int, float, bool, type(None)})
_TRUTH = ((bool,), "True or False")
_SCALARS: dict[str, tuple[tuple[type, ...], str]] = {
    "reward": ((int, float, type(None)), "a number, or None if it could not be scored"),
    "terminated": _TRUTH,
    "truncated": _TRUTH,
    "action_valid": _TRUTH,
    "success": ((bool, type(None)), "True, False or None"),
}
_SHOWN = 80


def plain(value: Any) -> Any:
    """``value`` as JSON has it; undone by ``restored``.

    Subclasses of ``str``, ``int`` and ``float`` become what they are subclasses of.

    Raises:
        DataError: it holds something else, and where.
    """
    try:
        return _plain(value)
    except _Refused as refused:
        where = "".join(reversed(refused.path)).lstrip(".")
        raise DataError(f"{where or 'the value'} is {refused.reason}") from None
    except RecursionError:
        raise DataError("the value is nested too deeply, or holds itself") from None


def restored(value: Any) -> Any:
    """What ``plain`` was given.

    Raises:
        DataError: the other end sent a record that does not exist here.
    """
    if isinstance(value, list):
        return [restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (tag,) = value
        if tag == _TUPLE:
            return tuple(restored(one) for one in value[tag])
        if tag == _PAIRS:
            return {restored(key): restored(one) for key, one in value[tag]}
        if tag.startswith(_ESCAPE) and not tag.startswith(_ESCAPE * 2):
            return _record(tag, value[tag])
    return {key.removeprefix(_ESCAPE): restored(one) for key, one in value.items()}


def _record(tag: str, values: Any) -> Any:
    try:
        return _RECORDS[tag](*(restored(one) for one in values))
    except (KeyError, TypeError) as error:
        raise DataError(f"got {tag} with {len(values)} values, no such record: {error!r}") from None


class _Refused(Exception):
    """What cannot be sent; ``path`` grows on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind in _FIELDS:
        tag, names = _FIELDS[kind]
        return {tag: [_at(f".{name}", getattr(value, name)) for name in names]}
    if isinstance(value, tuple):
        return {_TUPLE: [_at(f"[{place}]", one) for place, one in enumerate(value)]}
    if isinstance(value, list):
        return [_at(f"[{place}]", one) for place, one in enumerate(value)]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {_key(key): _at(f"[{key!r}]", one) for key, one in value.items()}
        return {_PAIRS: [[_plain(key), _at(f"[{key!r}]", one)] for key, one in value.items()]}
    if isinstance(value, str | int | float):
        return value  # json writes the value of a subclass
    raise _Refused(_reason(value))


def _at(place: str, value: Any) -> Any:
    if type(value) in _ATOMS:
        return value
    try:
        return _plain(value)
    except _Refused as refused:
        refused.path.append(place)
        raise


def _key(key: str) -> str:
    return _ESCAPE + key if key.startswith(_ESCAPE) else key


def _reason(value: Any) -> str:
    kind = type(value)
    name = (
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    )
    known = [record.__name__ for record in _FIELDS if isinstance(value, record)]
    if known:
        return (
            f"a {name}, a subclass of {known[0]} whose own fields would be lost: give a {known[0]}"
        )
    advice = ""
    if hasattr(value, "tolist"):
        advice = "; turn it into lists and numbers with .tolist()"
    elif isinstance(value, set | frozenset):
        advice = "; give sorted(...) of it"
    return (
        f"a {name}; give only strings, numbers, True, False, None, lists, tuples and mappings of "
        f"them{advice}"
    )


def sendable_result(value: Any, call: str) -> StepResult:
    """``value``, if it is a ``StepResult`` with fields of the right types.

    Scalars of array libraries become the numbers and booleans that they hold. A reward that is
    NaN is sent: the loop judges it.

    Raises:
        EnvError: says which field, what was got and what to give.
    """
    if not isinstance(value, StepResult):
        raise EnvError(f"{call} returned {_short(value)}, expected a StepResult")
    sendable_observation(value.observation, call)
    metrics: Any = value.metrics
    if not isinstance(metrics, Mapping):
        _refuse(call, "metrics", metrics, "a mapping of names to numbers")
    scalars = {name: _scalar(getattr(value, name)) for name in _SCALARS}
    for name, scalar in scalars.items():
        kinds, expected = _SCALARS[name]
        if not isinstance(scalar, kinds):
            _refuse(call, name, scalar, expected)
    numbers = {name: _scalar(number) for name, number in metrics.items()}
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not isinstance(name, str):
            _refuse(call, f"metrics[{name!r}]", number, "a name and a number")
    return replace(value, **scalars, metrics=numbers)


def sendable_observation(value: Any, call: str) -> Observation:
    """``value``, if it is an ``Observation`` with fields of the right types.

    Raises:
        EnvError: as for ``sendable_result``.
    """
    if not isinstance(value, Observation):
        raise EnvError(f"{call} returned {_short(value)}, expected an Observation")
    for name, kind in (("messages", Message), ("admissible", str)):
        given: Any = getattr(value, name)
        if given is None and name == "admissible":
            continue
        whole = isinstance(given, Sequence) and not isinstance(given, str)
        if not whole or not all(isinstance(one, kind) for one in given):
            _refuse(call, f"observation.{name}", given, f"a tuple of {kind.__name__}")
    for place, message in enumerate(value.messages):
        if not isinstance(message.content, str):
            name = f"observation.messages[{place}].content"
            _refuse(call, name, message.content, "text")
    return value


def _scalar(value: Any) -> Any:
    """What a scalar of an array library holds."""
    if type(value) in _ATOMS or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except (TypeError, ValueError, RuntimeError):
        return value  # an array of several


def _refuse(call: str, name: str, value: Any, expected: str) -> NoReturn:
    kind = type(value)
    raise EnvError(
        f"{call} returned {name}={_short(value)} of type {kind.__module__}.{kind.__qualname__}, "
        f"expected {expected}"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
