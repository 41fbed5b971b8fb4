"""How fast the native ALFWorld engine plays, in CPU time of one core.

    python benchmarks/alfworld_speed.py [--data DIR] [--steps N] [--stock] [--json]

Plays random possible commands with the list of possible commands made anew before every one, over
real games (``--data``: the folder that holds ``json_2.1.1``) or generated ones of the size of real
ones. ``--stock`` plays the same commands on TextWorld in the same run, if ``alfworld==0.4.2`` is
installed, and prints the ratio. ``--json``: the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.core.errors import AgentRLError
from agentrl.envs.alfworld import PRESETS, Game, Generator, SearchExpert, World
from agentrl.envs.alfworld.files import FILE_NAME, find_root, list_games, read_game

EPISODE_STEPS = 50
GAMES = 100
STOCK_GAMES = 3
STOCK_STEPS = 20


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


def stock(root: Path, folders: Sequence[str], seed: int) -> float:
    """Steps per CPU second of TextWorld's engine with the same kind of play."""
    import textworld  # type: ignore[import-not-found, unused-ignore]
    from alfworld.agents.environment.alfred_tw_env import (  # type: ignore[import-not-found, unused-ignore]
        AlfredDemangler,
    )

    rng = random.Random(seed)
    steps, seconds = 0, 0.0
    for folder in folders:
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        env = AlfredDemangler(textworld.envs.PddlEnv(infos), shuffle=False)
        env.load(str(root / folder / FILE_NAME))
        state = env.reset()
        start = time.process_time()
        for _ in range(STOCK_STEPS):
            state, _reward, done = env.step(rng.choice(state["admissible_commands"]))
            steps += 1
            if done:
                break
        seconds += time.process_time() - start
    return steps / seconds


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
            report["stock_steps_per_s"] = stock(root, folders[:STOCK_GAMES], options.seed)
    report |= play(games, options.steps, options.seed)
    if "stock_steps_per_s" in report:
        report["times_stock"] = report["steps_per_s"] / report["stock_steps_per_s"]
    report["generator"] = {preset: generate(preset, GAMES * 5) for preset in PRESETS}
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Speed of the native ALFWorld engine.")
    parser.add_argument("--data", type=Path, help="folder with json_2.1.1/ (default: generated)")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--stock", action="store_true", help="compare with TextWorld (needs --data)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line last")
    options = parser.parse_args(arguments)
    if options.stock and options.data is None:
        parser.error("--stock plays real games: give their folder with --data")
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        report = measure(options)
    except (AgentRLError, ImportError) as error:
        print(f"alfworld_speed: {error}", file=sys.stderr)
        return 1
    print(
        f"{report['steps_per_s']:,.0f} steps/s with possible commands, "
        f"{report['episodes_per_s']:,.0f} episodes/s of up to {EPISODE_STEPS} steps "
        f"({report['games']} games, one core)"
    )
    if "times_stock" in report:
        print(f"TextWorld: {report['stock_steps_per_s']:.1f} steps/s; {report['times_stock']:.0f}x")
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
