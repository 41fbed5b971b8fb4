"""A short wording of our own for tiny models: same game, same commands, a third of the tokens.

Every observation is the whole state that can be seen now, without history::

    task put clean mug in shelf . room cabinet 1 countertop 1 shelf 2 shelf 1 sinkbasin 1
    at countertop 1 has apple 1 mug 1
    at countertop 1 has apple 1 hold mug 1
    at cabinet 1 closed hold clean mug 1

No commas, articles or filler; the thing in hand is always named with its state. An impossible
command is answered by ``invalid`` before the unchanged state. Receptacles that stand together are
shown together.
"""

from __future__ import annotations

from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.game import TASK_TYPES, Goal

INVALID = "invalid"


def opening(world: World) -> str:
    """The task and the room."""
    return f"{task(world.game.goal)} . {state(world)}"


def task(goal: Goal) -> str:
    """The task in a few words."""
    word = TASK_TYPES[goal.task_type]
    if word == "lit":
        return f"task look {goal.thing} under {goal.target}"
    return f"task put {word + ' ' if word else ''}{goal.thing} in {goal.target}"


def state(world: World) -> str:
    """What can be seen now: the receptacles here, what is in them, what is in hand.

    Marks what it shows as seen.
    """
    places = world.here
    if not places:
        words = ["room", *(receptacle.name for receptacle in world.game.receptacles)]
    else:
        words = ["at", *(_sight(world, place) for place in places)]
    world.seen.update(place for place in places if world.accessible(place))
    if world.held is not None:
        words += ["hold", _in_hand(world, world.held)]
    return " ".join(words)


def _sight(world: World, place: int) -> str:
    name = world.game.receptacles[place].name
    if not world.accessible(place):
        return f"{name} closed"
    inside = " ".join(
        f"{world.game.things[index].name}{' on' if index in world.lit else ''}"
        for index in world.contents[place]
    )
    return f"{name} has {inside}" if inside else f"{name} empty"


def _in_hand(world: World, index: int) -> str:
    states = (
        (index in world.clean, "clean"),
        (index in world.hot, "hot"),
        (index in world.cooled, "cool"),
        (index in world.sliced, "sliced"),
    )
    words = [word for holds, word in states if holds]
    return " ".join([*words, world.game.things[index].name])
