"""How hard generated rooms are: a frozen record and its three presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from agentrl.core.errors import ConfigError, nearest
from agentrl.envs.alfworld.game import TASK_TYPES
from agentrl.envs.alfworld.vocabulary import STYLES


def _wrong(name: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"env 'alfworld': difficulty.{name} must be {expected}, got {value!r}")


def _known(name: str, values: Any, known: Mapping[str, Any]) -> None:
    if not isinstance(values, tuple) or not values:
        raise _wrong(name, values, f"a list of some of {', '.join(known)}")
    for value in values:
        if value not in known:
            raise ConfigError(
                f"env 'alfworld': unknown {value!r} in difficulty.{name}"
                f"{nearest(str(value), known) or '.'} It may hold: {', '.join(known)}."
            )


def _range(name: str, value: Any, least: int) -> None:
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not all(isinstance(end, int) for end in value)
        or not least <= value[0] <= value[1]
    ):
        raise _wrong(name, value, f"[least, most] with {least} <= least <= most")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Settings of the generator. All ranges include both ends.

    Attributes:
        task_types: Which of the six task types occur, equally often.
        styles: Which kinds of rooms occur (``kitchen``, ``bedroom``, ``living``, ``bathroom``).
        receptacles: Least and most receptacles of a room (at least 4).
        things: Least and most objects of a room (at least 2; a lamp comes on top).
        receptacle_types: Size of the vocabulary of receptacles in each style.
        thing_types: Size of the vocabulary of objects in each style.
        copies: Most objects of one type in a room (at least 2).
        openable: Share of drawers, cabinets and safes that must be opened first. Fridges and
            microwaves always must.
        shared: Share of receptacles that stand where another one does.
        wordings: 1: one task sentence per task type; 2: both of ALFWorld's.

    Raises:
        ConfigError: A value is out of range or a name unknown.
    """

    task_types: tuple[str, ...] = tuple(TASK_TYPES)
    styles: tuple[str, ...] = ("kitchen",)
    receptacles: tuple[int, int] = (4, 6)
    things: tuple[int, int] = (3, 6)
    receptacle_types: int = 7
    thing_types: int = 8
    copies: int = 2
    openable: float = 0.3
    shared: float = 0.0
    wordings: int = 1

    def __post_init__(self) -> None:
        _known("task_types", self.task_types, TASK_TYPES)
        _known("styles", self.styles, STYLES)
        _range("receptacles", self.receptacles, 4)
        _range("things", self.things, 2)
        for name, least in (("receptacle_types", 4), ("thing_types", 2), ("copies", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise _wrong(name, value, f"a whole number of at least {least}")
        for name in ("openable", "shared"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise _wrong(name, value, "a share from 0 to 1")
        if self.wordings not in (1, 2):
            raise _wrong("wordings", self.wordings, "1 or 2")

    def to_data(self) -> dict[str, Any]:
        """The settings as JSON-like data."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }


#: ``tiny``: at most 12 commands when everything is known; for models that learn on a CPU.
#: ``small``: a step towards real rooms. ``full``: as large and mixed as ALFWorld's own.
PRESETS: dict[str, Difficulty] = {
    "tiny": Difficulty(),
    "small": Difficulty(
        styles=("kitchen", "bedroom"),
        receptacles=(6, 10),
        things=(6, 14),
        receptacle_types=9,
        thing_types=14,
        openable=0.5,
        wordings=2,
    ),
    "full": Difficulty(
        styles=tuple(STYLES),
        receptacles=(12, 30),
        things=(14, 40),
        receptacle_types=13,
        thing_types=33,
        copies=3,
        openable=0.7,
        shared=0.2,
        wordings=2,
    ),
}


def as_difficulty(setting: str | Mapping[str, Any] | Difficulty) -> Difficulty:
    """A difficulty from a preset's name, or a mapping of settings over a preset.

    A mapping may name the preset that it changes under ``preset`` (default ``tiny``).

    Raises:
        ConfigError: The preset or a setting is unknown, or a value out of range.
    """
    if isinstance(setting, Difficulty):
        return setting
    values: dict[str, Any] = {"preset": setting} if isinstance(setting, str) else dict(setting)
    preset = values.pop("preset", "tiny")
    if preset not in PRESETS:
        hint = nearest(str(preset), PRESETS) or "."
        raise ConfigError(
            f"env 'alfworld': unknown difficulty {preset!r}{hint} "
            f"It may be: {', '.join(PRESETS)}, or a mapping of settings."
        )
    known = [field.name for field in fields(Difficulty)]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"env 'alfworld': unknown setting of the difficulty: {name!r}"
                f"{nearest(str(name), known) or '.'} It has: preset, {', '.join(known)}."
            )
        if isinstance(value, list):
            values[name] = tuple(value)
    return replace(PRESETS[preset], **values)
