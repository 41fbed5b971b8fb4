"""Replays recorded ALFWorld episodes on the native engine and compares every character.

    python -m agentrl.testing.traces traces.jsonl.xz --data DIR [-v] [--walkthroughs]

``DIR`` holds ``json_2.1.1/`` or is that folder itself. One case is one recorded episode; with
``--walkthroughs`` every game's stored solution is a further case, which must end won. A line per
failing case (with ``-v`` per case), then ``N passed, N failed``. Exit status: 0 all passed,
1 something failed, 2 misuse. A missing or damaged game fails its cases with the reason.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from agentrl.core.errors import DataError
from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.files import ROOT_NAME, SPLITS, list_games, read_game
from agentrl.envs.alfworld.game import Game

__all__ = ["main", "replay", "replay_walkthrough"]

_COMPARED = ("feedback", "admissible", "reward", "done", "won")


def replay(game: Game, episode: Mapping[str, Any]) -> str:
    """Play a recorded episode; the first difference in words, or an empty string."""
    world = World(game)
    seen: dict[str, Any] = {"reset": world.intro, "admissible": world.admissible}
    for key, value in seen.items():
        if value != episode[key]:
            return f"at reset, {key}: got {value!r}, recorded {episode[key]!r}"
    for number, step in enumerate(episode["steps"]):
        reply = world.step(step["command"])
        seen = {
            "feedback": reply.feedback,
            "admissible": world.admissible,
            "reward": reply.reward,
            "done": reply.won,
            "won": reply.won,
        }
        for key, value in seen.items():
            if value != step[key]:
                return (
                    f"step {number} ({step['command']!r}), {key}: got {value!r}, "
                    f"recorded {step[key]!r}"
                )
    return ""


def replay_walkthrough(game: Game) -> str:
    """Play a game's stored solution; what went wrong in words, or an empty string."""
    if not game.walkthrough:
        return "the game holds no walkthrough"
    world = World(game)
    for number, command in enumerate(game.walkthrough):
        if world.won:
            return f"won before step {number} ({command!r})"
        if not world.step(command).valid:
            return f"step {number}: {command!r} is not possible"
    return "" if world.won else "not won after the last step"


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (lzma.decompress(data) if path.suffix == ".xz" else data).decode()


def _read(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            record = json.loads(line)
            str(record["game"])
            for episode in record["episodes"]:
                episode["reset"], episode["admissible"]
                for step in episode["steps"]:
                    _ = [step[key] for key in ("command", *_COMPARED)]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: {error!r}; expected a JSON object with game and "
                "episodes, each with reset, admissible and steps, each step with command, "
                f"{', '.join(_COMPARED)}"
            ) from error
        yield record


def _trace_cases(paths: Sequence[Path], root: Path) -> Iterator[tuple[str, str]]:
    for path in paths:
        for record in _read(path):
            folder, game, reason = record["game"], None, ""
            try:
                game = read_game(root, folder)
            except DataError as error:
                reason = str(error)
            for number, episode in enumerate(record["episodes"]):
                name = f"{folder} episode {number} ({episode.get('kind', 'unnamed')})"
                yield name, reason if game is None else replay(game, episode)


def _walkthrough_cases(root: Path) -> Iterator[tuple[str, str]]:
    for split in SPLITS:
        if not (root / split).is_dir():
            continue
        for folder in list_games(root, split):
            try:
                yield f"{folder} walkthrough", replay_walkthrough(read_game(root, folder))
            except DataError as error:
                yield f"{folder} walkthrough", str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m agentrl.testing.traces",
        description="Replay recorded ALFWorld episodes on the native engine, to the letter.",
    )
    parser.add_argument("paths", nargs="*", type=Path, help="traces (.jsonl or .jsonl.xz)")
    parser.add_argument("--data", required=True, type=Path, help="folder with json_2.1.1/")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line per case")
    parser.add_argument(
        "--walkthroughs", action="store_true", help="also play every game's stored solution"
    )
    options = parser.parse_args(arguments)
    if not options.paths and not options.walkthroughs:
        parser.error("nothing to do: give a file of traces, or --walkthroughs")
    absent = [str(path) for path in options.paths if not path.is_file()]
    if absent:
        parser.error(f"no such file: {', '.join(absent)}")
    if not options.data.is_dir():
        parser.error(f"no such folder: {options.data}; expected the one that holds json_2.1.1/")
    nested = options.data / ROOT_NAME
    root = nested if nested.is_dir() else options.data
    count = Counter[bool]()
    try:
        cases = [_trace_cases(options.paths, root)]
        cases += [_walkthrough_cases(root)] if options.walkthroughs else []
        for name, difference in chain.from_iterable(cases):
            count[not difference] += 1
            if difference:
                print(f"FAILED {name}: {difference}")
            elif options.verbose:
                print(f"passed {name}")
    except (DataError, lzma.LZMAError, EOFError, OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read the traces: {error}")
    print(f"{count[True]} passed, {count[False]} failed")
    return 1 if count[False] else 0


if __name__ == "__main__":
    sys.exit(main())
