"""Generated games: reproducible, within their settings, disjoint by content, solvable."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from agentrl.core.errors import ConfigError
from agentrl.envs.alfworld import PRESETS, TASK_TYPES, Difficulty, Game, Generator, World, split_of
from agentrl.envs.alfworld.difficulty import as_difficulty
from agentrl.envs.alfworld.vocabulary import ACCEPTS, STYLES

GAMES = 300
FIRST_IDS = (
    "from agentrl.envs.alfworld import *; g = Generator(PRESETS['{}'], 5); "
    "print([g.game(i).id for i in range(20)])"
)


def games(difficulty: Difficulty, number: int = GAMES, seed: int = 0) -> list[Game]:
    generator = Generator(difficulty, seed)
    return [generator.game(index) for index in range(number)]


@pytest.mark.parametrize("preset", PRESETS)
def test_games_keep_their_settings(preset: str) -> None:
    setting = PRESETS[preset]
    made = games(setting)
    most_slots = {
        sum(dict(STYLES[style].receptacles[: setting.receptacle_types]).values())
        for style in setting.styles
    }
    for game in made:
        least, most = setting.receptacles
        assert min(least, *most_slots) <= len(game.receptacles) <= most
        assert len(game.things) <= setting.things[1] + 1  # and a lamp
        assert max(Counter(thing.type for thing in game.things).values()) <= setting.copies
        names = [one.name for one in game.receptacles] + [one.name for one in game.things]
        assert len(set(names)) == len(names)
        for receptacle, inside in zip(game.receptacles, game.contents, strict=True):
            for index in inside:
                kind = game.things[index].type
                assert kind == "desklamp" or kind in ACCEPTS[receptacle.type]
        assert sorted(index for inside in game.contents for index in inside) == list(
            range(len(game.things))
        )
        assert not World(game).won
    assert set(Counter(game.goal.task_type for game in made)) == set(TASK_TYPES)
    assert len({game.id for game in made}) == GAMES


def test_listings_have_the_order_of_real_games() -> None:
    # Kinds in alphabetical order, numbers falling: "drawer 2, drawer 1, shelf 1".
    for game in games(PRESETS["full"], 50):
        for named in (game.receptacles, game.things):
            keys = [(one.type, -int(one.name.split()[1])) for one in named]
            assert keys == sorted(keys)


def test_a_game_depends_on_settings_seed_and_index_only() -> None:
    generator = Generator(PRESETS["small"], 3)
    forwards = [generator.game(index).id for index in range(30)]
    again = Generator(as_difficulty("small"), 3)
    assert [again.game(index).id for index in reversed(range(30))] == forwards[::-1]
    assert [game.id for game in games(PRESETS["small"], 30, seed=4)] != forwards


@pytest.mark.parametrize("preset", PRESETS)
def test_hash_seeds_and_processes_do_not_matter(preset: str) -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", FIRST_IDS.format(preset)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    expected = [game.id for game in games(PRESETS[preset], 20, seed=5)]
    assert outputs == {f"{expected}\n"}


def test_global_randomness_is_left_alone() -> None:
    state = random.getstate()
    games(PRESETS["tiny"], 5)
    assert random.getstate() == state


def test_a_split_is_a_matter_of_content() -> None:
    # The last two decimal digits of the hash: 00-69, 70-84, 85-99.
    expected = {0: "train", 69: "train", 70: "validation", 84: "validation", 85: "test", 99: "test"}
    assert {digits: split_of(f"{digits + 700:x}") for digits in expected} == expected


def test_the_room_decides_the_wording() -> None:
    # Otherwise one room and task in two wordings could be in train and in test.
    rooms: dict[Any, set[str]] = {}
    for game in games(
        replace(PRESETS["tiny"], wordings=2, receptacles=(4, 4), things=(2, 2)), 2000
    ):
        data = game.to_data()
        sentence = data.pop("instruction")
        rooms.setdefault(repr(data), set()).add(sentence)
    assert max(map(len, rooms.values())) == 1
    assert len({sentence for sentences in rooms.values() for sentence in sentences}) > 20


def test_the_number_of_a_thing_says_nothing_about_its_place() -> None:
    # Of two mugs, number 1 stands in the place that is listed first about half of the time.
    first: Counter[str] = Counter()
    for game in games(PRESETS["tiny"]):
        wanted = [index for index, one in enumerate(game.things) if one.type == game.goal.thing]
        places = [place for index in wanted for place, inside in enumerate(game.contents)
                  if index in inside]  # fmt: skip
        if len(set(places)) == 2:
            first[game.things[wanted[places.index(min(places))]].name.split()[1]] += 1
    assert set(first) == {"1", "2"}
    assert min(first.values()) > sum(first.values()) / 3


def test_openable_and_shared_are_shares() -> None:
    for share in (0.0, 1.0):
        for game in games(replace(PRESETS["small"], openable=share, shared=share), 20):
            opens = {one.openable for one in game.receptacles if one.type in ("drawer", "cabinet")}
            assert opens <= {bool(share)}
            places = {one.location for one in game.receptacles}
            assert len(places) == (1 if share else len(game.receptacles))


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_task_types_can_be_chosen(task_type: str) -> None:
    chosen = replace(PRESETS["tiny"], task_types=(task_type,))
    assert {game.goal.task_type for game in games(chosen, 20)} == {task_type}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("tinny", "unknown difficulty 'tinny'; did you mean 'tiny'?"),
        ({"reseptacles": [4, 5]}, "'reseptacles'; did you mean 'receptacles'?"),
        ({"receptacles": [3, 5]}, "difficulty.receptacles must be [least, most] with 4 <= least"),
        ({"receptacles": [6, 5]}, "got (6, 5)"),
        ({"things": 4}, "difficulty.things must be [least, most]"),
        ({"openable": 2}, "difficulty.openable must be a share from 0 to 1, got 2"),
        ({"copies": 1}, "difficulty.copies must be a whole number of at least 2, got 1"),
        ({"wordings": 3}, "difficulty.wordings must be 1 or 2"),
        ({"styles": ["kitchn"]}, "'kitchn' in difficulty.styles; did you mean 'kitchen'?"),
        ({"styles": []}, "difficulty.styles must be a list of some of kitchen"),
        ({"task_types": ["pick"]}, "unknown 'pick' in difficulty.task_types"),
    ],
)
def test_wrong_settings_are_refused_in_words(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        as_difficulty(settings)
    assert said in str(caught.value)


def test_a_task_type_that_no_room_offers_is_refused() -> None:
    with pytest.raises(ConfigError, match="no pick_heat_then_place_in_recep in rooms of the style"):
        Generator(as_difficulty({"styles": ["bathroom"]}))


def test_settings_change_a_preset() -> None:
    assert as_difficulty({"preset": "small", "copies": 5}) == replace(PRESETS["small"], copies=5)
    assert as_difficulty({"receptacles": [5, 5]}) == replace(PRESETS["tiny"], receptacles=(5, 5))
