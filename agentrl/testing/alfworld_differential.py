"""Plays real ALFWorld games on agentrl's engine and on ALFWorld's own, and compares to the letter.

    python -m agentrl.testing.alfworld_differential --data DIR [GAME]... [options]

``DIR`` holds ``json_2.1.1/`` or is that folder itself; a ``GAME`` is a folder below it, as in
``valid_seen/<task>/<trial>``. Without games ``--games N`` are drawn, evenly over splits and task
types (0: all there are). ALFWorld's engine is the unchanged package ``alfworld`` in a process of
its own, perhaps of another environment (``--python``).

Every game is played with random, expert and odd commands (wrong case, blanks, unknown words, empty,
impossible, unicode, very long ...); half of the games begin with their stored solution. After a
reset and after every command, text, possible commands, score, done, won and the number of moves
must be equal. A game goes on after a difference as long as the possible commands agree.

Exit status: 0 all the same, 1 something differs or failed, 2 misuse or no package.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from agentrl.core.errors import AgentRLError, ConfigError, DataError, EpisodeError, nearest
from agentrl.core.task import derive_seed
from agentrl.envs.alfworld.files import FILE_NAME, SPLITS, find_root, list_games
from agentrl.envs.alfworld.game import TASK_TYPES
from agentrl.testing.alfworld_differential_commands import script
from agentrl.testing.alfworld_differential_engines import (
    GameEngine,
    NativeEngine,
    OriginalEngine,
    Shown,
)
from agentrl.testing.alfworld_differential_report import (
    Comparison,
    Difference,
    GameResult,
    difference,
)

__all__ = ["compare_game", "compare_games", "draw_games", "main"]

GAMES = 24
STEPS = 12
ODD = 0.35
_CONTEXT = 4


def task_type(folder: str) -> str:
    """Task type of a game, from the name of its folder."""
    return folder.split("/")[1].partition("-")[0]


def draw_games(
    root: Path,
    count: int,
    *,
    splits: Sequence[str] = (),
    task_types: Sequence[str] = (),
    seed: int = 0,
) -> list[str]:
    """Games spread evenly over splits and task types, drawn by ``seed``.

    Args:
        root: Folder that holds the splits.
        count: How many at most; 0: all.
        splits: Only these; default: those that are there.
        task_types: Only these; default: all.

    Raises:
        ConfigError: An unknown split or task type, or one that is not there.
        DataError: A split's folder holds no games.
    """
    there = [split for split in SPLITS if (root / split).is_dir()]
    for what, given, known in (("split", splits, there), ("task type", task_types, TASK_TYPES)):
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"unknown {what} {name!r}{nearest(name, known) or '.'} "
                    f"In {root} it may be: {', '.join(known)}."
                )
    cells: dict[tuple[str, str], list[str]] = defaultdict(list)
    for split in splits or there:
        for folder in list_games(root, split):
            if not task_types or task_type(folder) in task_types:
                cells[split, task_type(folder)].append(folder)
    for cell, folders in cells.items():
        random.Random(derive_seed(seed, *cell)).shuffle(folders)
    # Few games, too, are to be of different splits and task types.
    order = sorted(cells, key=partial(_diagonal, there))
    rows = zip_longest(*(cells[cell] for cell in order))
    drawn = [one for row in rows for one in row if one is not None]
    if not drawn:
        raise ConfigError(f"no games of the task types {', '.join(task_types)} in {root}")
    return drawn[:count] if count else drawn


def _diagonal(splits: Sequence[str], cell: tuple[str, str]) -> tuple[int, int, str]:
    split, kind = splits.index(cell[0]), cell[1]
    types = list(TASK_TYPES)
    number = types.index(kind) if kind in types else len(types)
    return (number - split) % len(types), split, kind


def compare_game(
    native: NativeEngine,
    original: GameEngine,
    root: Path,
    folder: str,
    *,
    seed: int = 0,
    steps: int = STEPS,
    odd: float = ODD,
) -> GameResult:
    """Play one game on both engines.

    Args:
        native: agentrl's engine; it is the one that the commands are chosen on.
        original: What it is compared with.
        root: Folder that holds the splits. folder: the game's, relative to it.
        seed: Of the commands, together with the folder.
        steps: Random commands; solution, expert and odd ones come on top.
        odd: Chance of an odd command before each other one, in [0, 1).

    Raises:
        EpisodeError: ``original`` failed. A game that cannot be read is a result with a failure.
    """
    split, kind = folder.split("/")[0], task_type(folder)
    result = GameResult(folder, split, kind)
    rng = random.Random(derive_seed(seed, folder))
    try:
        seen = native.open(root, folder)
    except DataError as error:
        return replace(result, failure=str(error))
    solution = native.game.walkthrough if rng.random() < 0.5 else ()
    typed = script(native.world, rng, steps=steps, odd=odd, solution=solution)
    played = _Played()
    alike = played.compare("reset", None, seen, original.open(root, folder))
    for name, command in typed if alike else ():
        if not played.compare(name, command, native.step(command), original.step(command)):
            break
    return replace(
        result,
        steps=dict(played.steps),
        differences=dict(played.differences),
        won=played.won,
        first=played.first,
    )


class _Played:
    """Counts of one game so far."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.differences: Counter[str] = Counter()
        self.won = False
        self.first: Difference | None = None
        self._before: deque[tuple[str, str]] = deque(maxlen=_CONTEXT)

    def compare(self, kind: str, command: str | None, native: Shown, original: Shown) -> bool:
        """Count an answer; whether the game can go on."""
        what = difference(native, original)
        if what and self.first is None:
            values = getattr(native, what), getattr(original, what)
            before = tuple(self._before)
            number = self.steps.total()
            self.first = Difference(number, kind, command, what, *values, before)
        self.steps[kind] += 1
        self.differences[kind] += bool(what)
        self.won = self.won or (native.won and original.won)
        if command is not None:
            self._before.append((command, native.feedback))
        return native.admissible == original.admissible


