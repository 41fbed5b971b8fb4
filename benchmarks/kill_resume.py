"""Kill the whole trainer at random moments: what is resumed ends as if nobody had.

    python benchmarks/kill_resume.py [--json] [--kills N] [--seed S]

A deterministic run (cloning, reinforcement, evaluations, checkpoints) is played once undisturbed.
Its wall time is cut into N parts, and a moment drawn from each; N further runs are killed with
SIGKILL at these moments, resumed, and compared: weights and optimiser bit for bit, every sampled
token and log-probability, credit, what every update learnt from, and the report.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from agentrl.testing.chaos_kill import kill_at_random


def main() -> int:
    """Print the figures, or one line of JSON last; exit code 1 if one run ended otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    logging.getLogger("agentrl").setLevel(logging.ERROR)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        found = kill_at_random(Path(directory), arguments.kills, seed=arguments.seed, tell=print)
    figures = asdict(found)
    for finding in figures.pop("findings"):
        print(finding)
    figures["seconds"] = round(time.perf_counter() - started, 1)
    for name, value in figures.items():
        print(f"{name:20}{value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0 if found.equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
