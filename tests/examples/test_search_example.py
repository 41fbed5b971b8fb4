"""The search example runs from its file, in a short form."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from agentrl.cli import app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "search_cpu.yaml"


def test_the_search_example_runs(tmp_path: Path) -> None:
    short = [
        *("stages.0.updates=3", "stages.0.episodes_per_update=8", "stages.0.demonstrations=24"),
        *("stages.0.learner={}", "stages.1.iterations=1", "stages.1.tasks_per_iteration=2"),
        *("stages.1.group_size=2", "stages.1.updates_per_iteration=1", "evaluation.tasks=6"),
        *("evaluation.every=0", "evaluation.greedy=false", "learner.warmup_updates=0"),
        *("env.options.regions=5", "env.options.tasks_per_split={train: 64, test: 6}"),
    ]
    # The tokenizer learns from few questions here, so the whole vocabulary is not reached.
    arguments = ["train", str(EXAMPLE), f"run_dir={tmp_path / 'run'}", *short, "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
    report = json.loads(result.stdout)
    assert report["after"]["tasks"] == 6
    assert report["after"]["infra_failures"] == 0
    assert report["curve"][0]["episodes"] == 4
