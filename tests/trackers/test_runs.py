"""Whole runs with trackers: what arrives, also over a kill; nothing of it can stop them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from agentrl import training
from agentrl.core.trajectory import UpdateStats
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run
from agentrl.trackers.measures import of_iteration, of_update
from agentrl.train import resume, train
from tests.trackers.test_tensorboard import read

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class NoNetwork:
    """Cannot be made."""

    def __init__(self, *, run_dir: Path, config: Mapping[str, Any]) -> None:
        raise ConnectionError("planted: no route to host")


def test_a_stopped_run_goes_on_in_the_same_curves_and_a_dead_tracker_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    trackers = f"trackers=[{{name: tensorboard}}, {{name: '{__name__}:NoNetwork'}}]"

    def interrupted(done: Any, point: Any) -> dict[str, float]:
        if done.number == 1:
            raise KeyboardInterrupt
        return of_iteration(done, point)

    with monkeypatch.context() as patch:
        patch.setattr(training, "of_iteration", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_run(run_dir, [trackers, "checkpoints.every=0"]), console=QUIET)
    resume(run_dir, console=QUIET)
    curves = read(run_dir / "trackers" / "tensorboard")
    with SqliteStore(run_dir, read_only=True) as store:
        points = [event.data for event in store.events("iteration")]
        loads = [event.data for event in store.events("rollout")]
        warned = [event.data["text"] for event in store.events("warning")]
    assert [step for step, _ in curves["train/success"]] == [1, 2]
    assert [step for step, _ in curves["stage0/loss"]] == [1, 2]
    assert [step for step, _ in curves["stage1/loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in curves["test/success"]] == [0, 2]
    assert curves["train/reward"][1][1] == pytest.approx(points[-1]["train_reward"])
    assert curves["validation/success"][1][1] == points[-1]["validation"]["success"]
    assert curves["rollout/sampled_tokens"][1][1] == loads[-1]["sampled_tokens"]
    assert curves["rollout/engine_utilisation"][1][1] == pytest.approx(
        loads[-1]["engine_utilisation"]
    )
    # The second iteration was played before the kill, and taken from the store after it.
    assert loads[-1]["recorded"] == 9
    shared = [curves[f"rollout/share/{one}"][0][1] for one in ("sampling", "environment")]
    assert 0 < sum(shared) <= 1.0001
    (once_a_process, again) = [text for text in warned if "NoNetwork" in text]
    assert "ConnectionError: planted" in once_a_process == again


def test_what_is_no_number_is_a_bug_and_raises() -> None:
    wrong: Any = {"loss": "small"}
    with pytest.raises(TypeError, match="stage0/loss"):
        of_update("stage0", UpdateStats(1, 1, wrong))
