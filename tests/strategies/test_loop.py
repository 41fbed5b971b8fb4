"""Strategies in the synchronous loop: what is stored, credited and trained, and after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentrl.core.strategy import Imitated, is_replay, original_id
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import CreditResult
from agentrl.learn.rows import batches_from_groups
from agentrl.rollout.limits import Limits
from agentrl.rollout.thread import LoopThread
from agentrl.strategies.replaying import replayed, with_imitated, without_replays
from agentrl.testing.episodes import act, episode, group
from agentrl.testing.faults import Fault, FaultyFactory
from tests.strategies.playing import FACTORY, Scripted, compared

EVERYTHING: list[dict[str, Any]] = [
    {"name": "difficulty", "options": {"lowest": 2, "highest": 3, "key": "rooms", "raise_at": 0.1}},
    {"name": "adaptive", "options": {"first": 3}},
    {"name": "resample", "options": {"resamplings": 1}},
    {"name": "replay"},
    {"name": "self_imitation", "options": {"per_iteration": 2}},
]


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as thread:
        yield thread


def test_replays_are_trained_on_as_such_and_never_credited_in_the_store(loop: LoopThread) -> None:
    stage = Scripted(EVERYTHING)
    fresh: list[str] = []
    replays = 0
    for batch in stage.batches(loop, iterations=6):
        for row in batch.rows:
            source = stage.stored[original_id(row.trajectory_id)]
            # Sampled ids and log-probabilities are those of the policy that sampled them.
            (segment,) = source.segments()
            assert row.token_ids == segment.token_ids
            logprobs = [one for step in source.steps for one in step.sample.logprobs]
            behaviour = row.behaviour_logprobs or ()
            pairs = zip(behaviour, row.action_mask, strict=True)
            assert [one for one, sampled in pairs if sampled] == logprobs
            assert row.policy_version == source.policy_version
            if is_replay(row.trajectory_id):
                replays += 1
            else:
                fresh.append(row.trajectory_id)
    assert replays == sum(len(one.replays) for one in stage.learnt) > 5
    assert len(set(fresh)) == len(fresh)
    assert set(fresh) <= set(stage.credited)
    assert len(set(stage.credited)) == len(stage.credited)
    assert not any(map(is_replay, stage.credited))
    assert len(set(stage.played)) == len(stage.played)


def test_a_stage_with_strategies_goes_on_in_mid_iteration_as_if_it_had_never_stopped(
    loop: LoopThread,
) -> None:
    whole = Scripted(EVERYTHING)
    all_batches = list(whole.batches(loop))
    before = [batch for batch in all_batches if batch.id.split("/")[0] in ("stage0-0", "stage0-1")]
    # Killed in the third iteration: what it had played is recorded, for the most part.
    names = [one for one in whole.played if not one.startswith("stage0-3")]
    third = [one for one in names if one.startswith("stage0-2")]
    kept = [one for one in names if one not in third[5:]]
    rest = Scripted(EVERYTHING, recorded={one: whole.stored[one] for one in kept})
    left = list(rest.batches(loop, done=2, state=whole.states[1]))
    assert left == all_batches[len(before) :]
    assert set(rest.played) == set(whole.played) - set(kept)
    assert rest.states == whole.states[2:]


def test_an_iteration_says_what_it_played_and_not_only_what_it_learns_from(
    loop: LoopThread,
) -> None:
    stage = Scripted([{"name": "resample", "options": {"resamplings": 1}}])
    list(stage.batches(loop, iterations=3))
    for one in stage.iterations:
        found = one.credit.metrics
        episodes = sum(len(each.trajectories) for each in one.all_played)
        assert episodes == found["sampling_episodes"] >= 4 * 6
        assert one.load is not None
        assert found["sampling_groups_dropped"] == 4 - len(one.groups)
        known = [t.success for each in one.all_played for t in each.trajectories]
        assert one.success == pytest.approx(np.mean([bool(won) for won in known]))
        assert one.load.counts.requested == episodes


def test_a_quorum_holds_for_what_is_played_in_the_place_of_another(loop: LoopThread) -> None:
    def later(task: Task, seed: int) -> bool:
        # The seeds of first groups derive from the stage's, those of other ones do not.
        return seed not in {derive_seed(7, task.id, trial) for trial in range(60)}

    faulty = FaultyFactory(FACTORY, Fault("raise", "reset", chooses=later))
    limits = Limits(retries=0, quorum=2, give_up_after=999)
    stage = Scripted([{"name": "resample"}], factory=faulty, limits=limits)
    list(stage.batches(loop, iterations=2))
    assert stage.learnt
    for one in stage.iterations:
        assert all("r1-" not in each.id for each in one.all_played)
    again = sum(one.credit.metrics["sampling_resamplings"] for one in stage.iterations)
    discarded = sum(one.load.counts.discarded for one in stage.iterations if one.load is not None)
    assert discarded == again > 0


def test_a_replay_is_compared_with_the_group_that_it_joins() -> None:
    won = episode("won", ("a", 0.0), ("b", 1.0), policy_version=3)
    past = group("past", won).trajectories[0]
    now = group("now", episode("x", ("a", 0.0)), episode("y", ("a", 0.0)))
    joined = replace(replayed(past, "now"), task_id=now.task.id)
    assert joined.id == "past/won@replay:now"
    assert original_id(replayed(joined, "later").id) == "past/won"
    both = replace(now, trajectories=(*now.trajectories, joined))
    credit = compared([both])
    # rewards 0, 0, 1: the mean is 1/3
    expected = [[-1 / 3], [-1 / 3], [2 / 3, 2 / 3]]
    for found, wanted in zip(credit.step_advantages, expected, strict=True):
        assert found == pytest.approx(wanted)
    fresh, part = without_replays([both], credit)
    assert fresh == (now,)
    assert list(part.step_advantages) == list(credit.step_advantages)[:2]
    assert [len(values) for values in part.parts.values()] == [2] * len(credit.parts)
    (batch,) = batches_from_groups([both], credit, updates=1, trajectory_weighting="equal")
    assert [row.policy_version for row in batch.rows] == [0, 0, 3]


def test_what_is_imitated_has_its_own_advantage_on_every_token() -> None:
    now = group("now", episode("x", ("a", 0.0)), episode("y", ("a", 1.0)))
    past = group("past", episode("won", act("a", tokens=3), ("b", 1.0))).trajectories[0]
    plain = compared([now])
    credit = CreditResult(plain.step_advantages, [[[0.5, 0.0]], [[0.0, 0.0]]])
    groups, both = with_imitated([now], credit, [Imitated(past, 0.25)], "s-4")
    assert groups[-1].trajectories[0].id == "past/won@replay:s-4-again-0"
    (batch,) = batches_from_groups(groups, both, updates=1, trajectory_weighting="equal")
    row = batch.rows[-1]
    assert [a for a, m in zip(row.advantages, row.action_mask, strict=True) if m] == [0.25] * 5
    assert with_imitated([now], credit, [], "s-4") == ((now,), credit)
