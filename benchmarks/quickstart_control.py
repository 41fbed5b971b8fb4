"""Does reinforcement learning beat going on with cloning? Both from one start, equal wall time.

Three runs of one run file, one after the other, on the same test panel with the same seeds:

    rl        the file as it is
    cloning   its rl stage replaced by the cloning that made the start, for the same wall time
    clean     the same with an expert that makes no random moves

The cloning arms get the wall time of the whole rl stage, validation included, so they are not
short-changed. Differences are paired by task.

    python benchmarks/quickstart_control.py [--config FILE] [--warm-start FILE] [--seed N] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from agentrl.config import CloneStage, ReinforceStage, RunConfig, load_config
from agentrl.core.errors import ConfigError
from agentrl.evaluate.report import RunReport
from agentrl.evaluate.statistics import paired_difference
from agentrl.train import train

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def control(config: RunConfig, recipe: CloneStage, seconds: float, run_dir: Path) -> RunConfig:
    """``config`` with its stages replaced by ``recipe``, for ``seconds``."""
    endless = recipe.model_copy(update={"updates": 10**6, "max_seconds": seconds})
    # A schedule over a million updates would be meaningless; the rate stays where it is.
    rate = {**endless.learner, "schedule": "constant"}
    stage = endless.model_copy(update={"learner": rate})
    return config.model_copy(update={"stages": (stage,), "run_dir": run_dir})


def summary(report: RunReport) -> dict[str, Any]:
    sampled, greedy = report.after.sampled, report.after.greedy
    return {
        "sampled": [sampled.success, sampled.low, sampled.high],
        "greedy": None if greedy is None else [greedy.success, greedy.low, greedy.high],
        "wall_s": report.wall_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=EXAMPLES / "quickstart.yaml")
    parser.add_argument("--warm-start", type=Path, default=EXAMPLES / "warmstart.yaml")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    recipe = load_config(arguments.warm_start).stages[-1]
    config = load_config(arguments.config, [f"seed={arguments.seed}"])
    if not isinstance(recipe, CloneStage) or not any(
        isinstance(stage, ReinforceStage) for stage in config.stages
    ):
        raise ConfigError(
            "--config needs an rl stage, and --warm-start must end with a clone stage"
        )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        reports = {
            "rl": train(config.model_copy(update={"run_dir": place / "rl"}), console=console)
        }
        seconds = reports["rl"].curve[-1].wall_s
        clean = recipe.model_copy(update={"noise": 0.0})
        for name, stage in (("cloning", recipe), ("clean", clean)):
            arm = control(config, stage, seconds, place / name)
            reports[name] = train(arm, console=console)
    rl = reports["rl"].after.sampled.by_task()
    result: dict[str, Any] = {
        "benchmark": "quickstart_control",
        "seed": arguments.seed,
        "tasks": reports["rl"].after.sampled.tasks,
        "before": [reports["rl"].before.sampled.success, reports["rl"].before.sampled.low],
        "arms": {name: summary(report) for name, report in reports.items()},
        "rl_minus": {},
    }
    for name in ("cloning", "clean"):
        other = paired_difference(reports[name].after.sampled.by_task(), rl, seed=0)
        result["rl_minus"][name] = [other.difference, other.low, other.high]
    if arguments.json:
        print(json.dumps(result))
        return
    for name, arm in result["arms"].items():
        print(f"{name:8} sampled {arm['sampled'][0]:.1%}  {arm['wall_s']:.0f} s")
    for name, (difference, low, high) in result["rl_minus"].items():
        print(f"rl - {name}: {difference:+.1%} [{low:+.1%}, {high:+.1%}]")


if __name__ == "__main__":
    main()
