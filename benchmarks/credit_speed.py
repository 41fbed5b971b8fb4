"""CPU time of the credit estimators and how it grows with the number of rows.

Groups of 8 episodes of up to 25 steps, 20 states of about 110 characters a group. Times are process
CPU seconds of the fastest of three runs of ``assign``, reading the records included. ``growth`` is
the time at the largest size over the time at a quarter of it: 4 is linear, 16 quadratic.

    python benchmarks/credit_speed.py [--rows 100000] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.core.trajectory import Group
from agentrl.credit import GRPO, HGPO, LOOP, RLOO, GiGPO, REINFORCEPlusPlus, TreeRL, columns_of
from agentrl.testing.episodes import act, episode, group

ESTIMATORS: dict[str, Callable[[Sequence[Group]], Any]] = {
    "columns": columns_of,
    "grpo": GRPO().assign,
    "rloo": RLOO().assign,
    "loop": LOOP().assign,
    "reinforce_plus_plus": REINFORCEPlusPlus().assign,
    "gigpo": GiGPO().assign,
    "gigpo_mean_std": GiGPO(normaliser="mean_std", invalid_action_penalty=0.1).assign,
    "hgpo_k2": HGPO(history_length=2).assign,
    "treerl": TreeRL().assign,
}
TARGETS_S = {"gigpo": 1.0, "hgpo_k2": 1.0}
LARGEST_GROWTH = 8.0


def batch(rows: int, seed: int = 0) -> list[Group]:
    """Random groups with at least ``rows`` steps together."""
    rng = random.Random(seed)
    groups: list[Group] = []
    count = 0
    while count < rows:
        states = [f"g{len(groups)} state {k} " + "room " * 20 for k in range(20)]
        episodes = []
        for number in range(8):
            length = 5 + rng.randrange(21)
            count += length
            won = float(rng.random() < 0.4)
            played = [
                act(rng.choice(states), won if k == length - 1 else 0.0, tokens=1)
                for k in range(length)
            ]
            episodes.append(episode(f"e{number}", *played, fork=True))
        groups.append(group(f"g{len(groups)}", *episodes))
    return groups


def cpu_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """CPU seconds of the fastest run."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def measure(rows: int) -> dict[str, Any]:
    """Times at a quarter, half and all of ``rows``, and whether the targets are met."""
    sizes = [rows // 4, rows // 2, rows]
    batches = [batch(size) for size in sizes]
    times = {
        name: [cpu_seconds(lambda assign=assign, one=one: assign(one)) for one in batches]  # type: ignore[misc]
        for name, assign in ESTIMATORS.items()
    }
    growth = {name: found[-1] / max(found[0], 1e-9) for name, found in times.items()}
    slow = [name for name, limit in TARGETS_S.items() if times[name][-1] > limit * rows / 100_000]
    steep = [name for name, ratio in growth.items() if ratio > LARGEST_GROWTH]
    return {
        "rows": [sum(len(t.steps) for g in one for t in g.trajectories) for one in batches],
        "cpu_s": times,
        "growth": growth,
        "ok": not slow and not steep,
        "slow": slow,
        "steep": steep,
    }


def main() -> int:
    """Print a table, or one line of JSON last; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    found = measure(arguments.rows)
    print(f"{'CPU seconds':22}" + "".join(f"{size:>10,}" for size in found["rows"]) + "    growth")
    for name, times in found["cpu_s"].items():
        cells = "".join(f"{one:10.4f}" for one in times)
        print(f"{name:22}{cells}{found['growth'][name]:10.2f}")
    if not found["ok"]:
        print(f"missed: slow {found['slow']}, steep {found['steep']}")
    if arguments.json:
        print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
