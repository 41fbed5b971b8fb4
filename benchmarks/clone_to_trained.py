"""Seconds from a bare clone to a trained agent: clone, installation, quickstart; in one run.

Clones the checkout that this file is in (its last commit) into an empty folder and runs the
README's first command there, as a newcomer would. ``install_share`` is the installation's part of
all seconds.

    python benchmarks/clone_to_trained.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


def measure(folder: Path) -> dict[str, Any]:
    """Clone into ``folder`` and train there."""
    clone = folder / "agentrl"
    marks = [time.perf_counter()]
    for command, place in (
        (["git", "clone", "--quiet", str(CHECKOUT), str(clone)], folder),
        (["scripts/install"], clone),
        (["scripts/quickstart"], clone),
    ):
        subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
        marks.append(time.perf_counter())
    cloned, installed, trained = (after - before for before, after in itertools.pairwise(marks))
    report = json.loads((clone / "runs/quickstart-1/report.json").read_text())
    total = marks[-1] - marks[0]
    return {
        "benchmark": "clone_to_trained",
        "clone_s": cloned,
        "install_s": installed,
        "quickstart_s": trained,
        "total_s": total,
        "install_share": installed / total,
        "before": report["before"]["success"],
        "after": report["after"]["success"],
        "peak_rss_mb": report["peak_rss_mb"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:14} {value if isinstance(value, str) else round(value, 3)}")


if __name__ == "__main__":
    main()
