"""A run's numbers reach its trackers in order; a tracker that fails costs the run nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl.config import PluginConfig, RunConfig
from agentrl.core.errors import ConfigError, MissingDependencyError, UnknownPluginError
from agentrl.testing.tiny_runs import tiny_run
from agentrl.trackers import sending
from agentrl.trackers.sending import check_trackers, open_trackers

HERE = __name__
LOGGED: list[tuple[dict[str, float], str, int]] = []
RELEASE = threading.Event()


class Remembering:
    """Keeps what it is told."""

    def __init__(self, *, run_dir: Path, config: Mapping[str, Any], note: str = "") -> None:
        self.closed = False

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        LOGGED.append((dict(metrics), axis, step))

    def close(self) -> None:
        LOGGED.append(({}, "closed", 0))


class Failing(Remembering):
    """The disk is full, the network is gone, or the library ends the process."""

    def __init__(self, *, run_dir: Path, config: Mapping[str, Any], at: str = "log") -> None:
        self.at = at
        self._fail("make")

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        self._fail("log")

    def close(self) -> None:
        self._fail("close")

    def _fail(self, at: str) -> None:
        if at == self.at:
            raise OSError("planted: no space left")
        if self.at == "exit" and at == "log":
            raise SystemExit(3)


class Hanging(Remembering):
    """Waits for a server that does not answer."""

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        RELEASE.wait(60.0)


class Absent(Remembering):
    """Its library is not installed."""

    @staticmethod
    def check_installed() -> None:
        raise MissingDependencyError.for_extra("nothing", "nothing", "The tracker 'absent'")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOGGED.clear()
    RELEASE.clear()


def run_with(tmp_path: Path, *trackers: tuple[str, dict[str, Any]]) -> RunConfig:
    plugins = tuple(PluginConfig(name=f"{HERE}:{name}", options=one) for name, one in trackers)
    run = tiny_run(tmp_path / "run", [])
    return run.model_copy(update={"trackers": plugins})


def test_points_arrive_in_order_and_then_the_tracker_is_closed(tmp_path: Path) -> None:
    told: list[str] = []
    with open_trackers(run_with(tmp_path, ("Remembering", {"note": "n"})), told.append) as trackers:
        trackers.log({"train/success": 0.5}, axis="iteration", step=1)
        trackers.log({"stage0/loss": 2.0}, axis="stage0/update", step=1)
        trackers.log({"train/success": 0.75}, axis="iteration", step=2)
    assert LOGGED == [
        ({"train/success": 0.5}, "iteration", 1),
        ({"stage0/loss": 2.0}, "stage0/update", 1),
        ({"train/success": 0.75}, "iteration", 2),
        ({}, "closed", 0),
    ]
    assert told == []


def test_steps_that_were_sent_before_a_kill_are_not_sent_again(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("Remembering", {}))
    for first in (1, 3):  # the second process begins again at a checkpoint, two steps back
        with open_trackers(run, pytest.fail) as trackers:
            for step in range(first, first + 4):
                trackers.log({"train/reward": 1.0}, axis="iteration", step=step)
    steps = [step for _, axis, step in LOGGED if axis == "iteration"]
    assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("at", ["make", "log", "close", "exit"])
def test_a_tracker_that_fails_is_told_once_and_the_others_go_on(tmp_path: Path, at: str) -> None:
    told: list[str] = []
    run = run_with(tmp_path, ("Failing", {"at": at}), ("Remembering", {}))
    with open_trackers(run, told.append) as trackers:
        for step in range(5):
            trackers.log({"train/reward": 1.0}, axis="iteration", step=step)
    (text,) = told
    assert f"tracker '{HERE}:Failing' is given up" in text
    assert ("SystemExit" if at == "exit" else "OSError: planted") in text
    assert [step for _, axis, step in LOGGED if axis == "iteration"] == [0, 1, 2, 3, 4]


def test_a_tracker_that_hangs_holds_nothing_up_neither_meanwhile_nor_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sending, "WAITING_POINTS", 3)
    try:
        with open_trackers(run_with(tmp_path, ("Hanging", {})), told.append) as trackers:
            for step in range(50):
                trackers.log({"train/reward": 1.0}, axis="iteration", step=step)
            (text,) = told
            assert "it is 3 points behind" in text
            RELEASE.set()
    finally:
        RELEASE.set()
    assert len(told) == 1


def test_a_tracker_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    told: list[str] = []
    run = run_with(tmp_path, ("Hanging", {}))
    try:
        with open_trackers(run, told.append, close_s=0.05) as trackers:
            trackers.log({"train/reward": 1.0}, axis="iteration", step=0)
        (text,) = told
        assert "did not end in time" in text
    finally:
        RELEASE.set()


def test_without_trackers_nothing_is_made(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with open_trackers(run_with(tmp_path), pytest.fail) as trackers:
        assert set(threading.enumerate()) <= before
        trackers.log({"train/reward": 1.0}, axis="iteration", step=0)
    assert set(threading.enumerate()) <= before
    assert not (tmp_path / "run").exists()


def test_what_cannot_work_is_refused_before_the_run() -> None:
    check_trackers([PluginConfig(name="tensorboard"), PluginConfig(name="wandb")])
    with pytest.raises(UnknownPluginError, match="did you mean 'tensorboard'"):
        check_trackers([PluginConfig(name="tensorbord")])
    with pytest.raises(ConfigError, match="has no option 'api_key'"):
        check_trackers([PluginConfig(name="wandb", options={"api_key": "x"})])
    with pytest.raises(MissingDependencyError, match=r"\[nothing\]"):
        check_trackers([PluginConfig(name=f"{HERE}:Absent")])


def test_a_run_has_one_tracker_of_each_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trackers names wandb twice"):
        tiny_run(tmp_path / "run", ["trackers=[{name: wandb}, {name: wandb}]"])
