"""Real games: reading, refusing what is damaged, and identity by content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import DataError
from agentrl.envs.alfworld import TASK_TYPES, Game, World
from agentrl.envs.alfworld.files import FILE_NAME, find_root, game_hash, list_games, read_game

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(root: Path) -> str:
    return list_games(root, "valid_unseen")[0]


@pytest.fixture
def edited(root: Path, folder: str, tmp_path: Path) -> Callable[[Edit], Path]:
    """Writes a changed copy of a game; returns its root."""

    def write(edit: Edit) -> Path:
        game = json.loads((root / folder / FILE_NAME).read_text())
        game = edit(game) or game
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / FILE_NAME).write_text(json.dumps(game))
        return tmp_path

    return write


def test_all_real_games_fit_the_record(root: Path) -> None:
    for folder in list_games(root, "valid_unseen"):
        game = read_game(root, folder)
        task_type, thing = folder.split("/")[1].split("-")[:2]
        assert (game.goal.task_type, game.goal.thing) == (task_type, thing.lower())
        assert game.goal.task_type in TASK_TYPES
        assert game.walkthrough
        assert not World(game).won
        assert Game.from_data(json.loads(json.dumps(game.to_data()))) == game


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda game: ["not an object"], "lacks the text of pddl_domain, grammar, pddl_problem"),
        (lambda game: game.pop("grammar") and None, "lacks the text of grammar"),
        (lambda game: game.update(pddl_problem=7), "lacks the text of pddl_problem"),
        (lambda game: game.update(pddl_domain="(define)"), "unknown PDDL domain"),
        (lambda game: game.update(grammar="x"), "holds no task sentence"),
        (lambda game: game.update(grammar=game["grammar"] + " "), "unknown grammar"),
        (lambda game: game.update(pddl_problem="(define"), "no (:init ...) followed by (:goal"),
        (
            lambda game: game.update(
                pddl_problem=game["pddl_problem"].replace("(openable", "(o", 1)
            ),
            "cannot read the fact (o ",
        ),
        (
            lambda game: game.update(
                pddl_problem=game["pddl_problem"].replace("(receptacleType", "((receptacleType", 1)
            ),
            "does not end well",
        ),
        (
            lambda game: game.update(
                pddl_problem=game["pddl_problem"].replace("(exists", "(forall")
            ),
            "expected atoms joined by and, exists and not",
        ),
        (
            lambda game: game.update(pddl_problem=game["pddl_problem"].rstrip()[:-3]),
            "brackets of the goal do not match",
        ),
        (
            lambda game: game.update(
                pddl_problem=game["pddl_problem"].replace("(inReceptacle ?o", "(isSliced ?o")
            ),
            "unknown goal with the predicates",
        ),
        (
            lambda game: game.update(
                pddl_problem=game["pddl_problem"].replace("(receptacleAtLocation", "(openable (")
            ),
            "cannot read",
        ),
    ],
)
def test_a_damaged_game_is_refused_in_words(
    edit: Edit, said: str, edited: Callable[[Edit], Path], folder: str
) -> None:
    root = edited(edit)
    with pytest.raises(DataError) as caught:
        read_game(root, folder)
    assert said in str(caught.value)
    assert str(root / folder / FILE_NAME) in str(caught.value)


def test_an_incomplete_state_is_refused(edited: Callable[[Edit], Path], folder: str) -> None:
    def edit(game: dict[str, Any]) -> None:
        lines = game["pddl_problem"].splitlines()
        dropped = next(line for line in lines if "(receptacleType" in line)
        game["pddl_problem"] = "\n".join(line for line in lines if line != dropped)

    with pytest.raises(DataError, match="initial state is incomplete"):
        read_game(edited(edit), folder)


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no game at"):
        read_game(tmp_path, "train/a/b")
    (tmp_path / "train/a/b").mkdir(parents=True)
    (tmp_path / "train/a/b" / FILE_NAME).write_bytes(b'{"pddl_domain": "\xff')
    for reader in (read_game, game_hash):
        with pytest.raises(DataError, match="cannot read the game"):
            reader(tmp_path, "train/a/b")


def test_folders_without_games_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it does not exist"):
        find_root(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"it holds nothing.*alfworld-download"):
        find_root(tmp_path)
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no games in .*train; expected train/<task>/<trial>"):
        list_games(find_root(tmp_path), "train")


def test_the_hash_is_of_the_content(root: Path, folder: str, tmp_path: Path) -> None:
    renamed = tmp_path / "train" / "task" / "trial"
    shutil.copytree(root / folder, renamed)
    assert game_hash(tmp_path, "train/task/trial") == game_hash(root, folder)
    others = {game_hash(root, one) for one in list_games(root, "valid_unseen")}
    assert len(others) == 134


def test_the_hash_ignores_the_trial_name_and_sees_everything_else(
    edited: Callable[[Edit], Path], root: Path, folder: str
) -> None:
    def rename(game: dict[str, Any]) -> None:
        game["pddl_problem"] = game["pddl_problem"].replace("(problem plan_", "(problem other_")

    changed = edited(rename)
    assert game_hash(changed, folder) == game_hash(root, folder)
    path = changed / folder / FILE_NAME
    game = json.loads(path.read_text())
    game["pddl_problem"] = game["pddl_problem"].replace("(openable ", "(pickupable ", 1)
    path.write_text(json.dumps(game))
    assert game_hash(changed, folder) != game_hash(root, folder)
