"""What is typed when two ALFWorld engines are compared: sensible commands and odd ones.

A script asks for the next command with the native engine at hand, so it can wander among what is
possible, follow an expert from any state, and twist what it sees into something odd.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.experts import SearchExpert

__all__ = ["KINDS", "ODD", "Typed", "script"]

#: (kind of the command, the command)
Typed = tuple[str, str]

#: Longest "very long" command, in characters.
LONG = 20_000
_EXPERT_STEPS, _EXTRA_STEPS = 50, 2
_BLANKS = (" ", "\t", "\n", "\r\n", "\x0b", "\x1f", "\u00a0", "\u2003", "\u3000", "\u2028")
_NO_BLANKS = ("\x00", "\x07", "\u200b", "\ufeff", "\u202e")
_SYMBOLS = ("#intro#", "{r.name}", "%s", "${o}", "(receptacle)", "<action>", "\\n", "| look |")
_UNICODE = (
    "gö to desk 1",
    "看",
    "ｌｏｏｋ",
    "lo\u0301ok",
    "😀",
    "\ud800",
    "İnventory",
    "ſlice",
    "looḱ",
)
_WORDS = (
    "xyzzy",
    "quit",
    "restart",
    "undo",
    "score",
    "verbose",
    "north",
    "wait",
    "yes",
    "0",
    "None",
)


def _twist_case(rng: random.Random, world: World) -> str:
    command = rng.choice(world.admissible)
    return rng.choice((command.upper(), command.title(), command.capitalize(), command.swapcase()))


def _blanks_around(rng: random.Random, world: World) -> str:
    command = rng.choice(world.admissible)
    return rng.choice(_BLANKS) + command + rng.choice(_BLANKS) * rng.randint(0, 2)


def _blanks_inside(rng: random.Random, world: World) -> str:
    words = rng.choice([one for one in world.admissible if " " in one]).split(" ")
    return rng.choice(("  ", *_BLANKS[1:])).join(words)


def _empty(rng: random.Random, _world: World) -> str:
    return "".join(rng.choice(_BLANKS) for _ in range(rng.randint(0, 3)))


def _unknown(rng: random.Random, world: World) -> str:
    word, command = rng.choice(_WORDS), rng.choice(world.admissible)
    return rng.choice((word, f"{word} {command}", f"{command} {word}", f"please {command}"))


def _unicode(rng: random.Random, world: World) -> str:
    command = rng.choice(world.admissible)
    unseen = rng.choice(_NO_BLANKS)
    return rng.choice((*_UNICODE, unseen + command, command + unseen, command.replace("o", "о")))


def _symbols(rng: random.Random, world: World) -> str:
    command, symbol = rng.choice(world.admissible), rng.choice(_SYMBOLS)
    return rng.choice(
        (symbol, f"examine {symbol}", f"{command} {symbol}", f"{command}.", f'"{command}"')
    )


def _long(rng: random.Random, world: World) -> str:
    command = rng.choice(world.admissible)
    most = rng.choice((200, 2_000, LONG))
    return rng.choice(((command + " ") * most, "a" * most, command + " " * most))[:most]


def _two(rng: random.Random, world: World) -> str:
    joint = rng.choice(("\n", "; ", " and ", ", ", " then ", ". "))
    return joint.join(rng.choice(world.admissible) for _ in range(2))


def _cut(rng: random.Random, world: World) -> str:
    command = rng.choice(world.admissible)
    return rng.choice((command[:-1], command[1:], command.rpartition(" ")[0], command + "0"))


def _names(world: World) -> tuple[list[str], list[str]]:
    game = world.game
    return [one.name for one in game.things] or [""], [one.name for one in game.receptacles]


def _examine(rng: random.Random, world: World) -> str:
    """Examines of what is held, seen, hidden, far away, or nothing at all."""
    things, places = _names(world)
    name = rng.choice((rng.choice(things), rng.choice(places), "me", "room", "", "nothing", "it"))
    return rng.choice((f"examine {name}", f"look at {name}", f"examine a {name}", f"read {name}"))


def _impossible(rng: random.Random, world: World) -> str:
    """Well-formed commands about what is in the game; most are not possible now."""
    things, places = _names(world)
    one, other, place = rng.choice(things), rng.choice(things), rng.choice(places)
    forms = (
        *(f"{verb} {place}" for verb in ("go to", "open", "close", "use")),
        *(f"{verb} {one} with {place}" for verb in ("heat", "clean", "cool", "slice")),
        f"take {one} from {place}",
        f"move {one} to {place}",
        f"slice {one} with {other}",
        f"use {one}",
        f"open {one}",
        f"go to {one}",
    )
    return rng.choice(forms)


def _old_words(rng: random.Random, world: World) -> str:
    """What other versions of ALFWorld, and people, say."""
    things, places = _names(world)
    one, place = rng.choice(things), rng.choice(places)
    forms = (
        f"put {one} in/on {place}",
        f"put {one} in {place}",
        f"pick up {one} from {place}",
        f"take the {one} from the {place}",
        f"go to the {place}",
        f"turn on {one}",
        f"goto {place}",
        f"toggle {one}",
        f"drop {one}",
        "examine",
        "i",
        "l",
        "admissible commands",
    )
    return rng.choice(forms)


#: Kind -> an odd command of that kind.
ODD: dict[str, Callable[[random.Random, World], str]] = {
    "odd: case": _twist_case,
    "odd: blanks around": _blanks_around,
    "odd: blanks inside": _blanks_inside,
    "odd: empty": _empty,
    "odd: unknown words": _unknown,
    "odd: unicode": _unicode,
    "odd: symbols": _symbols,
    "odd: very long": _long,
    "odd: two at once": _two,
    "odd: cut": _cut,
    "odd: examine": _examine,
    "odd: impossible": _impossible,
    "odd: other words": _old_words,
}
#: All kinds of commands. ``reset`` is the text and commands before the first.
KINDS = ("reset", "random", "expert", "solution", "after the end", *ODD)


def _wander(rng: random.Random, world: World) -> str:
    """A possible command: first the verb, then which; else nearly all would be "go to"."""
    by_verb: dict[str, list[str]] = defaultdict(list)
    for command in world.admissible:
        by_verb[command.partition(" ")[0]].append(command)
    return rng.choice(by_verb[rng.choice(sorted(by_verb))])


def script(
    world: World, rng: random.Random, *, steps: int, odd: float, solution: Sequence[str] = ()
) -> Iterator[Typed]:
    """Commands for one game, each chosen when it is asked for.

    First the ``solution``, if there is one, then random commands, then what an expert does from
    where that led, until the game is won. Odd commands are thrown in all the way; some of them are
    possible after all, so a solution may come to nothing, and the expert mends it.

    Args:
        world: The live state; the commands that are asked for must be played on it.
        rng: Draws.
        steps: Random commands. The expert gets as many as it needs, at most 50.
        odd: Chance of an odd command before each other one, and of another one after it; below 1.
        solution: Commands that solve the game from its start.

    Yields:
        (kind, command).
    """
    kinds = list(ODD)
    rng.shuffle(kinds)
    turn, ended = 0, False
    for kind, choose in _sensible(world, rng, steps, solution):
        while rng.random() < odd:
            # In turn, so that few games see all kinds.
            name = kinds[turn % len(kinds)]
            turn += 1
            yield name, ODD[name](rng, world)
        ended = ended or world.won
        # Chosen only now: an odd command may have moved the world on.
        yield "after the end" if ended else kind, choose()


def _sensible(
    world: World, rng: random.Random, steps: int, solution: Sequence[str]
) -> Iterator[tuple[str, Callable[[], str]]]:
    for command in solution:
        yield "solution", partial(str, command)
    for _ in range(steps):
        yield "random", partial(_wander, rng, world)
    expert = SearchExpert()
    for _ in range(_EXPERT_STEPS):
        if expert.next_command(world) is None:
            break
        yield "expert", lambda: expert.next_command(world) or "look"
    for _ in range(_EXTRA_STEPS):
        yield "random", partial(_wander, rng, world)
