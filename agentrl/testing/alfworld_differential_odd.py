"""Odd commands for a game of ALFWorld: what people and models type, and what nobody should."""

from __future__ import annotations

import random
from collections.abc import Callable

from agentrl.envs.alfworld.engine import World

__all__ = ["LONG", "ODD"]

#: Longest "very long" command, in characters.
LONG = 20_000
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
