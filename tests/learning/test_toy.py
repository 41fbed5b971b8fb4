"""Reinforcement learning reaches a known optimum.

In corridors of up to three rooms every task can be solved in at most six steps, and six are given.
A policy that cloned an expert with 40% random steps wastes some and runs out; the best one never
does. Success is measured on every training task: how far an optimum is reached, not how well it
carries over.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from agentrl.evaluate.report import SuccessReport
from agentrl.play import evaluate
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import train

QUIET = Console(quiet=True)
TASKS = 21
COMMON = (
    "model.create.hidden_size=64",
    "sampling.max_tokens=6",
    "evaluation={tasks: 4, every: 0, greedy: false}",
    "checkpoints.every=0",
)
CLONE = (
    "stages=[{kind: clone, updates: 150, episodes_per_update: 16, noise: 0.4, imitate_noise: true}]"
)
LEARN = (
    "stages=[{kind: rl, iterations: 12, tasks_per_iteration: 21, group_size: 8,"
    " updates_per_iteration: 3}]",
    "learner={learning_rate: 4.0e-4, warmup_updates: 3, schedule: linear}",
)


def of(model: Path) -> tuple[str, str]:
    return ("model.create=null", f"model.path={model}")


def measured(model: Path) -> SuccessReport:
    config = tiny_run(model.parent, (*COMMON, *of(model)))
    return evaluate(config, split="train", tasks=TASKS, trials=4, greedy=False, console=QUIET)


@pytest.fixture(scope="module")
def noisy_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("clone") / "run"
    train(tiny_run(run_dir, (*COMMON, CLONE)), console=QUIET)
    return run_dir / "model"


@pytest.fixture(scope="module")
def before(noisy_clone: Path) -> float:
    return measured(noisy_clone).success


@pytest.mark.parametrize("credit", ["grpo", "gigpo"])
def test_a_noisy_clone_comes_near_the_optimum(
    noisy_clone: Path, before: float, credit: str, tmp_path: Path
) -> None:
    # 84 episodes: a standard error of 5 points before, 4 after. The best possible is 1.
    assert 0.4 < before < 0.8
    run = tiny_run(
        tmp_path / "run", (*COMMON, *LEARN, *of(noisy_clone), f"stages.0.credit.name={credit}")
    )
    train(run, console=QUIET)
    after = measured(tmp_path / "run" / "model")
    assert after.success > 0.85
    assert after.success > before + 0.15
