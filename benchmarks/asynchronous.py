"""Rollouts beside the learner against rollouts before it, where the environment is slow.

    python benchmarks/asynchronous.py [--json] [--seeds 0 1 2] [--staleness 0 1 2] [--short] ...

The quickstart with a machine under it that is slow now and then: every step of a training episode
takes 50 to 500 ms, with a heavy tail (``agentrl.testing.slow_env``); panels are not slowed. Each
setting is a run of its own, in a process of its own: the same tasks, seeds, groups and updates.
``--staleness 0`` is on-policy: rollout, then its updates.

Compared is the wall time from the start of the run to the end of its last iteration, the start of
the engine's process and the panel before it included, and the success on the test panel after it.
Other work on the machine spoils the times. ``scripts/draw_asynchronous.py`` draws the last line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart.yaml"
TARGET = 0.6
ONE_RUN = """
import json, sys
from pathlib import Path
from rich.console import Console
from agentrl.config import load_config
from agentrl.train import train
train(load_config(Path(sys.argv[1]), json.loads(sys.argv[2])), console=Console(file=sys.stderr))
"""


def overrides(run_dir: Path, seed: int, staleness: int, options: argparse.Namespace) -> list[str]:
    """What differs from the quickstart."""
    latency = {name: getattr(options, name) for name in ("shortest_s", "longest_s", "tail")}
    alfworld = {
        "source": "generated",
        "difficulty": "tiny",
        "text": "compact",
        "action_format": "bare",
        "max_steps": 16,
    }
    slow = {"name": "alfworld", "options": alfworld, "splits": ["train"], **latency}
    panels = {"tasks": options.panel, "validation_tasks": options.panel // 2, "greedy": False}
    changes: dict[str, Any] = {
        "run_dir": str(run_dir),
        "seed": seed,
        "env.name": "agentrl.testing.slow_env:SlowFactory",
        "env.options": slow,
        "threads": options.threads if staleness else 0,
        "engine.threads": options.engine_threads,
        "rollout.concurrency": options.concurrency,
        "engine.options.slots": options.concurrency,
        "rollout.max_staleness": staleness,
        "rollout.late_groups": options.late_groups,
        "learner.loss": "decoupled" if staleness else "dapo",
        "stages.0.iterations": options.iterations,
        "stages.0.max_seconds": None,
        "evaluation": {**panels, "every": options.every},
        "checkpoints.every": 0,
    }
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def run(seed: int, staleness: int, options: argparse.Namespace) -> dict[str, Any]:
    """One training run; what it came to and where its time went."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        changes = json.dumps(overrides(run_dir, seed, staleness, options))
        command = [sys.executable, "-c", ONE_RUN, str(QUICKSTART), changes]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"the run failed:\n{ended.stderr[-4000:]}")
        return {"seed": seed, "staleness": staleness, **read(run_dir)}


def read(run_dir: Path) -> dict[str, Any]:
    """A run's curve, its success on the test panel, and how its iterations spent their time."""
    from agentrl.evaluate.report import read_report
    from agentrl.store.sqlite import SqliteStore

    report = read_report(run_dir)
    with SqliteStore(run_dir, read_only=True) as store:
        loads = [event.data for event in store.events("rollout")]
        points = [event.data for event in store.events("iteration")]
    beside = [one["asynchrony"] for one in loads if "asynchrony" in one]
    ages = [age for one in beside for age in one["ages"].values()]
    validated = [one for one in points if one["validation"] is not None]
    return {
        "wall_s": points[-1]["wall_s"],
        "first_s": points[0]["wall_s"],
        "episodes": points[-1]["episodes"],
        "before": report.before.sampled.success,
        "after": report.after.sampled.success,
        "curve": [[one["wall_s"], one["train_success"]] for one in points],
        "validation": [[one["wall_s"], one["validation"]["success"]] for one in validated],
        "engine_busy": fmean(one["engine_utilisation"] or 0.0 for one in loads),
        "waited_s": sum(one["waited_s"] for one in beside),
        "overlap": fmean([one["overlap"] or 0.0 for one in beside] or [0.0]),
        "ages": {str(age): ages.count(age) for age in sorted(set(ages))},
        "stale": sum(len(one["stale"]) for one in beside),
    }


def summary(runs: Sequence[Mapping[str, Any]], bounds: Sequence[int]) -> dict[str, Any]:
    """Means over seeds, and times as shares of those without staleness."""
    found: dict[str, Any] = {}
    for bound in bounds:
        mine = [one for one in runs if one["staleness"] == bound]
        found[str(bound)] = {
            "wall_s": round(fmean(one["wall_s"] for one in mine), 1),
            "after": round(fmean(one["after"] for one in mine), 4),
            "overlap": round(fmean(one["overlap"] for one in mine), 3),
            "stale": sum(one["stale"] for one in mine),
        }
    for one in found.values():
        one["of_synchronous"] = round(one["wall_s"] / found[str(bounds[0])]["wall_s"], 3)
    return found


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--every", type=int, default=4, help="iterations between validations")
    parser.add_argument("--panel", type=int, default=256, help="test tasks")
    parser.add_argument("--shortest-s", type=float, default=0.05)
    parser.add_argument("--longest-s", type=float, default=0.5)
    parser.add_argument("--tail", type=float, default=0.7, help="of the Pareto latencies")
    parser.add_argument("--concurrency", type=int, default=512, help="episodes in flight")
    parser.add_argument("--threads", type=int, default=0, help="learner's, beside rollouts")
    parser.add_argument("--engine-threads", type=int, default=0)
    parser.add_argument("--late-groups", choices=("wait", "drop"), default="wait")
    parser.add_argument("--short", action="store_true", help="one seed, few iterations: a look")
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    options = parser.parse_args(arguments)
    if options.short:
        options.seeds, options.iterations, options.every = options.seeds[:1], 4, 2
        options.panel = 32
    return options


def main() -> int:
    """Print the figures, or one line of JSON last; exit code 1 if the target is missed."""
    options = parsed()
    runs = []
    for seed in options.seeds:
        for staleness in options.staleness:
            one = run(seed, staleness, options)
            runs.append(one)
            print(
                f"seed {seed}, staleness {staleness}: {one['wall_s']:.0f} s, success "
                f"{one['before']:.1%} -> {one['after']:.1%}, engine busy {one['engine_busy']:.0%}, "
                f"overlap {one['overlap']:.0%}, ages {one['ages']}, stale {one['stale']}",
                flush=True,
            )
    found = summary(runs, options.staleness)
    beside = [one for bound, one in found.items() if bound != "0"]
    ok = min((one["of_synchronous"] for one in beside), default=1.0) <= TARGET
    if options.json:
        print(json.dumps({"ok": ok, "target": TARGET, "summary": found, "runs": runs}))
    else:
        for bound, one in found.items():
            print(f"staleness {bound}: {one}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
