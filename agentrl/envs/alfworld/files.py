"""Real ALFWorld games on disk: finding, identifying and reading ``game.tw-pddl`` files.

Nothing is ever written into the data directory, and nothing depends on where it lies or in which
order its folders were made.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agentrl.core.errors import DataError
from agentrl.envs.alfworld.game import Game
from agentrl.envs.alfworld.pddl import check_domain, parse_problem, task_sentence

SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
FILE_NAME = "game.tw-pddl"
ROOT_NAME = "json_2.1.1"
_KEYS = ("pddl_domain", "grammar", "pddl_problem")


def find_root(directory: str | Path) -> Path:
    """The folder that holds the splits: ``directory`` itself or ``directory/json_2.1.1``.

    Raises:
        DataError: Neither holds any of the four splits.
    """
    given = Path(directory).expanduser()
    for root in (given / ROOT_NAME, given):
        if any((root / split).is_dir() for split in SPLITS):
            return root
    found = "it does not exist" if not given.is_dir() else f"it holds {_entries(given)}"
    raise DataError(
        f"no ALFWorld games in {given}: {found}; expected '{ROOT_NAME}' or its folders "
        f"{', '.join(SPLITS)}; unpack the games there (alfworld-download) or give the right folder"
    )


def _entries(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return shown or "nothing"


def list_games(root: Path, split: str) -> list[str]:
    """Folders of a split's games relative to ``root``, in sorted order.

    Raises:
        DataError: The split's folder holds no game.
    """
    games = sorted(
        path.parent.relative_to(root).as_posix() for path in root.glob(f"{split}/*/*/{FILE_NAME}")
    )
    if not games:
        raise DataError(
            f"no games in {root / split}; expected {split}/<task>/<trial>/{FILE_NAME}; "
            "unpack that split, or ask for another one"
        )
    return games


def read_game(root: Path, folder: str) -> Game:
    """Read one game.

    Args:
        root: Folder that holds the splits.
        folder: Folder of the game, relative to ``root``.

    Raises:
        DataError: The file is missing, damaged, or of another domain; the message says which.
    """
    path = root / folder / FILE_NAME
    data = _read_json(path)
    where = str(path)
    check_domain(data["pddl_domain"], where)
    instruction = task_sentence(data["grammar"], where)
    walkthrough = data.get("walkthrough") or ()
    return parse_problem(data["pddl_problem"], instruction, where, walkthrough)


def game_hash(root: Path, folder: str) -> str:
    """Content hash of a game file, far cheaper than reading the game.

    It covers the task sentence and the whole PDDL problem except the trial's name, so that the
    same room with the same task under another name is the same task. 16 hex digits.

    Raises:
        DataError: The file is missing or damaged.
    """
    path = root / folder / FILE_NAME
    data = _read_json(path)
    problem: str = data["pddl_problem"]
    body = problem[max(problem.find("(:domain"), 0) :]
    text = f"{task_sentence(data['grammar'], str(path))}\x1f{body}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_json(path: Path) -> dict[str, Any]:
    advice = "unpack the games again (alfworld-download)"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"no game at {path}; expected a file {FILE_NAME} in a folder "
            f"<split>/<task>/<trial>; {advice}, or list the tasks again"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read the game {path}: {error}; expected a JSON object; {advice}"
        ) from error
    missing = [
        key for key in _KEYS if not isinstance(data, dict) or not isinstance(data.get(key), str)
    ]
    if missing:
        raise DataError(
            f"the game {path} lacks the text of {', '.join(missing)}; expected a JSON object with "
            f"{', '.join(_KEYS)}; {advice}"
        )
    return dict(data)
