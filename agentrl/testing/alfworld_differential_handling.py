"""Takes a thing of an ALFWorld game through everything that the rules let be done to one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.game import CLEANERS, COOLERS, HEATERS, KNIVES

__all__ = ["Handling"]

#: Verb, ability that it needs, types of the appliances.
_TREATMENTS = (
    ("clean", "cleanable", CLEANERS),
    ("heat", "heatable", HEATERS),
    ("cool", "coolable", COOLERS),
)
_TREATED = 5


@dataclass(frozen=True, slots=True)
class Handling:
    """One thing is sliced, cleaned, heated, cooled and examined all the way.

    Random commands seldom get that far. Commands are those of somebody who knows the whole room;
    they must be played as they come, and may be impossible if something else was played between.

    Attributes:
        world: The live state. rng: draws the thing and the order.
    """

    world: World
    rng: random.Random

    def commands(self) -> Iterator[str]:
        """The commands; they end with the thing in hand. None if nothing can be taken."""
        things = self.world.game.things
        able = [
            index
            for inside in self.world.contents
            for index in inside
            if "pickupable" in things[index].abilities
        ]
        if not able:
            return
        # What more can be done with is likelier.
        weights = [len(things[index].abilities) ** 3 for index in able]
        (index,) = self.rng.choices(able, weights)
        knives = [one for one in able if things[one].type in KNIVES]
        if "sliceable" in things[index].abilities and knives:
            yield from self._slice(index, self.rng.choice(knives))
        yield from self._fetch(index)
        yield from self._treat(index)

    def _name(self, place: int) -> str:
        return self.world.game.receptacles[place].name

    def _go(self, place: int) -> Iterator[str]:
        yield f"go to {self._name(place)}"
        if not self.world.accessible(place):
            yield f"open {self._name(place)}"

    def _put_down(self) -> Iterator[str]:
        world, game = self.world, self.world.game
        if world.held is None:
            return
        thing = game.things[world.held]
        fitting = [
            place
            for place, receptacle in enumerate(game.receptacles)
            if thing.type in game.accepts.get(receptacle.type, ())
        ]
        if fitting:
            place = self.rng.choice(fitting)
            yield from self._go(place)
            yield f"move {thing.name} to {self._name(place)}"

    def _where(self, index: int) -> int | None:
        holders = (place for place, inside in enumerate(self.world.contents) if index in inside)
        return next(holders, None)

    def _fetch(self, index: int) -> Iterator[str]:
        yield from self._put_down()
        place, name = self._where(index), self.world.game.things[index].name
        if place is not None:
            yield from self._go(place)
            yield f"take {name} from {self._name(place)}"
            yield f"examine {name}"

    def _slice(self, index: int, knife: int) -> Iterator[str]:
        things, place = self.world.game.things, self._where(index)
        yield from self._fetch(knife)
        if place is not None:
            yield f"go to {self._name(place)}"
            yield f"slice {things[index].name} with {things[knife].name}"

    def _treat(self, index: int) -> Iterator[str]:
        game, thing = self.world.game, self.world.game.things[index]
        possible = [
            (verb, place)
            for verb, ability, types in _TREATMENTS
            for place, receptacle in enumerate(game.receptacles)
            if ability in thing.abilities and receptacle.type in types
        ]
        for verb, place in self.rng.choices(possible, k=_TREATED) if possible else ():
            yield f"go to {self._name(place)}"
            yield f"{verb} {thing.name} with {self._name(place)}"
            yield f"examine {thing.name}"
