"""Both experts solve every game, from every state, and the search sees only what was shown."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.envs.alfworld import (
    PRESETS,
    Expert,
    Game,
    Generator,
    OracleExpert,
    SearchExpert,
    World,
)
from agentrl.envs.alfworld.files import list_games, read_game

EXPERTS = (OracleExpert(), SearchExpert())


def solve(game: Game, expert: Expert, noise: float = 0.0, limit: int = 300) -> list[str]:
    """Commands until won; every one the expert gives must be possible."""
    world, rng, commands = World(game), random.Random(0), list[str]()
    while not world.won:
        best = expert.next_command(world)
        assert best in world.commands
        assert len(commands) < limit
        commands.append(rng.choice(world.admissible) if rng.random() < noise else best)
        world.step(commands[-1])
    assert expert.next_command(world) is None
    return commands


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("expert", EXPERTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_generated_game_is_solved(preset: str, expert: Expert, noise: float) -> None:
    generator = Generator(PRESETS[preset], 11)
    for index in range(200):
        solve(generator.game(index), expert, noise)


def test_tiny_games_are_short() -> None:
    generator = Generator(PRESETS["tiny"])
    assert max(len(solve(generator.game(i), OracleExpert())) for i in range(500)) <= 12


def test_the_oracle_solves_real_games_nearly_as_fast_as_their_planner(root: Path) -> None:
    games = [read_game(root, folder) for folder in list_games(root, "valid_unseen")]
    lengths = [len(solve(game, OracleExpert())) for game in games]
    planned = sum(len(game.walkthrough) for game in games)
    assert planned <= sum(lengths) <= 1.03 * planned


def test_the_search_solves_real_games(root: Path) -> None:
    for folder in list_games(root, "valid_unseen"):
        solve(read_game(root, folder), SearchExpert())


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_experts_go_on_in_real_games_after_random_commands(root: Path, noise: float) -> None:
    for folder in list_games(root, "train"):
        for expert in EXPERTS:
            solve(read_game(root, folder), expert, noise)


def test_the_search_does_not_know_what_was_not_shown() -> None:
    """Where unseen things lie makes no difference to its next command."""
    generator = Generator(PRESETS["small"], 2)
    for index in range(100):
        game = generator.game(index)
        world = World(game)
        rng = random.Random(index)
        while (command := SearchExpert().next_command(world)) is not None:
            other = World(game)
            other.__dict__.update(vars(world))
            other.contents = [list(inside) for inside in world.contents]
            hidden = [place for place in range(len(other.contents)) if place not in world.seen]
            things = [index for place in hidden for index in other.contents[place]]
            for place in hidden:
                other.contents[place] = []
            for index_of_thing in things:
                other.contents[rng.choice(hidden)].append(index_of_thing)
            if not other.won:
                assert SearchExpert().next_command(other) == command
            world.step(command)


def test_the_search_cannot_know_what_is_cold_from_the_start(kitchen: Callable[..., Game]) -> None:
    # potato 1 is cold in the closed fridge; the oracle carries it straight to the countertop
    game = kitchen("pick_cool_then_place_in_recep", "potato", "countertop")
    assert "cool potato 1 with fridge 1" not in solve(game, OracleExpert())
    assert "cool potato 1 with fridge 1" in solve(game, SearchExpert())


def test_the_search_looks_into_each_place_once() -> None:
    generator = Generator(PRESETS["full"], 4)
    for index in range(100):
        game = generator.game(index)
        world = World(game)
        opened: list[str] = []
        while (command := SearchExpert().next_command(world)) is not None:
            world.step(command)
            if command.startswith(("open ", "examine ")):
                opened.append(command)
        assert len(set(opened)) == len(opened)


def test_a_wrong_thing_in_hand_is_put_down_first() -> None:
    generator = Generator(PRESETS["tiny"], 1)
    for index in range(50):
        game = generator.game(index)
        world = World(game)
        for _ in range(40):
            takes = [
                command
                for command, (verb, thing, _) in world.commands.items()
                if verb == "take" and game.things[thing].type != game.goal.thing
            ]
            if takes:
                world.step(takes[0])
                break
            world.step(random.Random(index).choice(world.admissible))
        for _ in range(40):
            command = OracleExpert().next_command(world)
            if command is None:
                break
            assert world.step(command).valid
        assert world.won
