"""Whole groups, or a stated quorum; stragglers are abandoned, recorded, and never scored."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrl.core.errors import ConfigError, EpisodeError
from agentrl.core.task import Task
from agentrl.core.trajectory import Group, StepResult
from agentrl.credit.grpo import GRPO
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from tests.rollout.playing import WIN, Ledger, agent, requests, run, runner, win

GO_ON = StepResult(say("m"), 0.0, terminated=False)


def with_trouble(bad: int, trouble: object) -> ScriptedFactory:
    """One task; the first ``bad`` episodes made meet ``trouble`` at their second step."""
    made = 0

    def script(_task: Task, _attempt: int) -> ScriptedEnv:
        nonlocal made
        made += 1
        return ScriptedEnv(say("s"), [GO_ON, trouble if made <= bad else WIN])

    return ScriptedFactory(script)


def test_a_group_below_its_quorum_is_discarded_and_counted() -> None:
    discarded: list[tuple[str, Group]] = []

    def on_discarded(request: GroupRequest, group: Group) -> None:
        discarded.append((request.id, group))

    def script(task: Task, _attempt: int) -> ScriptedEnv:
        bad = task.payload["number"] == 1
        return ScriptedEnv(say("s"), [OSError("broken") if bad else WIN])

    factory = ScriptedFactory(script, count=3)
    playing = replace(runner(factory, quorum=1, retries=0), on_discarded=on_discarded)
    groups = run(playing.run(requests(factory)))
    assert [group.id for group in groups] == ["g0", "g2"]
    ((name, group),) = discarded
    assert (name, len(group.trajectories)) == ("g1", 3)
    counts = playing.stats.counts()
    assert (counts.groups, counts.discarded, counts.failed) == (2, 1, 3)
    assert counts.under_way == 0


@pytest.mark.parametrize(("quorum", "delivered"), [(0, 1), (5, 1), (6, 0)])
def test_the_quorum_counts_what_finished_after_all_attempts(quorum: int, delivered: int) -> None:
    factory = with_trouble(3, OSError("broken"))
    playing = runner(factory, quorum=quorum, retries=0)
    groups = run(playing.run(requests(factory, 1, 8)))
    assert len(groups) == delivered
    assert playing.stats.counts().finished == 5


def test_a_group_smaller_than_the_quorum_needs_all_of_it() -> None:
    factory = ScriptedFactory(win)
    assert len(run(runner(factory, quorum=8).run(requests(factory, 1, 2)))) == 1


def test_where_no_group_reaches_its_quorum_and_nothing_finished_the_run_stops() -> None:
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [OSError("no display")]))
    with pytest.raises(EpisodeError, match=r"no episode of any group finished.*no display"):
        run(runner(factory, quorum=1, retries=0).run(requests(factory, 1, 3)))


def test_stragglers_are_abandoned_after_the_quorum_and_recorded_with_what_they_had_done() -> None:
    ledger = Ledger([])
    factory = with_trouble(2, lambda: asyncio.Event().wait())
    patient = agent(deadlines=replace(agent().deadlines, step_s=30.0))
    playing = Runner(factory, patient, Limits(quorum=4, straggler_s=0.05), ledger)
    (group,) = run(playing.run(requests(factory, 1, 6)))
    cut = [one for one in group.trajectories if one.failure]
    assert [one.trial for one in cut] == [0, 1]
    for one in cut:
        assert one.failure is not None
        assert (one.failure.boundary, one.failure.error) == ("episode", "AbandonedError")
        assert "4 of 6 episodes of its group had finished" in one.failure.message
        assert (len(one.steps), one.reward, one.success) == (1, None, None)
    assert ledger.last() == {(one.group_id, one.trial): one for one in group.trajectories}
    assert all(env.closes == 1 for env in factory.made)
    counts = playing.stats.counts()
    assert (counts.abandoned, counts.failed, counts.retried) == (2, 0, 0)
    # They take no part: neither in the mean nor in the loss.
    advantages = GRPO().assign([group]).step_advantages
    assert [one is None for one in advantages] == [True, True, False, False, False, False]


def test_stragglers_that_wait_for_a_slot_or_another_attempt_are_abandoned_too() -> None:
    made = 0

    def script(_task: Task, _attempt: int) -> ScriptedEnv:
        nonlocal made
        made += 1
        return ScriptedEnv(say("s"), [OSError("broken") if made == 1 else WIN])

    factory = ScriptedFactory(script)
    # The first fails and waits 30 s for its next attempt.
    playing = runner(factory, quorum=2, straggler_s=0.05, backoff_s=60.0)
    (group,) = run(playing.run(requests(factory, 1, 3)))
    failure = group.trajectories[0].failure
    assert failure is not None
    assert failure.error == "AbandonedError"
    assert (group.trajectories[0].attempt, made) == (1, 3)
    counts = playing.stats.counts()
    assert (counts.requested, counts.finished, counts.abandoned, counts.retried) == (3, 2, 1, 1)


def test_a_straggler_that_had_ended_is_kept() -> None:
    # Closing takes longer than the stragglers are given: what was played is not lost for it.
    class SlowToClose(ScriptedEnv):
        async def aclose(self) -> None:
            await asyncio.sleep(0.1)
            await super().aclose()

    made = 0

    def script(_task: Task, _attempt: int) -> ScriptedEnv:
        nonlocal made
        made += 1
        return (SlowToClose if made == 1 else ScriptedEnv)(say("s"), [WIN])

    factory = ScriptedFactory(script)
    (group,) = run(runner(factory, quorum=1, straggler_s=0.01).run(requests(factory, 1, 2)))
    assert [one.failure for one in group.trajectories] == [None, None]


def test_a_resumed_run_does_not_play_what_was_abandoned() -> None:
    ledger = Ledger([])
    factory = with_trouble(1, lambda: asyncio.Event().wait())
    patient = agent(deadlines=replace(agent().deadlines, step_s=30.0))
    limits = Limits(quorum=2, straggler_s=0.05)
    asked = requests(factory, 1, 3)
    (group,) = run(Runner(factory, patient, limits, ledger).run(asked))
    again = ScriptedFactory(win)
    (same,) = run(Runner(again, patient, limits, ledger, ledger.recorded).run(asked))
    assert same == group
    assert again.made == []


def test_cutting_stragglers_needs_a_quorum() -> None:
    with pytest.raises(ConfigError, match="quorum is 0: set quorum to at least 1"):
        Limits(straggler_s=1.0)
