"""Tasks that keep failing are set aside; the machine's faults set nothing aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.core.errors import EpisodeError
from agentrl.core.task import Task
from agentrl.core.trajectory import Trajectory
from agentrl.rollout.poison import Poison
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from tests.rollout.playing import WIN, Ledger, agent, run

LIMITS = Limits(concurrency=1, retries=1)  # one after the other: what finished before is known
A, B, C = (Task(name, "env", "train") for name in "abc")


def test_failures_count_once_another_task_has_finished() -> None:
    poison = Poison(after=2)
    poison.failed(A)
    poison.failed(A)
    assert A not in poison  # so far the machine may be at fault
    poison.finished(B)
    assert A in poison
    assert (poison.failures(A), len(poison)) == (2, 1)


def test_a_task_that_finishes_now_and_then_is_never_set_aside() -> None:
    poison = Poison(after=2)
    for _ in range(9):
        poison.failed(A)
        poison.finished(B)
        poison.finished(A)
    assert A not in poison


def test_nothing_is_set_aside_while_nothing_finishes_or_if_it_is_not_wanted() -> None:
    outage, never = Poison(after=1), Poison(after=0)
    for task in (A, B, C) * 5:
        outage.failed(task)
        never.failed(task)
    never.finished(C)
    assert len(outage) == len(never) == 0


def test_it_is_said_once() -> None:
    said: list[tuple[str, int]] = []
    poison = Poison(2, {"b": 1}, lambda task, failures: said.append((task.id, failures)))
    for _ in range(4):
        poison.failed(A)
        poison.finished(C)
    poison.failed(B)
    poison.finished(C)
    assert said == [("a", 2), ("b", 2)]


def breaking(numbers: set[int], *, count: int = 3) -> ScriptedFactory:
    def script(task: Task, _attempt: int) -> ScriptedEnv:
        bad = task.payload["number"] in numbers
        return ScriptedEnv(say("s"), [OSError("always") if bad else WIN])

    return ScriptedFactory(script, count=count)


def iteration(factory: ScriptedFactory, number: int) -> list[GroupRequest]:
    """All tasks once more, two episodes each."""
    return [
        GroupRequest(f"{number}-{one.payload['number']}", one, 2, 5, first_trial=2 * number)
        for one in factory.tasks("train")
    ]


def test_c3_a_poisoned_task_is_set_aside_and_its_place_stays() -> None:
    ledger, factory = Ledger([]), breaking({1})
    playing = Runner(factory, agent(), LIMITS, ledger, poison=Poison(after=3))
    plays = [len(run(playing.run(iteration(factory, number)))) for number in range(4)]
    assert plays == [3, 3, 3, 3]
    tried = [one for one in ledger.records if one.group_id.endswith("-1")]
    by_iteration = [
        {one.failure.error for one in tried if one.failure and one.group_id == f"{number}-1"}
        for number in range(4)
    ]
    assert by_iteration == [
        {"EnvError"},
        {"EnvError"},
        {"PoisonedTaskError"},
        {"PoisonedTaskError"},
    ]
    assert len([env for env in factory.made if env.results[0] is not WIN]) == 8
    unplayed = ledger.last()["3-1", 6]
    assert (unplayed.steps, unplayed.reward) == ((), None)
    assert unplayed.failure is not None
    assert "4 episodes of this task failed for good" in unplayed.failure.message
    counts = playing.stats.counts()
    assert (counts.requested, counts.finished, counts.failed, counts.poisoned) == (24, 16, 4, 4)


def record(store: SqliteStore, made: Trajectory, task: Task) -> None:
    store.append(made, task=task, iteration=1, purpose="train")


def test_c3_after_a_resume_the_count_goes_on_from_the_store(tmp_path: Path) -> None:
    factory = breaking({1})
    with SqliteStore(tmp_path) as store:

        def keep(request: GroupRequest, trajectory: Trajectory) -> None:
            iteration_ = 1 + int(request.id[0])
            store.append(trajectory, task=request.task, iteration=iteration_, purpose="train")

        def fresh() -> Runner:
            known = store.lasting_failures("train", 1)
            return Runner(factory, agent(), LIMITS, keep, poison=Poison(3, known))

        bad = factory.tasks("train")[1]
        run(fresh().run(iteration(factory, 0)))
        assert store.lasting_failures("train", 1) == {bad.id: 2}
        second = fresh()
        run(second.run(iteration(factory, 1)))
        assert bad in second.poison
        third = fresh()
        assert bad in third.poison
        run(third.run(iteration(factory, 2)))
        assert third.stats.counts().poisoned == 2
        # Episodes that were not played add nothing, and one that finishes wipes the count out.
        assert store.lasting_failures("train", 1) == {bad.id: 4}
        mended = Runner(breaking(set()), agent(), Limits(), keep)
        run(mended.run(iteration(factory, 3)))
        assert store.lasting_failures("train", 1) == {}


def test_what_failed_after_the_last_finish_may_be_the_machine_and_is_forgiven(
    tmp_path: Path,
) -> None:
    factory = breaking({0, 1, 2})
    with SqliteStore(tmp_path) as store:

        def keep(request: GroupRequest, trajectory: Trajectory) -> None:
            record(store, trajectory, request.task)

        limits = Limits(retries=0, give_up_after=3, concurrency=1)
        with pytest.raises(EpisodeError):
            run(Runner(factory, agent(), limits, keep).run(iteration(factory, 0)))
        assert store.count() >= 3
        assert store.lasting_failures("train", 0) == {}
        assert store.lasting_failures("elsewhere", 0) == {}


def test_only_attempts_that_were_the_last_count(tmp_path: Path) -> None:
    ledger = Ledger([])
    factory = breaking({1})
    run(Runner(factory, agent(), Limits(retries=2), ledger).run(iteration(factory, 0)))
    tasks = {one.id: one for one in factory.tasks("train")}
    with SqliteStore(tmp_path) as store:
        failed = [one for one in ledger.records if one.failure]
        for one in failed:
            record(store, one, tasks[one.task_id])
        (won,) = [one for one in ledger.records if one.id == "0-0/0/0"]
        record(store, replace(won, id="later/0/0", group_id="later"), tasks[won.task_id])
        assert store.lasting_failures("train", 2) == {failed[0].task_id: 2}
        assert store.lasting_failures("train", 3) == {}


def test_attempts_that_an_outage_took_are_not_counted_as_the_episodes_own(tmp_path: Path) -> None:
    ledger = Ledger([])
    factory = breaking({1})
    run(Runner(factory, agent(), Limits(retries=2), ledger).run(iteration(factory, 0)))
    tasks = {one.id: one for one in factory.tasks("train")}
    with SqliteStore(tmp_path) as store:
        failed = [one for one in ledger.records if one.failure]
        for one in failed:
            assert one.failure is not None
            # One of the three attempts was an outage's: so the third was not the last.
            taken = replace(one, failure=replace(one.failure, outages=1))
            record(store, taken, tasks[one.task_id])
            assert store.trajectory(one.id).trajectory == taken
        (won,) = [one for one in ledger.records if one.id == "0-0/0/0"]
        record(store, replace(won, id="later/0/0", group_id="later"), tasks[won.task_id])
        assert store.lasting_failures("train", 2) == {}
        assert store.lasting_failures("train", 1) == {failed[0].task_id: 2}
