"""The record of one game: a room, where everything is, and what is asked.

Real games (``game.tw-pddl``) and generated ones become the same record, so that one engine, one
text and one pair of experts serve both. Records are frozen and hold plain data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.task import content_hash
from agentrl.envs.alfworld.layout import Layout

#: Task type -> the state that the object must be in ("" for none). The order is ALFWorld's own.
TASK_TYPES: dict[str, str] = {
    "pick_and_place_simple": "",
    "look_at_obj_in_light": "lit",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "hot",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "two",
}

#: Appliance types that change the state of a held object.
CLEANERS = frozenset({"sink", "sinkbasin"})
HEATERS = frozenset({"microwave"})
COOLERS = frozenset({"fridge"})
#: Object types that slice.
KNIVES = frozenset({"knife", "butterknife"})

#: Abilities of an object (what may be done with it).
ABILITIES = ("pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable", "vessel")


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins the game.

    Attributes:
        task_type: One of ``TASK_TYPES``.
        thing: Type of the object to deliver or to look at.
        target: Type of the receptacle to deliver to, or of the lamp to look under.
    """

    task_type: str
    thing: str
    target: str


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A place that holds objects. Several receptacles may share one ``location``."""

    name: str
    type: str
    location: int
    openable: bool


@dataclass(frozen=True, slots=True)
class Thing:
    """An object.

    Attributes:
        name: ``mug 1``. type: ``mug``.
        abilities: Some of ``ABILITIES``.
        holds: Names of the objects that lie in this one (it is a ``vessel``); never changes.
        location: Where the object is listed apart from its receptacle; ``None`` for nowhere.
        cold: The object is cool when the game begins.
    """

    name: str
    type: str
    abilities: frozenset[str]
    holds: tuple[str, ...] = ()
    location: int | None = None
    cold: bool = False


@dataclass(frozen=True)
class Game:
    """A room and a task in it.

    Attributes:
        instruction: The task sentence.
        goal: What wins.
        receptacles: In the order of every listing.
        things: In the order of every listing.
        contents: For each receptacle the indices into ``things`` of what is in it at the start.
            In some real games one object lies in two receptacles.
        accepts: Receptacle type -> object types that may be put there.
        start: Location of the agent at the start.
        walkthrough: A stored solution, if there is one (no part of the game's identity).
    """

    instruction: str
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    contents: tuple[tuple[int, ...], ...]
    accepts: Mapping[str, frozenset[str]]
    start: int = -1
    walkthrough: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def layout(self) -> Layout:
        """Lookup tables for the engine and the experts."""
        return Layout(self)

    @property
    def id(self) -> str:
        """Content hash: equal for equal rooms and tasks, wherever they came from."""
        return content_hash(self.to_data())

    def to_data(self) -> dict[str, Any]:
        """The game as compact JSON-like data; ``from_data`` reads it back."""
        return {
            "instruction": self.instruction,
            "goal": [self.goal.task_type, self.goal.thing, self.goal.target],
            "receptacles": [
                [r.name, r.type, r.location, int(r.openable)] for r in self.receptacles
            ],
            "things": [
                [t.name, t.type, sorted(t.abilities), list(t.holds), t.location, int(t.cold)]
                for t in self.things
            ],
            "contents": [list(inside) for inside in self.contents],
            "accepts": {kind: sorted(types) for kind, types in sorted(self.accepts.items())},
            "start": self.start,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Game:
        """Read what ``to_data`` wrote.

        Raises:
            DataError: A key is missing or a value has the wrong shape.
        """
        try:
            return cls(
                instruction=data["instruction"],
                goal=Goal(*data["goal"]),
                receptacles=tuple(
                    Receptacle(name, kind, location, bool(openable))
                    for name, kind, location, openable in data["receptacles"]
                ),
                things=tuple(
                    Thing(name, kind, frozenset(abilities), tuple(holds), location, bool(cold))
                    for name, kind, abilities, holds, location, cold in data["things"]
                ),
                contents=tuple(tuple(inside) for inside in data["contents"]),
                accepts={kind: frozenset(types) for kind, types in data["accepts"].items()},
                start=data["start"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"a game record does not have the expected shape: {error!r}; expected the keys "
                "instruction, goal, receptacles, things, contents, accepts, start as written by "
                "Game.to_data; list the tasks again with the factory instead of editing payloads"
            ) from error
