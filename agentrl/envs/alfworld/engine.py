"""Plays a ``Game`` by ALFWorld's rules with ALFWorld's text, on the standard library alone.

``World`` is the live state of one episode. A command is looked up among those that are possible
now, exactly as ALFWorld does, so the set of possible commands *is* the parser: case matters,
surrounding blanks do not, and everything else is answered by "Nothing happens.".

An action is a plain tuple ``(verb, thing, receptacle)`` of indices into the game (-1: none); plain
tuples, sets and lists keep a step near ten microseconds.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.envs.alfworld import text
from agentrl.envs.alfworld.game import CLEANERS, COOLERS, HEATERS, KNIVES, Game

#: (verb, index of the thing or -1, index of the receptacle or -1)
Action = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one command.

    Attributes:
        feedback: The text.
        reward: 1.0 whenever the goal holds, else 0.0.
        won: Whether the goal holds; the game is done then.
        valid: Whether the command was possible.
    """

    feedback: str
    reward: float
    won: bool
    valid: bool


class World:
    """The live state of one game; make a new one per episode.

    Attributes:
        game: What is played.
        location: Where the agent is (-1: at no receptacle).
        opened: Indices of open receptacles.
        contents: For each receptacle the sorted indices of the things in it.
        held: Index of the thing in hand, or ``None``.
        clean, hot, sliced, lit: Indices of the things in that state.
        cooled: Indices of the things that the agent cooled and did not heat since.
        seen: Indices of the receptacles whose contents the text has shown so far.
    """

    def __init__(self, game: Game) -> None:
        self.game = game
        self.location = game.start
        self.opened: set[int] = set()
        self.contents = [list(inside) for inside in game.contents]
        self.held: int | None = None
        self.clean: set[int] = set()
        self.hot: set[int] = set()
        self.cooled: set[int] = set()
        self._born_cold = {index for index, thing in enumerate(game.things) if thing.cold}
        self.sliced: set[int] = set()
        self.lit: set[int] = set()
        self.seen: set[int] = set()
        # ALFWorld keeps an object's location apart from its receptacle, and the two may differ.
        self._places = [
            set() if thing.location is None else {thing.location} for thing in game.things
        ]
        # (thing, receptacle): it was taken from there and not put back.
        self._taken: set[tuple[int, int]] = set()
        self._commands: dict[str, Action] | None = None

    @property
    def intro(self) -> str:
        """The text of a reset: the room as it is now, and the task."""
        names = [receptacle.name for receptacle in self.game.receptacles]
        room = text.MIDDLE_OF_ROOM.format(things=text.things(names))
        look = _look(self, -1, -1) if self.here else room
        return text.WELCOME.format(look=look, instruction=self.game.instruction)

    @property
    def commands(self) -> dict[str, Action]:
        """Every command that is possible now, with its action (unsorted; not to be changed)."""
        if self._commands is None:
            self._commands = _possible(self)
        return self._commands

    @property
    def admissible(self) -> list[str]:
        """Every command that is possible now, sorted."""
        return sorted(self.commands)

    @property
    def here(self) -> tuple[int, ...]:
        """Indices of the receptacles where the agent is."""
        return self.game.layout.at.get(self.location, ())

    def accessible(self, receptacle: int) -> bool:
        """Whether one can reach into a receptacle: it is open, or needs no opening."""
        return receptacle in self.opened or not self.game.receptacles[receptacle].openable

    def cool(self, index: int) -> bool:
        """Whether a thing is cool: from the start on, or made so."""
        return index in self.cooled or index in self._born_cold

    def step(self, command: str) -> Reply:
        """Answer one command. An impossible one changes nothing."""
        action = self.commands.get(command.strip())
        if action is None:
            feedback = text.NOTHING_HAPPENS
        else:
            verb, thing, receptacle = action
            feedback = _VERBS[verb](self, thing, receptacle)
            self._commands = None
        won = self.won
        return Reply(feedback, 1.0 if won else 0.0, won, action is not None)

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        goal, things = self.game.goal, self.game.things
        if goal.task_type == "look_at_obj_in_light":
            if self.held is None or things[self.held].type != goal.thing:
                return False
            lamps = {index for index in self.lit if things[index].type == goal.target}
            return any(not lamps.isdisjoint(self.contents[place]) for place in self.here)
        enough = 2 if goal.task_type == "pick_two_obj_and_place" else 1
        return any(
            sum(self.delivers(index) for index in self.contents[place]) >= enough
            for place in self.game.layout.of_type.get(goal.target, ())
        )

    def delivers(self, index: int) -> bool:
        """Whether a thing is what the goal asks for, in the state it asks for."""
        goal, thing = self.game.goal, self.game.things[index]
        if thing.type != goal.thing:
            return False
        match goal.task_type:
            case "pick_clean_then_place_in_recep":
                return index in self.clean and "cleanable" in thing.abilities
            case "pick_heat_then_place_in_recep":
                return index in self.hot and "heatable" in thing.abilities
            case "pick_cool_then_place_in_recep":
                return self.cool(index) and "coolable" in thing.abilities
        return True

    def put(self, thing: int, receptacle: int) -> None:
        """Let go of a thing into a receptacle at the agent's location."""
        if thing not in self.contents[receptacle]:  # it may lie in two receptacles
            insort(self.contents[receptacle], thing)
        self._places[thing].add(self.location)
        self._taken.discard((thing, receptacle))
        self.held = None

    def take(self, thing: int, receptacle: int) -> None:
        """Take a thing in hand out of a receptacle at the agent's location."""
        self.contents[receptacle].remove(thing)
        self._places[thing].discard(self.location)
        self._taken.add((thing, receptacle))
        self.held = thing

    def warm(self, index: int) -> None:
        """Make a thing hot, and no longer cool."""
        self.hot.add(index)
        self.cooled.discard(index)
        self._born_cold.discard(index)

    def beside(self) -> list[int]:
        """Things at the agent's location that were taken from a receptacle there.

        ALFWorld lists them as lying next to it, once for each such receptacle, wherever at this
        location they were put since.
        """
        taken = sorted(pair for pair in self._taken if pair[1] in self.here)
        return [thing for thing, _ in taken if self.location in self._places[thing]]

    def sliceable_here(self) -> list[int]:
        """Things that can be sliced where the agent is, whatever holds them."""
        return [i for i in self.game.layout.sliceable if self.location in self._places[i]]


