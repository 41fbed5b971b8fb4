"""Real games for the ALFWorld tests, unpacked once a session, only the members needed."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.envs.alfworld.game import TASK_TYPES, Game, Goal, Receptacle, Thing

SPLITS_KEPT_WHOLE = ("valid_unseen",)
EVERY = 100


@pytest.fixture(scope="session")
def traces_file(shared: Path) -> Path:
    """Recorded episodes of the original engine."""
    return shared / "golden" / "alfworld" / "traces.jsonl.xz"


@pytest.fixture(scope="session")
def recorded(traces_file: Path) -> list[dict[str, Any]]:
    """The recorded games with their episodes."""
    return [json.loads(line) for line in lzma.open(traces_file, "rt")]


@pytest.fixture(scope="session")
def data(
    shared: Path, recorded: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder that holds ``json_2.1.1``: recorded games, all of valid_unseen, every 100th other."""
    folder = tmp_path_factory.mktemp("alfworld")
    wanted = {f"json_2.1.1/{record['game']}/game.tw-pddl" for record in recorded}
    with tarfile.open(shared / "data" / "alfworld_games.tar.xz") as archive:
        games = 0
        for member in archive:
            name = member.name.removeprefix("./")
            if not name.endswith("/game.tw-pddl"):
                continue
            games += 1
            whole = name.split("/")[1] in SPLITS_KEPT_WHOLE
            if whole or name in wanted or games % EVERY == 0:
                content = archive.extractfile(member)
                assert content is not None
                (folder / name).parent.mkdir(parents=True)
                (folder / name).write_bytes(content.read())
    return folder


@pytest.fixture(scope="session")
def root(data: Path) -> Path:
    """Folder that holds the splits."""
    return data / "json_2.1.1"


MakeGame = Callable[..., Game]


def _thing(name: str, *abilities: str, at: int = 0) -> Thing:
    return Thing(name, name.split()[0], frozenset(abilities), location=at)


def _kitchen(
    task_type: str = "pick_and_place_simple", thing: str = "apple", target: str = "sinkbasin"
) -> Game:
    """Six receptacles at five places (the two countertops share one) and seven things."""
    assert task_type in TASK_TYPES
    food = ("pickupable", "cleanable", "heatable", "coolable", "sliceable")
    return Game(
        instruction="do it.",
        goal=Goal(task_type, thing, target),
        receptacles=(
            Receptacle("countertop 2", "countertop", 0, False),
            Receptacle("countertop 1", "countertop", 0, False),
            Receptacle("drawer 1", "drawer", 1, True),
            Receptacle("fridge 1", "fridge", 2, True),
            Receptacle("microwave 1", "microwave", 3, True),
            Receptacle("sinkbasin 1", "sinkbasin", 4, False),
        ),
        things=(
            _thing("apple 2", *food),
            _thing("apple 1", *food, at=1),
            _thing("desklamp 1", "toggleable"),
            _thing("knife 1", "pickupable", "cleanable"),
            Thing("mug 1", "mug", frozenset({"pickupable", "vessel"}), ("spoon 7",), 0),
            _thing("pan 1", "pickupable"),
            Thing("potato 1", "potato", frozenset(food), (), 2, cold=True),
        ),
        # countertop 2, countertop 1, drawer 1, fridge 1, microwave 1, sinkbasin 1
        contents=((0, 2, 3, 5), (4, 5), (1,), (6,), (), ()),
        accepts={
            "countertop": frozenset({"apple", "knife", "mug", "pan", "potato"}),
            "drawer": frozenset({"apple", "knife"}),
            "fridge": frozenset({"apple", "potato"}),
            "microwave": frozenset({"apple", "potato"}),
            "sinkbasin": frozenset({"apple", "pan"}),
        },
    )


@pytest.fixture
def kitchen() -> MakeGame:
    """Makes a small hand-written game, by task type, thing and target."""
    return _kitchen
