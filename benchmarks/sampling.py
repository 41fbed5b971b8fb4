"""What adaptive numbers of episodes save on the quickstart, and what they cost in success.

Runs of one run file from one start, on the same tasks and test panel, that differ in the strategies
of their rl stage alone. Counted are the episodes that training played; success is of sampled
episodes on the test panel, with differences paired by task and seed.

    plain      every task gets the stage's group_size of episodes
    fill       4 first; a task that some of them solve gets all 8, an unsolved one 2 more at a time
               until one succeeds, one that all solve no more
    unscaled   the same, and the episodes that solved tasks are spared do not count in the mean
    updates    fill, and 6 updates of an iteration instead of 8: as many episodes for each as plain
    six        plain groups of 6 instead of 8: a control that saves a quarter without a strategy
    stop       as AERO: a task that some of the 4 solve gets no more either
    wide       fill within groups of 12
    resample   the plain groups; those of equal rewards are played anew, twice at most, or dropped

    python benchmarks/sampling.py [--arms plain updates] [--seeds 0 1 2] [--iterations 24]
        [--out FOLDER] [--json]

Reports found in FOLDER are not made again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agentrl.config import load_config
from agentrl.evaluate.report import RunReport, read_report
from agentrl.evaluate.statistics import paired_difference
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.train import train

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ARMS: Mapping[str, Sequence[str]] = {
    "plain": (),
    "fill": ("stages.0.strategies=[{name: adaptive, options: {mixed: fill}}]",),
    "updates": (
        "stages.0.strategies=[{name: adaptive, options: {mixed: fill}}]",
        "stages.0.updates_per_iteration=6",
    ),
    "six": ("stages.0.group_size=6",),
    "unscaled": ("stages.0.strategies=[{name: adaptive, options: {count_unplayed: false}}]",),
    "stop": ("stages.0.strategies=[{name: adaptive, options: {mixed: stop}}]",),
    "wide": (
        "stages.0.strategies=[{name: adaptive, options: {mixed: fill}}]",
        "stages.0.group_size=12",
    ),
    "resample": ("stages.0.strategies=[{name: resample}]",),
}


def run(arm: str, seed: int, iterations: int, folder: Path) -> None:
    """One run of the quickstart, without what is measured on the way; not if it was made before."""
    run_dir = folder / f"{arm}-{seed}"
    if (run_dir / "report.json").exists():
        return
    config = load_config(
        EXAMPLES / "quickstart.yaml",
        [
            *(f"run_dir={run_dir}", f"seed={seed}", "threads=1", "trackers=[]"),
            *("evaluation.every=0", "evaluation.greedy=false", "checkpoints.every=0"),
            *(f"stages.0.iterations={iterations}", "stages.0.max_seconds=null"),
            *ARMS[arm],
        ],
    )
    train(config, console=Console(stderr=True))


def total(reports: Sequence[RunReport], name: str) -> float:
    """Sum of a metric of credit over all iterations, per run."""
    return sum(point.credit.get(name, 0.0) for one in reports for point in one.curve) / len(reports)


def summary(arm: str, seeds: Sequence[int], folder: Path) -> dict[str, Any]:
    """Means over seeds; ``minus_plain`` with its interval, over tasks and seeds."""
    reports, plain = ([read_report(folder / f"{x}-{k}") for k in seeds] for x in (arm, "plain"))
    paired = paired_difference(
        _outcomes("plain", seeds, folder), _outcomes(arm, seeds, folder), seed=0
    )
    episodes = [one.curve[-1].episodes for one in reports]
    played = sum(one.curve[-1].episodes for one in plain)
    return {
        "episodes": sum(episodes) / len(episodes),
        "saved": 1 - sum(episodes) / played,
        "tokens": sum(one.curve[-1].tokens for one in reports) / len(reports),
        "before": [round(one.before.sampled.success, 4) for one in reports],
        "after": [round(one.after.sampled.success, 4) for one in reports],
        "minus_plain": [paired.difference, paired.low, paired.high],
        "groups_equal": total(reports, "groups_equal"),
        "groups_silent": total(reports, "groups_silent"),
        "steps": total(reports, "steps"),
        "wall_s": sum(one.wall_s for one in reports) / len(reports),
    }


def _outcomes(arm: str, seeds: Sequence[int], folder: Path) -> dict[str, list[float]]:
    """Success by seed and task on the test panel at the end, from the stores."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        with SqliteStore(folder / f"{arm}-{seed}", read_only=True) as store:
            for one in store.find(TrajectoryFilter(purpose="after")):
                if one.success is not None:
                    found.setdefault(f"{seed}/{one.task_id}", []).append(float(one.success))
    return found


def measure(
    arms: Sequence[str], seeds: Sequence[int], iterations: int, folder: Path
) -> dict[str, Any]:
    """All arms, seed by seed."""
    for seed in seeds:
        for arm in arms:
            run(arm, seed, iterations, folder)
    found = {arm: summary(arm, seeds, folder) for arm in arms}
    return {"benchmark": "sampling", "iterations": iterations, "seeds": list(seeds), "arms": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=["plain", "updates"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    arms = list(dict.fromkeys(["plain", *chosen.arms]))
    with tempfile.TemporaryDirectory() as folder:
        place = chosen.out or Path(folder)
        result = measure(arms, chosen.seeds, chosen.iterations, place)
    if chosen.json:
        print(json.dumps(result))
        return
    for arm, one in result["arms"].items():
        difference, low, high = one["minus_plain"]
        print(
            f"{arm:9} {one['episodes']:7,.0f} episodes ({one['saved']:+.0%} saved)  success "
            f"{sum(one['after']) / len(one['after']):.1%}, {difference:+.1%} [{low:+.1%}, "
            f"{high:+.1%}]  groups equal {one['groups_equal']:.0f}, silent "
            f"{one['groups_silent']:.0f}  {one['wall_s']:.0f} s"
        )


if __name__ == "__main__":
    main()