def _possible(world: World) -> dict[str, Action]:
    game, held = world.game, world.held
    commands = dict(game.layout.elsewhere(world.location))
    tool = None if held is None else game.things[held]
    for place in world.here:
        receptacle = game.receptacles[place]
        name = receptacle.name
        commands[f"examine {name}"] = ("examine receptacle", -1, place)
        inside = world.contents[place]
        if receptacle.openable:
            verb = "close" if place in world.opened else "open"
            commands[f"{verb} {name}"] = (verb, -1, place)
        if not receptacle.openable or place in world.opened:
            for index in inside:
                thing = game.things[index]
                if tool is None and "pickupable" in thing.abilities:
                    commands[f"take {thing.name} from {name}"] = ("take", index, place)
            if tool is not None and tool.type in game.accepts.get(receptacle.type, ()):
                commands[f"move {tool.name} to {name}"] = ("move", held or 0, place)
        for index in inside:
            if "toggleable" in game.things[index].abilities:
                commands[f"use {game.things[index].name}"] = ("use", index, place)
        if held is not None and tool is not None:
            for verb, ability, types in _APPLIANCES:
                if receptacle.type in types and ability in tool.abilities:
                    commands[f"{verb} {tool.name} with {name}"] = (verb, held, place)
    if held is not None and tool is not None:
        commands[f"examine {tool.name}"] = ("examine", held, -1)
        if tool.type in KNIVES:
            for index in world.sliceable_here():
                commands[f"slice {game.things[index].name} with {tool.name}"] = ("slice", index, -1)
    return commands


_APPLIANCES = (
    ("clean", "cleanable", CLEANERS),
    ("heat", "heatable", HEATERS),
    ("cool", "coolable", COOLERS),
)


def _names(world: World, indices: list[int]) -> str:
    return text.things([world.game.things[index].name for index in indices])


def _sight(world: World, _thing: int, place: int) -> str:
    receptacle = world.game.receptacles[place]
    if not world.accessible(place):
        return text.SIGHT_CLOSED.format(receptacle=receptacle.name)
    world.seen.add(place)
    form = text.SIGHT_IN if receptacle.openable else text.SIGHT_ON
    return form.format(receptacle=receptacle.name, things=_names(world, world.contents[place]))


