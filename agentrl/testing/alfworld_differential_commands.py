"""What is typed when two ALFWorld engines are compared: sensible commands with odd ones between.

A script asks for the next command with the native engine at hand, so it can wander among what is
possible, handle things in every way that the rules know, and follow an expert from any state.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.experts import SearchExpert
from agentrl.testing.alfworld_differential_handling import Handling
from agentrl.testing.alfworld_differential_odd import ODD

__all__ = ["KINDS", "ODD", "Typed", "script"]

#: (kind of the command, the command)
Typed = tuple[str, str]

_EXPERT_STEPS, _EXTRA_STEPS = 50, 2
#: Share of games in which a thing is handled.
_HANDLED = 0.7
#: Commands that change nothing and are always possible: chosen seldom.
_IDLE = ("help", "inventory", "look")

#: All kinds of commands. ``reset`` is the text and commands before the first.
KINDS = ("reset", "handling", "random", "expert", "solution", "after the end", *ODD)


def _wander(rng: random.Random, world: World) -> str:
    """A possible command: first the verb, then which; else nearly all would be "go to"."""
    by_verb: dict[str, list[str]] = defaultdict(list)
    for command in world.admissible:
        by_verb[command.partition(" ")[0]].append(command)
    verbs = sorted(by_verb)
    weights = [1 if verb in _IDLE else 4 for verb in verbs]
    return rng.choice(by_verb[rng.choices(verbs, weights)[0]])


def script(
    world: World, rng: random.Random, *, steps: int, odd: float, solution: Sequence[str] = ()
) -> Iterator[Typed]:
    """Commands for one game, each chosen when it is asked for.

    First the ``solution``, if there is one; then often a thing is handled in all ways; then random
    commands, then what an expert does from where that led, until the game is won. Odd commands are
    thrown in all the way; some of them are possible after all, so a solution may come to nothing,
    and the expert mends it.

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
    for command in Handling(world, rng).commands() if rng.random() < _HANDLED else ():
        yield "handling", partial(str, command)
    for _ in range(steps):
        yield "random", partial(_wander, rng, world)
    expert = SearchExpert()
    for _ in range(_EXPERT_STEPS):
        if expert.next_command(world) is None:
            break
        yield "expert", lambda: expert.next_command(world) or "look"
    for _ in range(_EXTRA_STEPS):
        yield "random", partial(_wander, rng, world)
