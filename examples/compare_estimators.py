"""Several credit estimators from one start, on the same tasks, with several seeds.

    python examples/compare_estimators.py RUN.yaml grpo gigpo 'gigpo={normaliser: mean_std}'

The clone stages of the run file are run once: every estimator starts from those very weights. Each
then runs the rl stages with every seed; a seed fixes tasks, their order and the panel's episodes,
so two estimators of one seed differ in nothing but credit. The first estimator is the baseline. Its
difference to another is paired by task, over all seeds; the interval is over tasks. How much seeds
differ is shown beside it: with few seeds no interval could say that.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from agentrl.config import load_config
from agentrl.evaluate.statistics import PairedDifference, paired_difference
from agentrl.evaluate.success import SuccessReport
from agentrl.train import train


@dataclass(frozen=True)
class Result:
    """What an estimator came to.

    Attributes:
        before: Success at the start, by seed; ``after`` at the end.
        difference: To the baseline on the same tasks; ``None`` for the baseline.
        by_seed: The difference of each seed.
    """

    estimator: str
    before: list[float]
    after: list[float]
    difference: PairedDifference | None
    by_seed: list[float]


def compare(
    run_file: Path, estimators: Sequence[str], seeds: int, out: Path, overrides: Sequence[str]
) -> list[Result]:
    """Run every estimator with every seed; ``out`` must be a new folder."""
    console = Console()
    data = load_config(run_file, overrides).model_dump(mode="json")
    start = _start(data, out, console)
    reports = {
        name: [
            train(load_config(_with(start, name, seed, out)), console=console)
            for seed in range(seeds)
        ]
        for name in estimators
    }
    results = []
    baseline = [one.after.sampled for one in reports[estimators[0]]]
    for name, runs in reports.items():
        after = [one.after.sampled for one in runs]
        own = name == estimators[0]
        results.append(
            Result(
                estimator=name,
                before=[one.before.sampled.success for one in runs],
                after=[one.success for one in after],
                difference=None if own else _difference(baseline, after),
                by_seed=[b.success - a.success for a, b in zip(baseline, after, strict=True)],
            )
        )
    (out / "comparison.json").write_text(json.dumps([asdict(one) for one in results], indent=2))
    console.print(table(results))
    return results


def _start(data: dict[str, Any], out: Path, console: Console) -> dict[str, Any]:
    """The run without its clone stages, starting from the weights that those make."""
    clones = [stage for stage in data["stages"] if stage["kind"] == "clone"]
    learning = [stage for stage in data["stages"] if stage["kind"] == "rl"]
    if not clones:
        return {**data, "stages": learning}
    train(load_config({**data, "stages": clones, "run_dir": str(out / "start")}), console=console)
    model = {**data["model"], "create": None, "path": str(out / "start" / "model")}
    return {**data, "stages": learning, "model": model}


def _with(start: Mapping[str, Any], estimator: str, seed: int, out: Path) -> dict[str, Any]:
    name, _, options = estimator.partition("=")
    credit = {"name": name, "options": yaml.safe_load(options) or {}}
    stages = [{**stage, "credit": credit} for stage in start["stages"]]
    folder = "".join(one if one.isalnum() or one in "_-." else "_" for one in estimator)
    return {**start, "seed": seed, "stages": stages, "run_dir": str(out / folder / str(seed))}


def _difference(
    baseline: Sequence[SuccessReport], after: Sequence[SuccessReport]
) -> PairedDifference:
    return paired_difference(_pool(baseline), _pool(after), seed=0)


def _pool(reports: Sequence[SuccessReport]) -> dict[str, list[float]]:
    """Task to its outcomes over all seeds."""
    pooled: dict[str, list[float]] = {}
    for report in reports:
        for task, outcomes in report.by_task().items():
            pooled.setdefault(task, []).extend(outcomes)
    return pooled


def table(results: Sequence[Result]) -> Table:
    """The comparison for people."""
    shown = Table(title=f"{len(results[0].after)} seeds, success on the test panel")
    for name in ("estimator", "start", "end (lowest .. highest seed)", "against the first"):
        shown.add_column(name)
    for one in results:
        paired = "baseline"
        if one.difference is not None:
            d = one.difference
            paired = (
                f"{100 * d.difference:+.1f} points [{100 * d.low:+.1f}, {100 * d.high:+.1f}], "
                f"by seed {', '.join(f'{100 * x:+.1f}' for x in one.by_seed)}"
            )
        mean = sum(one.after) / len(one.after)
        shown.add_row(
            one.estimator,
            f"{sum(one.before) / len(one.before):.1%}",
            f"{mean:.1%} ({min(one.after):.1%} .. {max(one.after):.1%})",
            paired,
        )
    return shown


def main() -> None:
    """Read the command line and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_file", type=Path)
    parser.add_argument("estimators", nargs="+", help="NAME or NAME={option: value}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/comparison"))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides")
    chosen = parser.parse_args()
    compare(chosen.run_file, chosen.estimators, chosen.seeds, chosen.out, chosen.set)


if __name__ == "__main__":
    main()
