"""Two experts, both pure functions of a ``World``: usable from any state, after any mistake.

``OracleExpert`` sees the whole room and is short of steps. ``SearchExpert`` sees what the text has
shown, as a policy does: its episodes can be imitated. Every generated game can be solved from every
state; in real games a few things fit nowhere once they are taken, and then there is no way on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.game import CLEANERS, COOLERS, HEATERS, TASK_TYPES
from agentrl.envs.alfworld.vocabulary import LAMP_PLACES

#: State asked for -> (command, ability of the object, appliances).
_TREATMENTS = {
    "clean": ("clean", "cleanable", CLEANERS),
    "hot": ("heat", "heatable", HEATERS),
    "cool": ("cool", "coolable", COOLERS),
}
_TREATMENT_COST = 2


class Expert(Protocol):
    """Chooses the next command from the state of a game."""

    def next_command(self, world: World) -> str | None:
        """A possible command that leads on; ``None`` if won, or if nothing leads to the goal."""
        ...


class OracleExpert:
    """Knows where everything is; takes a short way from the current state."""

    def next_command(self, world: World) -> str | None:
        """A possible command that leads on; ``None`` if won, or if nothing leads to the goal."""
        return _Plan(world, range(len(world.contents)), omniscient=True).next()


class SearchExpert:
    """Knows only what the text has shown; looks where the thing may be, each place once."""

    def next_command(self, world: World) -> str | None:
        """A possible command that leads on; ``None`` if won, or if nothing leads to the goal."""
        return _Plan(world, sorted(world.seen), omniscient=False).next()


EXPERTS: dict[str, type[Expert]] = {"oracle": OracleExpert, "search": SearchExpert}


class _Plan:
    """What to do next, given the receptacles whose contents are known."""

    def __init__(self, world: World, known: Sequence[int], *, omniscient: bool) -> None:
        self.world = world
        self.known = known
        self.omniscient = omniscient
        self.goal = world.game.goal
        self.state = TASK_TYPES[self.goal.task_type]
        self.verb, self.ability, self.appliances = _TREATMENTS.get(
            self.state, ("", "pickupable", frozenset())
        )

    def next(self) -> str | None:
        world = self.world
        if world.won:
            return None
        if world.held is None:
            wanted = self._wanted()
            return self._fetch(wanted) if wanted else self._explore(self.goal.thing)
        if not self._suits(world.held):
            return self._put_down(world.held)
        if self.state == "lit":
            return self._to_lamp()
        if not self._treated(world.held):
            return self._treat(world.held)
        return self._deliver(world.held)

    def _suits(self, index: int) -> bool:
        thing = self.world.game.things[index]
        abilities = thing.abilities
        return thing.type == self.goal.thing and {"pickupable", self.ability} <= abilities

    def _treated(self, index: int) -> bool:
        world = self.world
        match self.state:
            case "clean":
                return index in world.clean
            case "hot":
                return index in world.hot
            case "cool":
                return world.cool(index) if self.omniscient else index in world.cooled
        return True

    def _wanted(self) -> list[tuple[int, int]]:
        """(place, thing) for all things that are known and would serve."""
        full = self._fullest_target() if self.state == "two" else None
        return [
            (place, index)
            for place in self.known
            if place != full
            for index in self.world.contents[place]
            if self._suits(index)
        ]

    def _fullest_target(self) -> int | None:
        """The target receptacle that is known to hold a thing asked for already."""
        count = {place: self._delivered(place) for place in self._targets() if place in self.known}
        fullest = max(count, key=lambda place: (count[place], -place), default=None)
        return fullest if fullest is not None and count[fullest] else None

    def _delivered(self, place: int) -> int:
        return sum(self.world.delivers(index) for index in self.world.contents[place])

    def _targets(self) -> tuple[int, ...]:
        return self.world.game.layout.of_type.get(self.goal.target, ())

    def _away(self, place: int) -> bool:
        return self.world.game.receptacles[place].location != self.world.location

    def _closed(self, place: int) -> bool:
        """Whether a place is known to be closed."""
        told = self.omniscient or place in self.known or not self._away(place)
        return told and not self.world.accessible(place)

    def _cost(self, place: int) -> int:
        return self._away(place) + self._closed(place)

    def _reach(self, place: int) -> str | None:
        """The command that brings a place nearer; ``None`` when one can reach into it."""
        name = self.world.game.receptacles[place].name
        if self._away(place):
            return f"go to {name}"
        return f"open {name}" if self._closed(place) else None

    def _nearest(self, places: Iterable[int]) -> int | None:
        return min(places, key=lambda place: (self._cost(place), place), default=None)

    def _fetch(self, wanted: list[tuple[int, int]]) -> str:
        def cost(pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
            treatment = 0 if self._treated(pair[1]) else _TREATMENT_COST
            return self._cost(pair[0]) + treatment, pair

        place, index = min(wanted, key=cost)
        game = self.world.game
        take = f"take {game.things[index].name} from {game.receptacles[place].name}"
        return self._reach(place) or take

    def _explore(self, kind: str) -> str | None:
        """Look into the next place not seen yet: first where such a thing may be."""
        game = self.world.game

        def order(place: int) -> tuple[bool, bool, int]:
            receptacle = game.receptacles[place].type
            likely = kind in game.accepts.get(receptacle, ()) or (
                kind == self.goal.target and receptacle in LAMP_PLACES
            )
            return not likely, self._away(place), place

        unseen = set(range(len(game.receptacles))).difference(self.known)
        place = min(unseen, key=order, default=None)
        if place is None:
            return None
        return self._reach(place) or f"examine {game.receptacles[place].name}"

    def _put_down(self, index: int) -> str | None:
        game = self.world.game
        kind = game.things[index].type
        place = self._nearest(
            place
            for place, receptacle in enumerate(game.receptacles)
            if kind in game.accepts.get(receptacle.type, ())
        )
        return None if place is None else self._reach(place) or self._move(index, place)

    def _move(self, index: int, place: int) -> str:
        game = self.world.game
        return f"move {game.things[index].name} to {game.receptacles[place].name}"

    def _treat(self, index: int) -> str | None:
        game = self.world.game
        place = self._nearest(
            place
            for place, receptacle in enumerate(game.receptacles)
            if receptacle.type in self.appliances
        )
        if place is None:
            return None
        name = game.receptacles[place].name
        if self._away(place):
            return f"go to {name}"
        return f"{self.verb} {game.things[index].name} with {name}"

    def _deliver(self, index: int) -> str | None:
        fullest = self._fullest_target() if self.state == "two" else None
        place = self._nearest(self._targets()) if fullest is None else fullest
        return None if place is None else self._reach(place) or self._move(index, place)

    def _to_lamp(self) -> str | None:
        game, world = self.world.game, self.world
        places = {
            place: index
            for place in self.known
            for index in world.contents[place]
            if game.things[index].type == self.goal.target
        }
        place = min(places, key=lambda place: (self._away(place), place), default=None)
        if place is None:
            return self._explore(self.goal.target)
        if self._away(place):
            return f"go to {game.receptacles[place].name}"
        return f"use {game.things[places[place]].name}"
