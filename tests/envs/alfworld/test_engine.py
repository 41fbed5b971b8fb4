"""Rules of the engine that recorded episodes visit seldom, on a small hand-written kitchen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentrl.envs.alfworld import Game, World

MakeGame = Callable[..., Game]

SIX = "a countertop 2, a countertop 1, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1"


def played(game: Game, *commands: str) -> World:
    """A world after commands that must all be possible."""
    world = World(game)
    for command in commands:
        assert world.step(command).valid, command
    return world


def test_the_reset_lists_the_room_but_look_lists_nothing(kitchen: MakeGame) -> None:
    world = World(kitchen())
    assert world.intro == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
        f"around you, you see {SIX}.\n\nYour task is to: do it."
    )
    assert world.step("look").feedback == (
        "You are in the middle of a room. Looking quickly around you, you see nothing."
    )


@pytest.mark.parametrize(
    "command",
    ["", "   ", "LOOK", "Go to drawer 1", "go to", "xyzzy", "go to drawer 9", "go  to drawer 1"],
)
def test_what_is_not_possible_changes_nothing(command: str, kitchen: MakeGame) -> None:
    world = World(kitchen())
    before = world.admissible
    reply = world.step(command)
    assert (reply.feedback, reply.valid, reply.reward, reply.won) == (
        "Nothing happens.",
        False,
        0.0,
        False,
    )
    assert world.admissible == before


def test_blanks_around_a_command_do_not_matter(kitchen: MakeGame) -> None:
    assert World(kitchen()).step("  go to drawer 1\n").feedback == (
        "You arrive at drawer 1. The drawer 1 is closed."
    )


def test_receptacles_that_share_a_place_are_both_in_reach(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 1")
    assert "go to countertop 2" not in world.commands  # the agent is there already
    assert "take apple 2 from countertop 2" in world.commands
    assert "use desklamp 1" in world.commands
    assert world.step("look").feedback == (
        "You are facing the countertop 2, and countertop 1. Next to it, you see nothing."
    )


def test_a_thing_in_two_receptacles_can_be_taken_from_each(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 1", "take pan 1 from countertop 1")
    assert world.step("examine countertop 1").feedback == "On the countertop 1, you see a mug 1."
    assert "a pan 1" in world.step("examine countertop 2").feedback  # still there as well
    world.step("move pan 1 to countertop 2")
    listed = world.step("examine countertop 2").feedback
    assert listed.count("pan 1") == 1
    # It was taken from countertop 1, where the agent still is, so "look" lists it beside.
    assert world.step("look").feedback.endswith("Next to it, you see a pan 1.")


def test_closed_receptacles_hide_and_protect_what_they_hold(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to fridge 1")
    assert "take potato 1 from fridge 1" not in world.commands
    assert world.step("open fridge 1").feedback == (
        "You open the fridge 1. The fridge 1 is open. In it, you see a potato 1."
    )
    assert "open fridge 1" not in world.commands
    assert world.step("take potato 1 from fridge 1").feedback == (
        "You pick up the potato 1 from the fridge 1."
    )
    assert world.step("close fridge 1").feedback == "You close the fridge 1."
    assert "move potato 1 to fridge 1" not in world.commands
    assert world.step("examine fridge 1").feedback == "The fridge 1 is closed."


def test_one_thing_at_a_time_and_only_where_it_fits(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 1", "take mug 1 from countertop 1")
    assert not [command for command in world.commands if command.startswith("take ")]
    assert world.step("inventory").feedback == "You are carrying: a mug 1."
    world.step("go to sinkbasin 1")
    assert not [command for command in world.commands if command.startswith("move ")]
    assert World(kitchen()).step("inventory").feedback == "You are not carrying anything."


def test_only_what_is_held_can_be_examined(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 1")
    assert "examine mug 1" not in world.commands
    world.step("take mug 1 from countertop 1")
    assert world.step("examine mug 1").feedback == (
        "This is a normal mug 1. In it, you see a spoon 7."
    )


def test_heat_and_cold_replace_each_other_and_join_clean_and_sliced(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to drawer 1", "open drawer 1", "take apple 1 from drawer 1")
    seen = [world.step("examine apple 1").feedback]
    for command in (
        "go to microwave 1", "heat apple 1 with microwave 1",
        "go to fridge 1", "cool apple 1 with fridge 1",
        "go to sinkbasin 1", "clean apple 1 with sinkbasin 1",
        "go to microwave 1", "heat apple 1 with microwave 1",
    ):  # fmt: skip
        assert world.step(command).valid
        if not command.startswith("go to"):
            seen.append(world.step("examine apple 1").feedback)
    assert seen == [
        "There's nothing special about apple 1.",
        "This is a hot apple 1.",
        "This is a cold apple 1.",
        "This is a cool and clean apple 1.",
        "This is a hot and clean apple 1.",
    ]


def test_a_knife_slices_where_the_things_are(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 2", "take knife 1 from countertop 2")
    assert world.step("slice apple 2 with knife 1").feedback == (
        "You sliced the apple 2 with the knife 1."
    )
    world.step("go to drawer 1")
    assert "slice apple 1 with knife 1" in world.commands  # even through a closed drawer
    world = played(kitchen(), "go to countertop 2", "take knife 1 from countertop 2",
                   "slice apple 2 with knife 1", "move knife 1 to countertop 2",
                   "take apple 2 from countertop 2")  # fmt: skip
    assert world.step("examine apple 2").feedback == "This is a sliced apple 2."


def test_a_lamp_is_never_said_to_go_off(kitchen: MakeGame) -> None:
    world = played(kitchen(), "go to countertop 2")
    assert [world.step("use desklamp 1").feedback for _ in range(2)] == (
        ["You turn on the desklamp 1."] * 2
    )


@pytest.mark.parametrize(
    ("task_type", "target", "commands"),
    [
        ("pick_and_place_simple", "sinkbasin", []),
        ("pick_clean_then_place_in_recep", "sinkbasin", ["clean apple 2 with sinkbasin 1"]),
        (
            "pick_heat_then_place_in_recep",
            "sinkbasin",
            ["go to microwave 1", "heat apple 2 with microwave 1", "go to sinkbasin 1"],
        ),
        (
            "pick_cool_then_place_in_recep",
            "sinkbasin",
            ["go to fridge 1", "cool apple 2 with fridge 1", "go to sinkbasin 1"],
        ),
    ],
)
def test_delivery_wins_only_in_the_state_asked_for(
    task_type: str, target: str, commands: list[str], kitchen: MakeGame
) -> None:
    game = kitchen(task_type, "apple", target)
    begin = ["go to countertop 2", "take apple 2 from countertop 2", "go to sinkbasin 1"]
    world = played(game, *begin)
    assert world.step("move apple 2 to sinkbasin 1").won is (not commands)
    world = played(game, *begin, *commands)
    reply = world.step("move apple 2 to sinkbasin 1")
    assert (reply.won, reply.reward) == (True, 1.0)


def test_two_means_two_in_one_receptacle(kitchen: MakeGame) -> None:
    world = played(
        kitchen("pick_two_obj_and_place", "apple", "countertop"),
        "go to drawer 1", "open drawer 1", "take apple 1 from drawer 1", "go to countertop 1",
    )  # fmt: skip
    assert not world.step("move apple 1 to countertop 1").won  # the other one is on countertop 2
    world.step("take apple 1 from countertop 1")
    assert world.step("move apple 1 to countertop 2").won


def test_looking_under_a_lamp_needs_the_thing_the_light_and_the_place(kitchen: MakeGame) -> None:
    world = played(
        kitchen("look_at_obj_in_light", "mug", "desklamp"),
        "go to countertop 2", "take mug 1 from countertop 1", "go to drawer 1",
    )  # fmt: skip
    world.step("go to countertop 2")
    assert not world.won
    assert world.step("use desklamp 1").won
    assert not played(world.game, "go to countertop 2", "use desklamp 1").won


def test_cold_from_the_start_counts_as_cool(kitchen: MakeGame) -> None:
    world = played(
        kitchen("pick_cool_then_place_in_recep", "potato", "countertop"),
        "go to fridge 1", "open fridge 1", "take potato 1 from fridge 1", "go to countertop 1",
    )  # fmt: skip
    assert world.step("move potato 1 to countertop 1").won


def test_heat_ends_the_cold_from_the_start(kitchen: MakeGame) -> None:
    world = played(
        kitchen("pick_cool_then_place_in_recep", "potato", "countertop"),
        "go to fridge 1", "open fridge 1", "take potato 1 from fridge 1", "go to microwave 1",
        "heat potato 1 with microwave 1", "go to countertop 1",
    )  # fmt: skip
    assert world.step("examine potato 1").feedback == "This is a hot potato 1."
    assert not world.step("move potato 1 to countertop 1").won


def test_worlds_of_one_game_share_nothing(kitchen: MakeGame) -> None:
    game = kitchen()
    first = played(game, "go to countertop 2", "take apple 2 from countertop 2")
    assert "apple 2" not in first.step("examine countertop 2").feedback
    assert "apple 2" in World(game).step("go to countertop 2").feedback
