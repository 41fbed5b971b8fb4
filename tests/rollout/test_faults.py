"""What breaks in an environment, from the play to the loss: cases from real systems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentrl.agents.loop import Budgets
from agentrl.core.errors import EngineError, EpisodeError, SandboxDiedError
from agentrl.core.task import Task
from agentrl.core.trajectory import Group, StepResult, Trajectory
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.grpo import GRPO
from agentrl.credit.rloo import RLOO
from agentrl.engines.scripted import Hang, Raise, ScriptedEngine
from agentrl.learn.rows import batches_from_groups, rows_from_groups
from agentrl.rollout.limits import LONGEST_PAUSE_S, pause_before
from agentrl.rollout.runner import Limits, Runner
from agentrl.testing.faults import Fault, FaultKind, FaultPlace, FaultyFactory
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from tests.rollout.playing import (
    QUICK,
    Improvised,
    Ledger,
    agent,
    bare,
    corridor,
    finished,
    requests,
    run,
    runner,
)

ESTIMATORS = (GRPO(), RLOO(), GiGPO())
GO_ON = StepResult(say("m", anchor="m"), 0.0, terminated=False)


def paying(*rewards: object) -> Group:
    """One group, an episode of two steps for each of ``rewards``; an exception is raised."""
    made = itertools.count()

    def script(_task: Task, _attempt: int) -> ScriptedEnv:
        reward: Any = rewards[next(made)]
        last = (
            reward
            if isinstance(reward, Exception)
            else StepResult(say(), reward, terminated=True, success=reward == 1)
        )
        return ScriptedEnv(say("s", anchor="s"), [GO_ON, last])

    factory = ScriptedFactory(script)
    playing = runner(factory, retries=0, concurrency=1, give_up_after=99)
    (group,) = run(playing.run(requests(factory, 1, len(rewards))))
    return group


def part(group: Group, credit: Any) -> list[bool]:
    """Which trajectories take part in credit."""
    return [one is not None for one in credit.assign([group]).step_advantages]


def trained(group: Group, credit: Any) -> set[int]:
    """Trials with rows that reach the loss with an advantage."""
    rows = rows_from_groups([group], credit.assign([group]), trajectory_weighting="equal")
    return {int(row.trajectory_id.split("/")[1]) for row in rows if any(row.advantages)}


@pytest.mark.parametrize("credit", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_c1_nan_is_a_failure_none_is_unscored_and_the_rest_is_normalised(credit: Any) -> None:
    group = paying(1.0, math.nan, 0.0, None)
    failures = [one.failure for one in group.trajectories]
    assert [one is not None for one in failures] == [False, True, False, False]
    assert failures[1] is not None
    assert "environment 'scripted' at step 1 returned the reward nan" in failures[1].message
    assert [one.reward for one in group.trajectories] == [1.0, None, 0.0, None]
    assert part(group, credit) == [True, False, True, False]
    alone = credit.assign([replace(group, trajectories=group.trajectories[::2])]).step_advantages
    found = credit.assign([group]).step_advantages
    np.testing.assert_allclose(found[0], alone[0])
    np.testing.assert_allclose(found[2], alone[1])
    assert all(math.isfinite(value) for one in found if one is not None for value in one)
    assert trained(group, credit) == {0, 2}


@pytest.mark.parametrize("reward", [math.inf, -math.inf, math.nan, "1.0", [1.0]])
def test_c1_no_other_thing_that_is_no_number_is_ever_filled_with_zero(reward: object) -> None:
    group = paying(1.0, reward, 0.0)
    assert [one.reward for one in group.trajectories] == [1.0, None, 0.0]
    assert part(group, GRPO()) == [True, False, True]


@pytest.mark.parametrize("at", ["make", "reset", "step"])
@pytest.mark.parametrize("kind", ["raise", "bug", "exit", "cancel", "hang", "late", "not_a_result"])
def test_c2_c3_one_of_eight_breaks_and_the_others_do_not_notice(
    at: FaultPlace, kind: FaultKind
) -> None:
    if kind == "not_a_result" and at == "make":
        return  # it cannot happen there
    factory = corridor()
    asked = requests(factory, 1, 8)
    undisturbed = finished(run(runner(factory).run(asked)))
    bad = undisturbed["g0", 2].seed
    step = len(undisturbed["g0", 2].steps) - 1
    fault = Fault(kind, at, step=step, attempts=1, chooses=lambda task, seed: seed == bad)
    faulty, ledger = FaultyFactory(factory, fault), Ledger([])
    playing = Runner(faulty, agent(deadlines=replace(QUICK, cancel_s=0.01)), Limits(), ledger)
    (group,) = run(playing.run(asked))
    assert finished([group]) == undisturbed  # the retry too: the same seed, a fresh environment
    (failed,) = [one for one in ledger.records if one.failure]
    assert (failed.id, failed.reward, failed.scored) == ("g0/2/0", None, False)
    assert failed.failure is not None
    assert failed.failure.boundary == at
    counts = playing.stats.counts()
    assert (counts.finished, counts.retried, counts.failed) == (8, 1, 0)
    assert counts.failures == {f"{at}/{failed.failure.error}": 1}
    assert faulty.opened == faulty.closed


@pytest.mark.parametrize(("quorum", "delivered"), [(0, True), (7, True), (8, False)])
def test_c2_what_fails_for_good_is_left_out_or_its_group_discarded(
    quorum: int, delivered: bool
) -> None:
    factory = corridor()
    asked = requests(factory, 2, 8)
    undisturbed = run(runner(factory).run(asked))
    bad = undisturbed[0].trajectories[5].seed
    faulty = FaultyFactory(factory, Fault("raise", chooses=lambda task, seed: seed == bad))
    groups = run(runner(faulty, quorum=quorum).run(asked))
    assert [one.id for one in groups] == (["g0", "g1"] if delivered else ["g1"])
    if delivered:
        failed = groups[0].trajectories[5]
        assert failed.failure is not None
        assert (failed.attempt, failed.reward) == (2, None)
        assert part(groups[0], GRPO()) == [one != 5 for one in range(8)]
        batches = batches_from_groups(
            groups, GRPO().assign(groups), updates=1, trajectory_weighting="equal"
        )
        names = {row.trajectory_id for batch in batches for row in batch.rows}
        assert names == {one.id for group in groups for one in group.trajectories} - {failed.id}


def test_c4_a_dead_worker_is_retried_and_nothing_is_lost_or_invented() -> None:
    died = SandboxDiedError("worker 3 was killed by signal 9")

    def script(task: Task, attempt: int) -> ScriptedEnv:
        dies = task.payload["number"] == 1 and attempt < 2
        last = StepResult(say(), 1.0, terminated=True, success=True)
        return ScriptedEnv(say("s"), [GO_ON, died if dies else last])

    factory, ledger = ScriptedFactory(script, count=4), Ledger([])
    playing = Runner(factory, agent(), Limits(), ledger)
    groups = run(playing.run(requests(factory, 4, 1)))
    assert [one.failure for group in groups for one in group.trajectories] == [None] * 4
    assert [one.id for one in ledger.records if one.failure] == ["g1/0/0", "g1/0/1"]
    assert playing.stats.counts().failures == {"step/SandboxDiedError": 2}


@pytest.mark.parametrize("concurrency", [1, 7, 128])
@pytest.mark.parametrize("kind", ["raise", "exit", "hang"])
def test_c5_when_every_rollout_fails_the_run_stops_with_the_first_cause(
    kind: FaultKind, concurrency: int
) -> None:
    factory = corridor()
    faulty = FaultyFactory(factory, Fault(kind, "reset"))
    quick = agent(deadlines=replace(QUICK, reset_s=0.02))
    playing = runner(faulty, quick, concurrency=concurrency, retries=1, give_up_after=8)
    with pytest.raises(EpisodeError, match=r"in a row failed and none finished.*reset/\w+Error: "):
        run(playing.run(requests(factory, 20, 2)))
    assert faulty.opened == faulty.closed
    assert playing.stats.in_flight == 0


def test_c5_one_bad_task_does_not_stop_a_run_whose_others_take_longer() -> None:
    # Eight episodes of one task fail three times each before anything else has ended.
    factory = corridor()
    bad = factory.tasks("train")[0]

    def plan(task: Task, seed: int, attempt: int) -> Fault | None:
        return Fault("raise", "reset") if task == bad else Fault("slow", "reset", late_s=0.05)

    groups = run(runner(FaultyFactory(factory, plan)).run(requests(factory, 4, 8)))
    assert [sum(one.failure is None for one in group.trajectories) for group in groups] == [
        0,
        8,
        8,
        8,
    ]


@pytest.mark.parametrize("fault", [Raise(EngineError("connection refused")), Hang()])
def test_an_engine_that_fails_once_harms_one_attempt(fault: Any) -> None:
    factory = corridor()
    asked = requests(factory, 2, 3)
    undisturbed = finished(run(runner(factory).run(asked)))
    engine = ScriptedEngine(Improvised(), faults={("g1/1/0", 1): fault})
    playing = runner(factory, agent(engine))
    assert finished(run(playing.run(asked))) == undisturbed
    assert list(playing.stats.counts().failures) in (
        ["sample/EngineError"],
        ["sample/DeadlineError"],
    )
    assert engine.in_flight == 0


def test_nothing_is_sampled_or_stepped_for_an_attempt_that_is_over() -> None:
    factory = corridor()
    asked = requests(factory, 1, 2)
    first = run(runner(factory).run(asked))[0].trajectories[0]
    fault = Fault("late", attempts=1, late_s=0.1, chooses=lambda task, seed: seed == first.seed)
    engine = ScriptedEngine(Improvised())
    quick = agent(engine, deadlines=replace(QUICK, step_s=0.05, cancel_s=0.01))
    playing = runner(FaultyFactory(factory, fault), quick, concurrency=1)
    (group,) = run(playing.run(asked))
    by_episode = [call.episode_id for call in engine.calls]
    assert by_episode.count("g0/0/0") == 1
    assert by_episode.count("g0/0/1") == len(group.trajectories[0].steps) == len(first.steps)


def test_backoff_leaves_the_slot_to_others_and_grows() -> None:
    pauses = [[pause_before(attempt, seed, 1.0) for attempt in range(1, 12)] for seed in range(40)]
    assert all(0.5 * 2**n <= one[n] < 1.5 * 2**n for one in pauses for n in range(5))
    assert all(one[-1] < 1.5 * LONGEST_PAUSE_S for one in pauses)
    assert len({one[0] for one in pauses}) == 40
    assert pauses[0] == [pause_before(attempt, 0, 1.0) for attempt in range(1, 12)]
    order: list[str] = []

    def script(task: Task, attempt: int) -> ScriptedEnv:
        order.append(f"{task.payload['number']}/{attempt}")
        bad = task.payload["number"] == 0 and attempt == 0
        last = StepResult(say(), 1.0, terminated=True, success=True)
        return ScriptedEnv(say("s"), [OSError("flaky") if bad else last])

    factory = ScriptedFactory(script, count=4)
    run(runner(factory, concurrency=1, backoff_s=0.2).run(requests(factory, 4, 1)))
    assert order == ["0/0", "1/0", "2/0", "3/0", "0/1"]


@pytest.mark.parametrize("credit", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_d2_a_single_survivor_has_no_baseline_and_trains_nothing(credit: Any) -> None:
    group = paying(1.0, *[OSError("broken")] * 7)
    result = credit.assign([group])
    assert [one is not None for one in result.step_advantages] == [True] + [False] * 7
    assert all(value == 0 for one in result.step_advantages if one for value in one)
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert trained(group, credit) == set()


def episode_without_rows(group: Group) -> Trajectory:
    """A fourth trajectory that sampled nothing: its first prompt never fitted."""
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("much too long a prompt"), []))
    player = agent(budgets=Budgets(max_tokens=4))
    (other,) = run(runner(factory, player).run(requests(factory, 1, 1)))
    (silent,) = other.trajectories
    assert silent.failure is None
    assert silent.sampled_tokens == 0
    return replace(silent, id="g0/3/0", trial=3, group_id=group.id, task_id=group.task.id)


@pytest.mark.parametrize("credit", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_d5_a_trajectory_without_rows_does_not_move_its_siblings(credit: Any) -> None:
    three = paying(1.0, 0.0, 0.0)
    four = replace(three, trajectories=(*three.trajectories, episode_without_rows(three)))
    alone, found = credit.assign([three]).step_advantages, credit.assign([four]).step_advantages
    assert found[3] is None
    for before, after in zip(alone, found[:3], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("updates", [1, 2, 3, 4])
def test_d8_no_row_is_ever_padded_or_doubled(updates: int) -> None:
    # Seven trajectories that no number of updates divides: each trains once, with its own weight.
    groups: Sequence[Group] = [
        replace(group, id=f"g{place}", trajectories=tuple(_named(group, f"g{place}")))
        for place, group in enumerate([paying(1.0, 0.0), paying(1.0, 0.0, 0.0), paying(1.0, 0.0)])
    ]
    played = [one for group in groups for one in group.trajectories]
    batches = batches_from_groups(
        groups, GRPO().assign(groups), updates=min(updates, 3), trajectory_weighting="equal"
    )
    names = [row.trajectory_id for batch in batches for row in batch.rows]
    assert sorted(names) == sorted(one.id for one in played)
    for batch in batches:
        tokens = sum(sum(row.action_mask) for row in batch.rows)
        shares = [row.weight * sum(row.action_mask) for row in batch.rows]
        np.testing.assert_allclose(shares, tokens / len(batch.rows))
    masked = sum(sum(row.action_mask) for batch in batches for row in batch.rows)
    assert masked == sum(one.sampled_tokens for one in played)


def _named(group: Group, name: str) -> list[Trajectory]:
    return [
        replace(bare(one), id=f"{name}/{one.trial}/0", group_id=name) for one in group.trajectories
    ]
