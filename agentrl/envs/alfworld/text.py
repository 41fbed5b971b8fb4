"""Every sentence that ALFWorld says, in one place.

These strings are the interface of ALFWorld (MIT License, Copyright Mohit Shridhar): agents, prompts
and published results depend on them, so they are reproduced to the letter, for compatibility. The
NOTICE file names the source. The oddities ("a egg 1", ", and" between two things) are ALFWorld's.
"""

from __future__ import annotations

from collections.abc import Sequence

WELCOME = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\nYour task is to: {instruction}"
NOTHING_HAPPENS = "Nothing happens."
NOTHING = "nothing"

MIDDLE_OF_ROOM = "You are in the middle of a room. Looking quickly around you, you see {things}."
FACING = "You are facing the {receptacles}. Next to it, you see {things}."
ARRIVE = "You arrive at {receptacle}. {sight}"
OPEN = "You open the {receptacle}. {sight}"
CLOSE = "You close the {receptacle}."
SIGHT_ON = "On the {receptacle}, you see {things}."
SIGHT_IN = "The {receptacle} is open. In it, you see {things}."
SIGHT_CLOSED = "The {receptacle} is closed."
TAKE = "You pick up the {thing} from the {receptacle}."
MOVE = "You move the {thing} to the {receptacle}."
HEAT = "You heat the {thing} using the {receptacle}."
CLEAN = "You clean the {thing} using the {receptacle}."
COOL = "You cool the {thing} using the {receptacle}."
TURN_ON = "You turn on the {thing}."
SLICE = "You sliced the {thing} with the {tool}."
CARRYING = "You are carrying: {things}."
CARRYING_NOTHING = "You are not carrying anything."

VESSEL = "This is a normal {thing}. In it, you see {things}."
HOT_CLEAN_SLICED = "This is a hot and clean sliced {thing}."
COOL_CLEAN_SLICED = "This is a cool and clean sliced {thing}."
CLEAN_SLICED = "This is a clean sliced {thing}."
HOT_SLICED = "This is a hot sliced {thing}."
COOL_SLICED = "This is a cool sliced {thing}."
HOT_CLEAN = "This is a hot and clean {thing}."
COOL_CLEAN = "This is a cool and clean {thing}."
HOT = "This is a hot {thing}."
CLEANED = "This is a clean {thing}."
COLD = "This is a cold {thing}."
IS_ON = "This {thing} is on."
SLICED = "This is a sliced {thing}."
NOT_SPECIAL = "There's nothing special about {thing}."

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

#: Task sentences by task type: the two ways in which ALFWorld words each. Two objects: "two".
INSTRUCTIONS: dict[str, tuple[str, str]] = {
    "pick_and_place_simple": (
        "put a {thing} in {receptacle}.",
        "put some {thing} on {receptacle}.",
    ),
    "look_at_obj_in_light": (
        "look at {thing} under the {receptacle}.",
        "examine the {thing} with the {receptacle}.",
    ),
    "pick_clean_then_place_in_recep": (
        "put a clean {thing} in {receptacle}.",
        "clean some {thing} and put it in {receptacle}.",
    ),
    "pick_heat_then_place_in_recep": (
        "put a hot {thing} in {receptacle}.",
        "heat some {thing} and put it in {receptacle}.",
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool {thing} in {receptacle}.",
        "cool some {thing} and put it in {receptacle}.",
    ),
    "pick_two_obj_and_place": (
        "put two {thing} in {receptacle}.",
        "find two {thing} and put them in {receptacle}.",
    ),
}


def listing(items: Sequence[str]) -> str:
    """Join items as ALFWorld does: ``nothing``, ``x``, ``x, and y``, ``x, y, and z``."""
    if not items:
        return NOTHING
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def things(names: Sequence[str]) -> str:
    """Join names, each with ALFWorld's only article."""
    return listing([f"a {name}" for name in names])
