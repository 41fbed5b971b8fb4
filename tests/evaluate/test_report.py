"""The report of a run: numbers, files, text and picture."""

from __future__ import annotations

import io
import json
import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Failure, StopReason
from agentrl.evaluate.rendering import to_markdown, to_renderable
from agentrl.evaluate.report import (
    CurvePoint,
    Evaluation,
    RunReport,
    SuccessReport,
    TaskOutcome,
    read_report,
    write_report,
)

TASKS = 40


def panel(solved: int, *, broken: int = 0, trials: int = 1) -> SuccessReport:
    """The first ``solved`` of 40 tasks succeed, the last ``broken`` ones crash."""
    outcomes = [
        TaskOutcome(
            task_id=f"task{n:02}",
            kind=("heat", "co|ol")[n % 2],
            trial=trial,
            success=None if n >= TASKS - broken else n < solved,
            reward=None if n >= TASKS - broken else float(n < solved),
            steps=5,
            stop_reason=StopReason.TERMINATED if n < TASKS - broken else StopReason.FAILURE,
            failure=Failure("step", "EnvError", "x") if n >= TASKS - broken else None,
            sampled_tokens=50,
        )
        for n in range(TASKS)
        for trial in range(trials)
    ]
    return SuccessReport.of(outcomes, panel=[f"task{n:02}" for n in range(TASKS)], trials=trials)


def report(curve: bool = True, greedy: bool = True, trials: int = 1) -> RunReport:
    points = [
        CurvePoint(n, 128 * (n + 1), 9000 * (n + 1), 5.0 * n, n / 20, None, panel(8 + n))
        if n % 5 == 4
        else CurvePoint(n, 128 * (n + 1), 9000 * (n + 1), 5.0 * n, n / 20, n / 10)
        for n in range(20)
    ]
    return RunReport.of(
        Evaluation(panel(8, trials=trials), panel(18) if greedy else None),
        Evaluation(panel(24, broken=2, trials=trials), panel(26) if greedy else None),
        curve=points if curve else (),
        wall_s=123.4,
        peak_rss_mb=456.7,
    )


def test_a_point_of_an_earlier_run_has_no_diagnostics() -> None:
    point = CurvePoint(0, 8, 100, 1.0, 0.5, None, credit={"without_signal_share": 0.25})
    data = point.to_data()
    assert CurvePoint.from_data(data) == point
    del data["credit"]
    assert CurvePoint.from_data(data).credit == {}


def test_the_difference_is_paired_by_task() -> None:
    found = report()
    # 38 tasks are scored on both sides; 8 of them before, 24 after.
    assert found.paired.difference == pytest.approx(16 / 38)
    assert (found.paired.tasks, found.paired.left_out) == (38, 2)
    assert (found.paired.improved, found.paired.worsened) == (16, 0)
    assert found.paired_greedy is not None
    assert found.paired_greedy.difference == pytest.approx(8 / 40)


def test_report_json_has_what_machines_ask_for(tmp_path: Path) -> None:
    write_report(tmp_path, report())
    data = json.loads((tmp_path / "report.json").read_text())
    for side in (data["before"], data["after"], data["before"]["greedy"], data["paired_greedy"]):
        assert {"low", "high", "tasks"} <= side.keys()
    assert data["before"]["success"] == 0.2
    assert data["after"]["success"] == pytest.approx(24 / 38)
    assert data["after"]["infra_failures"] == 2
    assert data["before"]["greedy"]["success"] == 0.45
    assert data["paired"]["low"] < data["paired"]["difference"] < data["paired"]["high"]
    assert (data["wall_s"], data["peak_rss_mb"]) == (123.4, 456.7)
    assert len(data["curve"]) == 20
    assert data["curve"][4]["validation"]["low"] < data["curve"][4]["validation"]["success"]
    assert data["curve"][3]["validation"] is None


@pytest.mark.parametrize(("curve", "greedy", "trials"), [(True, True, 1), (False, False, 3)])
def test_a_report_is_read_as_it_was_written(
    tmp_path: Path, curve: bool, greedy: bool, trials: int
) -> None:
    written = report(curve, greedy, trials)
    write_report(tmp_path, written)
    assert read_report(tmp_path) == written


def test_the_picture_is_a_png_of_readable_size(tmp_path: Path) -> None:
    write_report(tmp_path, report())
    head = (tmp_path / "curve.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">2I", head[16:24])
    assert width >= 1000
    assert height >= 600


def test_the_text_says_outcome_evidence_exclusion_and_cost() -> None:
    text = to_markdown(report())
    assert "went from 20.0% to 63.2%; it got better: +42.1 points" in text
    assert "sign test p = 3.1e-05" in text  # 2 / 2^16
    assert "After: 2 of 40 episodes were infra failures and are excluded" in text
    assert "2,560 training episodes, 180,000 sampled tokens, 123 s, peak memory 457 MiB" in text
    assert "co\\|ol" in text
    assert "| greedy | 45.0%" in text


def test_no_change_is_not_called_a_gain() -> None:
    same = Evaluation(panel(8))
    text = to_markdown(RunReport.of(same, same, curve=(), wall_s=1.0))
    assert "no change is shown" in text
    worse = RunReport.of(Evaluation(panel(30)), Evaluation(panel(5)), curve=(), wall_s=1.0)
    assert "it got worse" in to_markdown(worse)
    # Four tasks of 40 fell and none rose: the interval leaves 0 out, the exact test does not.
    little = to_markdown(
        RunReport.of(Evaluation(panel(9)), Evaluation(panel(5)), curve=(), wall_s=1.0)
    )
    assert "0 tasks better, 4 worse, sign test p = 0.12" in little
    assert "no change is shown" in little


def test_several_trials_report_both_conventions() -> None:
    text = to_markdown(report(trials=3))
    assert "| pass^3 | 63.2% (38 tasks) | 60.0% (40 tasks) |" in text


def test_the_terminal_shows_the_same_numbers() -> None:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(to_renderable(report()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for words in ("63.2%", "+42.1 points", "infra failures", "heat"):
        assert words in text


def test_different_panels_are_not_compared() -> None:
    other = panel(8)
    moved = tuple(replace(one, task_id="x" + one.task_id) for one in other.outcomes)
    strange = SuccessReport.of(moved, panel=[one.task_id for one in moved])
    with pytest.raises(DataError, match="same panel"):
        RunReport.of(Evaluation(other), Evaluation(strange), curve=(), wall_s=1.0)


def test_a_number_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not finite"):
        write_report(tmp_path, replace(report(), wall_s=math.nan))
    assert list(tmp_path.iterdir()) == []


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has not finished"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text('{"before": 1}')
    with pytest.raises(DataError, match="not a report of this release"):
        read_report(tmp_path)


def test_memory_is_measured_if_not_given() -> None:
    same = Evaluation(panel(8))
    assert 10 < RunReport.of(same, same, curve=(), wall_s=1.0).peak_rss_mb < 100_000


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, agentrl.evaluate.report, agentrl.evaluate.rendering\n"
        "print([name for name in ('numpy', 'matplotlib', 'rich', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
