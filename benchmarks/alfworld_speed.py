"""How fast the native ALFWorld engine plays, in CPU time of one core.

    python benchmarks/alfworld_speed.py [--data DIR] [--steps N] [--stock [--python PATH]] [--json]

Plays random possible commands with the list of possible commands made anew before every one, over
real games (``--data``: the folder that holds ``json_2.1.1``) or generated ones of the size of real
ones. ``--stock`` puts both engines side by side: the same commands in the same games, on agentrl's
engine and on the unchanged package ``alfworld``, game by game in turn, so that a busy machine is
busy for both. ``--python`` names the Python that has the package, if it is not this one.
``--json``: the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.core.errors import AgentRLError
from agentrl.envs.alfworld import PRESETS, Game, Generator, SearchExpert, World
from agentrl.envs.alfworld.files import find_root, list_games, read_game
from agentrl.testing.alfworld_differential import draw_games
from agentrl.testing.alfworld_differential_engines import NativeEngine, OriginalEngine

EPISODE_STEPS = 50
GAMES = 100
STOCK_GAMES = 12
STOCK_STEPS = 20
NATIVE_REPEATS = 20


def play(games: Sequence[Game], steps: int, seed: int) -> dict[str, float]:
    """Random play; steps and episodes per CPU second."""
    rng = random.Random(seed)
    played = episodes = won = 0
    start = time.process_time()
    while played < steps:
        world = World(games[episodes % len(games)])
        episodes += 1
        for _ in range(EPISODE_STEPS):
            commands = world.admissible
            reply = world.step(commands[int(rng.random() * len(commands))])
            played += 1
            if reply.won:
                won += 1
                break
    seconds = time.process_time() - start
    return {"steps_per_s": played / seconds, "episodes_per_s": episodes / seconds, "won": won}


def generate(preset: str, number: int) -> dict[str, float]:
    """Generated games per CPU second, with their content ids, and solved by the expert."""
    generator = Generator(PRESETS[preset])
    start = time.process_time()
    games = [generator.game(index) for index in range(number)]
    different = len({game.id for game in games})
    made = time.process_time()
    expert, steps = SearchExpert(), 0
    for game in games:
        world = World(game)
        while command := expert.next_command(world):
            world.step(command)
            steps += 1
    solved = time.process_time()
    return {
        "games_per_s": number / (made - start),
        "different": different,
        "expert_steps_per_s": steps / (solved - made),
        "expert_steps": steps / number,
    }


def read(root: Path, folders: Sequence[str]) -> tuple[list[Game], float]:
    """Read real games; games per CPU second."""
    start = time.process_time()
    games = [read_game(root, folder) for folder in folders]
    return games, len(games) / (time.process_time() - start)


def _commands(root: Path, folder: str, rng: random.Random) -> list[str]:
    """Random possible commands of a game."""
    world, commands = World(read_game(root, folder)), list[str]()
    while len(commands) < STOCK_STEPS and not world.won:
        admissible = world.admissible
        commands.append(admissible[int(rng.random() * len(admissible))])
        world.step(commands[-1])
    return commands


def side_by_side(
    root: Path, folders: Sequence[str], seed: int, python: str | None
) -> dict[str, Any]:
    """Both engines in the same games with the same commands, in turn; CPU seconds of each."""
    rng = random.Random(seed)
    seconds: defaultdict[str, float] = defaultdict(float)
    steps = 0
    with OriginalEngine(python) as original:
        for folder in folders:
            commands = _commands(root, folder, rng)
            steps += len(commands)
            for _ in range(NATIVE_REPEATS):  # once is too short for the clock
                native = NativeEngine()
                start = time.process_time()
                native.open(root, folder)
                opened = time.process_time()
                for command in commands:
                    native.step(command)
                seconds["native_open"] += (opened - start) / NATIVE_REPEATS
                seconds["native_step"] += (time.process_time() - opened) / NATIVE_REPEATS
            original.open(root, folder)
            seconds["stock_open"] += original.cpu_s
            for command in commands:
                original.step(command)
                seconds["stock_step"] += original.cpu_s
        return {
            "stock_games": len(folders),
            "stock_steps": steps,
            "versions": dict(original.versions),
            "stock_steps_per_s": steps / seconds["stock_step"],
            "native_steps_per_s": steps / seconds["native_step"],
            "times_stock": seconds["stock_step"] / seconds["native_step"],
            "stock_open_s": seconds["stock_open"] / len(folders),
            "native_open_s": seconds["native_open"] / len(folders),
            "times_stock_whole": (seconds["stock_open"] + seconds["stock_step"])
            / (seconds["native_open"] + seconds["native_step"]),
        }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that the command line asks for."""
    report: dict[str, Any] = {"benchmark": "alfworld_speed", "python": sys.version.split()[0]}
    if options.data is None:
        generator = Generator(PRESETS["full"], options.seed)
        games = [generator.game(index) for index in range(GAMES)]
        report["games"] = "generated"
    else:
        root = find_root(options.data)
        split = next(split for split in ("valid_seen", "train") if (root / split).is_dir())
        folders = list_games(root, split)[:GAMES]
        games, report["reads_per_s"] = read(root, folders)
        report["games"] = "real"
        if options.stock:
            some = draw_games(root, STOCK_GAMES, seed=options.seed)
            report |= side_by_side(root, some, options.seed, options.python)
    report |= play(games, options.steps, options.seed)
    report["generator"] = {preset: generate(preset, GAMES * 5) for preset in PRESETS}
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Speed of the native ALFWorld engine.")
    parser.add_argument("--data", type=Path, help="folder with json_2.1.1/ (default: generated)")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--stock", action="store_true", help="compare with ALFWorld's own (needs --data)"
    )
    parser.add_argument("--python", help="Python of the environment that has alfworld")
    parser.add_argument("--json", action="store_true", help="print one JSON line last")
    options = parser.parse_args(arguments)
    if options.stock and options.data is None:
        parser.error("--stock plays real games: give their folder with --data")
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        report = measure(options)
    except AgentRLError as error:
        print(f"alfworld_speed: {error}", file=sys.stderr)
        return 1
    print(
        f"{report['steps_per_s']:,.0f} steps/s with possible commands, "
        f"{report['episodes_per_s']:,.0f} episodes/s of up to {EPISODE_STEPS} steps "
        f"({report['games']} games, one core)"
    )
    if "times_stock" in report:
        print(
            f"the same {report['stock_steps']} commands in {report['stock_games']} real games: "
            f"{report['native_steps_per_s']:,.0f} steps/s natively, "
            f"{report['stock_steps_per_s']:.1f} on ALFWorld's own engine: "
            f"{report['times_stock']:,.0f} times as many"
        )
        print(
            f"a game is opened in {report['native_open_s'] * 1000:.1f} ms against "
            f"{report['stock_open_s'] * 1000:,.0f} ms; opening and {STOCK_STEPS} steps together: "
            f"{report['times_stock_whole']:,.0f} times as fast"
        )
    for preset, numbers in report["generator"].items():
        print(
            f"{preset}: {numbers['games_per_s']:,.0f} games/s generated, solved in "
            f"{numbers['expert_steps']:.1f} commands by a search"
        )
    if options.json:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
