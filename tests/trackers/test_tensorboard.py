"""Event files are what TensorBoard's own reader reads, also after the run was resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.trackers.tensorboard import TensorBoard


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """All scalars, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(one.step, one.value) for one in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_one_curve_of_a_run_that_was_resumed(tmp_path: Path) -> None:
    for step in (1, 2):  # a process each
        tracker = TensorBoard(run_dir=tmp_path, config={}, clock=lambda: 1000.0)
        tracker.log({"train/success": step / 4, "stage0/loss": 2.0}, axis="iteration", step=step)
        # Before it is closed: a killed process loses nothing.
        assert read(tmp_path / "trackers" / "tensorboard")["train/success"][-1] == (step, step / 4)
        tracker.close()
    assert read(tmp_path / "trackers" / "tensorboard") == {
        "train/success": [(1, 0.25), (2, 0.5)],
        "stage0/loss": [(1, 2.0), (2, 2.0)],
    }


def test_a_folder_that_is_watched_already_gets_the_run_under_its_name(tmp_path: Path) -> None:
    tracker = TensorBoard(run_dir=tmp_path / "run7", config={}, folder=str(tmp_path / "all"))
    tracker.log({"train/reward": 1.0}, axis="iteration", step=3)
    tracker.close()
    assert read(tmp_path / "all" / "run7") == {"train/reward": [(3, 1.0)]}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "trackers").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="trackers"):
        TensorBoard(run_dir=tmp_path, config={})
