"""Everything breaks, nothing is lost: runner and store under faults, judged by a ledger.

    python benchmarks/chaos.py [--json] [--episodes N] [--seed S] [--no-learner]

Fake environments write and fsync a ledger of all they answer. A third of their first attempts
breaks: exceptions in make, reset, step, tool and close, hangs, late and slow answers, code that
blocks, malformed answers, NaN rewards, SIGKILL of the worker process; the engine fails and
restarts, the disk is full and the run is resumed. A learner of one layer learns from what is
delivered, and keeps a journal of every token that was in a gradient. The store, what the trainer
was given and what was learnt are then compared with the ledger, and with a run in which nothing
breaks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from agentrl.testing.chaos import Chaos, ChaosFigures, changed, play_chaos, stored
from agentrl.testing.chaos_faults import ChaosPlan


def measure(episodes: int, seed: int, directory: Path, *, learner: bool = True) -> ChaosFigures:
    """Play with faults and without, and compare."""
    disturbed, undisturbed = directory / "faults", directory / "none"
    chaos = Chaos(episodes, ChaosPlan(seed), seed=seed, learner=learner)
    found = asyncio.run(play_chaos(chaos, disturbed))
    sound = asyncio.run(play_chaos(Chaos(episodes, None, 0, seed), undisturbed))
    differ = changed(stored(disturbed), stored(undisturbed))
    found.changed = len(differ)
    found.findings += [*differ, *(f"without faults: {one}" for one in sound.findings)]
    if not sound.sound:
        found.wedged += 1  # the comparison is worth nothing: never a success
    return found


def main() -> int:
    """Print the figures, or one line of JSON last; exit code 1 if one that must be 0 is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-learner", action="store_true", help="judge by deliveries alone")
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # planted faults would fill the screen
    logging.getLogger("agentrl").setLevel(logging.ERROR)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        learner = not arguments.no_learner
        found = measure(arguments.episodes, arguments.seed, Path(directory), learner=learner)
    figures = asdict(found)
    for finding in figures.pop("findings")[:20]:
        print(finding)
    figures["seconds"] = round(time.perf_counter() - started, 1)
    for name, value in figures.items():
        print(f"{name:18}{value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0 if found.sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
