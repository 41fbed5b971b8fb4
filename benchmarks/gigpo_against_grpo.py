"""GiGPO against GRPO on the quickstart: one start, the same tasks, several seeds, paired by task.

Half the quickstart's iterations, so that neither has reached the top. Both get the penalty for
invalid actions and no division by the spread; they differ in the step part alone.

    python benchmarks/gigpo_against_grpo.py [--seeds 3] [--iterations 12] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GRPO = "grpo={normaliser: mean, invalid_action_penalty: 0.1}"
GIGPO = "gigpo={normaliser: mean, invalid_action_penalty: 0.1}"


def measure(seeds: int, iterations: int, folder: Path) -> dict[str, Any]:
    """Run the comparison of ``examples/compare_estimators.py``."""
    out = folder / "comparison"
    subprocess.run(
        [
            *(sys.executable, str(EXAMPLES / "compare_estimators.py")),
            *(str(EXAMPLES / "quickstart.yaml"), GRPO, GIGPO),
            *("--seeds", str(seeds), "--out", str(out), "--set", "evaluation.every=0"),
            *(f"stages.0.iterations={iterations}", "stages.0.max_seconds=null", "threads=1"),
        ],
        check=True,
        stdout=sys.stderr,
    )
    grpo, gigpo = json.loads((out / "comparison.json").read_text())
    return {
        "benchmark": "gigpo_against_grpo",
        "seeds": seeds,
        "iterations": iterations,
        "before": grpo["before"],
        "grpo": grpo["after"],
        "gigpo": gigpo["after"],
        "gigpo_minus_grpo": gigpo["difference"],
        "by_seed": gigpo["by_seed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(chosen.seeds, chosen.iterations, Path(folder))
    if chosen.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:17} {value}")


if __name__ == "__main__":
    main()