def _look(world: World, _thing: int, _place: int) -> str:
    receptacles = world.game.receptacles
    if world.here:
        facing = text.listing([receptacles[place].name for place in world.here])
        return text.FACING.format(receptacles=facing, things=_names(world, world.beside()))
    # Only the text of a reset lists the room: ALFWorld's "look" sees what is at the location.
    return text.MIDDLE_OF_ROOM.format(things=text.NOTHING)


def _inventory(world: World, _thing: int, _place: int) -> str:
    if world.held is None:
        return text.CARRYING_NOTHING
    return text.CARRYING.format(things=_names(world, [world.held]))


def _help(_world: World, _thing: int, _place: int) -> str:
    return text.HELP


def _go(world: World, _thing: int, place: int) -> str:
    receptacle = world.game.receptacles[place]
    world.location = receptacle.location
    return text.ARRIVE.format(receptacle=receptacle.name, sight=_sight(world, -1, place))


def _open(world: World, _thing: int, place: int) -> str:
    world.opened.add(place)
    name = world.game.receptacles[place].name
    return text.OPEN.format(receptacle=name, sight=_sight(world, -1, place))


def _close(world: World, _thing: int, place: int) -> str:
    world.opened.discard(place)
    return text.CLOSE.format(receptacle=world.game.receptacles[place].name)


def _say(form: str, world: World, index: int, place: int) -> str:
    game = world.game
    return form.format(thing=game.things[index].name, receptacle=game.receptacles[place].name)


def _take(world: World, index: int, place: int) -> str:
    world.take(index, place)
    return _say(text.TAKE, world, index, place)


def _move(world: World, index: int, place: int) -> str:
    world.put(index, place)
    return _say(text.MOVE, world, index, place)


def _clean(world: World, index: int, place: int) -> str:
    world.clean.add(index)
    return _say(text.CLEAN, world, index, place)


def _heat(world: World, index: int, place: int) -> str:
    world.warm(index)
    return _say(text.HEAT, world, index, place)


def _cool(world: World, index: int, place: int) -> str:
    world.cooled.add(index)
    world.hot.discard(index)
    return _say(text.COOL, world, index, place)


def _use(world: World, index: int, _place: int) -> str:
    # ALFWorld marks a lamp as used and never as unused, so "off" is never said.
    world.lit.add(index)
    return text.TURN_ON.format(thing=world.game.things[index].name)


def _slice(world: World, index: int, _place: int) -> str:
    things = world.game.things
    world.sliced.add(index)
    tool = things[world.held].name if world.held is not None else ""
    return text.SLICE.format(thing=things[index].name, tool=tool)


def _examine(world: World, index: int, _place: int) -> str:
    thing = world.game.things[index]
    if "vessel" in thing.abilities:
        return text.VESSEL.format(thing=thing.name, things=text.things(thing.holds))
    clean, hot, cool = index in world.clean, index in world.hot, world.cool(index)
    sliced = index in world.sliced
    forms = (
        (clean and hot and sliced, text.HOT_CLEAN_SLICED),
        (clean and cool and sliced, text.COOL_CLEAN_SLICED),
        (clean and sliced, text.CLEAN_SLICED),
        (hot and sliced, text.HOT_SLICED),
        (cool and sliced, text.COOL_SLICED),
        (clean and hot, text.HOT_CLEAN),
        (clean and cool, text.COOL_CLEAN),
        (hot, text.HOT),
        (clean, text.CLEANED),
        (cool, text.COLD),
        (index in world.lit, text.IS_ON),
        (sliced, text.SLICED),
    )
    form = next((form for holds, form in forms if holds), text.NOT_SPECIAL)
    return form.format(thing=thing.name)


_VERBS: dict[str, Callable[[World, int, int], str]] = {
    "go to": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "move": _move,
    "clean": _clean,
    "heat": _heat,
    "cool": _cool,
    "use": _use,
    "slice": _slice,
    "examine": _examine,
    "examine receptacle": _sight,
    "look": _look,
    "inventory": _inventory,
    "help": _help,
}