def compare_games(
    root: Path,
    folders: Sequence[str],
    start: Callable[[], GameEngine],
    *,
    seed: int = 0,
    steps: int = STEPS,
    odd: float = ODD,
    workers: int = 1,
    on_game: Callable[[GameResult], None] = lambda _: None,
) -> Comparison:
    """Play games on both engines; a game at which ALFWorld's fails harms no other.

    Args:
        root: Folder that holds the splits. folders: the games, relative to it.
        start: Makes an engine to compare with; called again after one failed.
        seed, steps, odd: As for ``compare_game``.
        workers: Engines that play at the same time.
        on_game: Told every result as it comes, in any order.

    Raises:
        MissingDependencyError: There is no package ``alfworld``.
        EpisodeError: Its engine cannot be started.
    """
    with ExitStack() as stack:
        count = max(1, min(workers, len(folders)))
        free: queue.SimpleQueue[GameEngine] = queue.SimpleQueue()
        for _ in range(count):
            engine = stack.enter_context(closing(start()))
            versions = engine.versions
            free.put(engine)

        def play(folder: str) -> GameResult:
            engine = free.get()
            try:
                result = compare_game(
                    NativeEngine(), engine, root, folder, seed=seed, steps=steps, odd=odd
                )
            except EpisodeError as error:
                result = GameResult(folder, folder.split("/")[0], task_type(folder))
                result = replace(result, failure=str(error))
                engine.close()
                engine = stack.enter_context(closing(start()))
            finally:
                free.put(engine)
            on_game(result)
            return result

        with ThreadPoolExecutor(count) as pool:
            return Comparison(tuple(pool.map(play, folders)), versions)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentrl.testing.alfworld_differential",
        description="Play ALFWorld games on agentrl's engine and on ALFWorld's own; compare.",
    )
    parser.add_argument("games_named", nargs="*", metavar="GAME", help="folders of games in DIR")
    parser.add_argument("--data", required=True, type=Path, help="folder with json_2.1.1/")
    parser.add_argument("--games", type=int, default=GAMES, help=f"draw so many (default {GAMES})")
    parser.add_argument("--split", action="append", default=[], help="only this split; repeatable")
    parser.add_argument("--task-type", action="append", default=[], help="only this; repeatable")
    parser.add_argument("--steps", type=int, default=STEPS, help="random commands of a game")
    parser.add_argument("--odd", type=float, default=ODD, help="chance of odd commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="engines at the same time")
    parser.add_argument("--python", help="Python of the environment that has alfworld")
    parser.add_argument("--deadline-s", type=float, default=120.0, help="for one answer")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line per game, to stderr")
    return parser


def _check(options: argparse.Namespace) -> None:
    for name, value, good, expected in (
        ("games", options.games, options.games >= 0, "0 (all) or more"),
        ("steps", options.steps, options.steps >= 0, "0 or more"),
        ("odd", options.odd, 0 <= options.odd < 1, "at least 0 and below 1"),
        ("workers", options.workers, options.workers >= 1, "1 or more"),
        ("deadline-s", options.deadline_s, options.deadline_s > 0, "above 0"),
    ):
        if not good:
            raise ConfigError(f"--{name} must be {expected}, got {value}")


def _chosen(options: argparse.Namespace) -> tuple[Path, list[str]]:
    try:
        root = find_root(options.data)
    except DataError as error:
        raise ConfigError(f"--data: {error}") from error
    if not options.games_named:
        chosen = {"splits": options.split, "task_types": options.task_type}
        return root, draw_games(root, options.games, seed=options.seed, **chosen)
    return root, [_named(root, name) for name in options.games_named]


def _named(root: Path, name: str) -> str:
    """A game's folder relative to ``root``, however it was named."""
    path = Path(name).expanduser()
    path = path.parent if path.name == FILE_NAME else path
    for folder in (root / path, path.absolute()):
        if (folder / FILE_NAME).is_file() and folder.is_relative_to(root):
            found = folder.relative_to(root)
            if len(found.parts) == 3:
                return found.as_posix()
    raise ConfigError(
        f"no game {name!r} in {root}; expected <split>/<task>/<trial> with a file {FILE_NAME}"
    )


def _progress(total: int, verbose: bool) -> Callable[[GameResult], None]:
    count: Counter[str] = Counter()

    def tell(game: GameResult) -> None:
        count["games"] += 1
        count["wrong"] += not game.same
        if verbose:
            word = "same" if game.same else "FAILED" if game.failure else "DIFFERENT"
            print(f"{word} {game.folder} {sum(game.steps.values())} answers", file=sys.stderr)
        elif count["games"] % max(1, min(10, total // 20)) == 0:
            wrong = count["wrong"]
            print(f"{count['games']} of {total} games, {wrong} wrong", file=sys.stderr, flush=True)

    return tell


def _compare(options: argparse.Namespace, start: Callable[[], GameEngine] | None) -> Comparison:
    _check(options)
    root, folders = _chosen(options)
    return compare_games(
        root,
        folders,
        start or partial(OriginalEngine, options.python, deadline_s=options.deadline_s),
        seed=options.seed,
        steps=options.steps,
        odd=options.odd,
        workers=options.workers,
        on_game=_progress(len(folders), options.verbose),
    )


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        # A lone surrogate in an odd command cannot be printed as it is.
        print(line.encode(errors="backslashreplace").decode())


def main(
    arguments: Sequence[str] | None = None, *, start: Callable[[], GameEngine] | None = None
) -> int:
    """Run the command line; returns the exit status. ``start``: compare with another engine."""
    options = _parser().parse_args(arguments)
    try:
        comparison = _compare(options, start)
    except (ConfigError, DataError) as error:
        print(f"alfworld_differential: {error}", file=sys.stderr)
        return 2
    except AgentRLError as error:
        print(f"alfworld_differential: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(comparison.to_data()))
    else:
        _print(comparison.lines())
    return 0 if comparison.same else 1


if __name__ == "__main__":
    sys.exit(main())
