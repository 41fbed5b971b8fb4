"""Reports of a panel: what counts, what is excluded and said, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentrl.core.errors import DataError
from agentrl.core.task import Task
from agentrl.core.trajectory import Failure, StopReason
from agentrl.evaluate.statistics import wilson_interval
from agentrl.evaluate.success import SuccessReport, TaskOutcome
from agentrl.testing.episodes import episode, failed_episode

CRASH = Failure("step", "SandboxDiedError", "gone")


def outcome(
    task: str, success: bool | None, trial: int = 0, kind: str = "", steps: int = 2
) -> TaskOutcome:
    broken = success is None
    return TaskOutcome(
        task_id=task,
        kind=kind,
        trial=trial,
        success=success,
        reward=None if broken else float(bool(success)),
        steps=steps,
        stop_reason=StopReason.FAILURE if broken else StopReason.TERMINATED,
        failure=CRASH if broken else None,
        sampled_tokens=10 * steps,
    )


def test_one_trial_a_task_has_wilsons_interval() -> None:
    outcomes = [outcome(str(n), n < 8, steps=n) for n in range(10)]
    report = SuccessReport.of(outcomes, panel=[str(n) for n in range(10)])
    assert report.success == 0.8
    assert (report.low, report.high) == wilson_interval(8, 10)
    assert (report.tasks, report.trials, report.episodes, report.scored_tasks) == (10, 1, 10, 10)
    assert (report.mean_steps, report.mean_tokens, report.mean_reward) == (4.5, 45.0, 0.8)
    assert report.method == "Wilson"
    assert report.exclusion == ""
    assert report.pass_rates == ()


def test_infra_failures_are_excluded_and_said() -> None:
    outcomes = [outcome("a", True), outcome("b", False), outcome("c", None, steps=99)]
    report = SuccessReport.of(outcomes, panel=["a", "b", "c"])
    assert report.success == 0.5
    assert (report.low, report.high) == wilson_interval(1, 2)
    assert (report.infra_failures, report.scored_tasks, report.tasks) == (1, 2, 3)
    assert report.success_if_failed == pytest.approx(1 / 3)
    assert report.mean_steps == 2
    assert report.exclusion == (
        "1 of 3 episodes were infra failures and are excluded; counted as failed, success would "
        "be 33.3%"
    )
    assert report.failures == {"SandboxDiedError": 1}
    assert report.stop_reasons == {"failure": 1, "terminated": 2}


def test_several_trials_are_averaged_by_task_and_have_pass_rates() -> None:
    outcomes = [outcome("a", True, 0), outcome("a", True, 1), outcome("b", False, 0)]
    outcomes += [outcome("b", None, 1)]
    report = SuccessReport.of(outcomes, panel=["a", "b"], trials=2, seed=4)
    # a: 1 of 1.0, b: 0 of one scored trial
    assert report.success == 0.5
    assert report.success_if_failed == 0.5
    assert "bootstrap by task" in report.method
    assert report == SuccessReport.of(outcomes[::-1], panel=["a", "b"], trials=2, seed=4)
    rates = {(one.statistic, one.k, one.convention): one for one in report.pass_rates}
    assert rates["pass^k", 2, "exclude"].tasks == 1
    assert rates["pass^k", 2, "fail"].value == 0.5


def test_kinds_have_their_own_intervals() -> None:
    outcomes = [
        *(outcome(f"h{n}", n == 0, kind="heat") for n in range(4)),
        *(outcome(f"c{n}", None if n == 0 else True, kind="cool") for n in range(3)),
        outcome("x", None, kind="broken"),
    ]
    report = SuccessReport.of(outcomes, panel=[one.task_id for one in outcomes])
    heat, cool, broken = (report.by_kind[kind] for kind in ("heat", "cool", "broken"))
    assert (heat.success, heat.tasks) == (0.25, 4)
    assert (heat.low, heat.high) == wilson_interval(1, 4)
    assert (cool.success, cool.tasks, cool.infra_failures) == (1.0, 3, 1)
    assert (broken.success, broken.low, broken.high) == (None, None, None)
    assert list(report.by_kind) == ["broken", "cool", "heat"]


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([outcome("a", True)], r"task 'b' was played in trials \[\], expected \[0\]"),
        ([outcome("a", True), outcome("b", True), outcome("b", True)], r"trials \[0, 0\]"),
        ([outcome("a", True), outcome("b", True, trial=1)], r"trials \[1\], expected \[0\]"),
        ([outcome("a", True), outcome("z", True)], "task 'z'.*not in the panel"),
        ([replace(outcome("a", True), failure=CRASH), outcome("b", True)], "contradicts|None"),
        ([replace(outcome("a", True), success=None), outcome("b", True)], "exactly for an infra"),
        ([outcome("a", None), outcome("b", None)], "all 2 episodes.*SandboxDiedError"),
    ],
)
def test_every_task_counts_exactly_once_per_trial(outcomes: list[TaskOutcome], words: str) -> None:
    with pytest.raises(DataError, match=words):
        SuccessReport.of(outcomes, panel=["a", "b"])


def test_tasks_drawn_by_independent_workers_are_refused() -> None:
    # 134 games, 128 workers that each drew for itself: some games twice, some never.
    panel = [f"game{n}" for n in range(134)]
    drawn = [outcome(f"game{n * 7 % 97}", True) for n in range(128)]
    with pytest.raises(DataError, match="every task exactly once per trial"):
        SuccessReport.of(drawn, panel=panel)


def test_a_panel_that_lists_a_task_twice_is_refused() -> None:
    with pytest.raises(DataError, match="more than once"):
        SuccessReport.of([outcome("a", True)], panel=["a", "a"])


def test_a_report_survives_json() -> None:
    outcomes = [outcome("a", True, n, "heat") for n in range(2)]
    outcomes += [outcome("b", None, n, "cool") for n in range(2)]
    report = SuccessReport.of(outcomes, panel=["a", "b"], trials=2)
    data = json.loads(json.dumps(report.to_data(), allow_nan=False))
    assert SuccessReport.from_data(data) == report
    assert "outcomes" not in data


TASK = Task("t", "house", "test", kind="heat")


def test_an_outcome_is_read_off_a_trajectory() -> None:
    won = TaskOutcome.of(TASK, episode("w", ("x", 0.0), ("y", 2.0)))
    assert won == TaskOutcome("t", "heat", 0, True, 2.0, 2, StopReason.TERMINATED, None, 4)


def test_a_spent_budget_is_no_success_and_a_crash_is_unknown() -> None:
    late = episode("l", ("x", 0.0), stop_reason=StopReason.MAX_STEPS)
    assert TaskOutcome.of(TASK, replace(late, success=None)).success is False
    crash = replace(failed_episode("c", ("x", 1.0)), success=True)
    assert TaskOutcome.of(TASK, crash).success is None


def test_an_environment_must_say_whether_it_succeeded() -> None:
    mute = replace(episode("m", ("x", 0.0)), success=None)
    with pytest.raises(DataError, match=r"'house'.*set StepResult\.success"):
        TaskOutcome.of(TASK, mute)
