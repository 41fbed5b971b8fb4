"""Rollouts beside the learner, in simulated time: bounds, order, fates, records, resuming."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.asynchronous import Ledger, iteration_of
from agentrl.core.errors import EpisodeError
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sample, Trajectory
from agentrl.rollout.runner import Limits
from agentrl.rollout.staleness import oldest_version
from agentrl.rollout.taken import Taken
from tests.asynchronous_playing import Played, WaitingFactory, expected_ids, recorded_by


def ages(played: Played) -> list[int]:
    return [age for one in played.made if one.asynchrony for age in one.asynchrony.ages.values()]


def assert_every_group_has_one_fate(played: Played) -> None:
    fates = Counter([*played.trained, *played.stale, *played.discarded, *played.carried])
    assert set(fates.values()) <= {1}
    assert set(played.begun) == set(fates)


@pytest.mark.parametrize("late", ["wait", "drop"])
def test_over_a_thousand_updates_no_group_is_older_than_the_bound(late: str) -> None:
    factory = WaitingFactory(longest=1)
    played = Played(2, late, iterations=500, places=2, updates=2, factory=factory).run()
    assert len(played.batches) > 900
    seen: Counter[int] = Counter()
    for one in played.made:
        assert one.asynchrony is not None
        assert one.asynchrony.version == one.number
        for group_ in one.groups:
            oldest = oldest_version(group_)
            assert oldest is not None
            assert 0 <= one.number - oldest <= 2
            assert one.asynchrony.ages[group_.id] == one.number - oldest
            seen[one.number - oldest] += 1
    assert set(seen) == {0, 1, 2}
    assert_every_group_has_one_fate(played)
    assert len(played.trained) == 500 * 2
    if late == "wait":
        assert not played.stale
    else:
        assert played.stale
        assert min(played.stale.values()) > 2


@pytest.mark.parametrize("bound", [0, 1, 2, 4])
def test_tasks_and_seeds_are_those_of_the_synchronous_stage(bound: int) -> None:
    played = Played(bound=bound, iterations=15).run()
    wanted = expected_ids(3, 45, played.factory)
    assert sorted(played.trained) == sorted(wanted)
    for one in played.stored.values():
        task = one.group_id.rpartition("-")[2]
        assert one.task_id == task
        assert one.seed == derive_seed(7, task, one.trial)


def test_the_order_of_tasks_depends_on_no_delay_and_no_machine() -> None:
    quick = Played(factory=WaitingFactory(longest=1), limits=Limits(concurrency=2)).run()
    slow = Played(factory=WaitingFactory(longest=4), limits=Limits(concurrency=40)).run()
    assert list(quick.begun) == list(slow.begun) == expected_ids(3, 60, quick.factory)
    # Which of them meet in an iteration does.
    assert quick.trained != slow.trained


def test_the_same_run_twice_is_the_same() -> None:
    one, other = Played().run(), Played().run()
    assert one.batches == other.batches
    assert one.seconds == other.seconds


def test_without_staleness_nothing_is_sampled_across_a_publication() -> None:
    played = Played(bound=0).run()
    assert set(ages(played)) == {0}
    spans = [one.versions for each in played.stored.values() for one in samples(each)]
    assert max(map(len, spans)) == 1


def test_episodes_go_on_across_publications_in_spans() -> None:
    played = Played(bound=2, update_s=5.0).run()
    spans = [one.versions for each in played.stored.values() for one in samples(each)]
    assert max(map(len, spans)) > 1


def test_playing_beside_the_learner_takes_less_time() -> None:
    times = [Played(bound=bound, update_s=15.0, iterations=40).run().seconds for bound in (0, 1, 2)]
    assert times[0] > 1.3 * times[1] > 1.3 * times[2]


def test_no_more_groups_are_begun_than_the_bound_allows() -> None:
    # With updates this slow everything that may be begun is complete before the next publication.
    played = Played(bound=3, update_s=1000.0, iterations=10).run()
    for one in played.made:
        assert one.asynchrony is not None
        iterations_ahead = min(3, 10 - one.number - 1) + (one.number < 6)
        assert one.asynchrony.ahead <= 3 * iterations_ahead
    # All but the first three iterations are as old as they may be: that is what waiting costs.
    assert Counter(ages(played))[3] == 3 * 7


def test_dropped_groups_are_the_slow_ones_and_others_are_played_instead() -> None:
    played = Played(bound=1, late="drop", iterations=60).run()
    assert played.stale
    assert len(played.trained) == 60 * 3
    assert_every_group_has_one_fate(played)
    assert len(played.begun) == 60 * 3 + len(played.stale)

    def seconds(names: set[str]) -> float:
        return float(np.mean([x.wall_s for x in played.stored.values() if x.group_id in names]))

    # What is lost so is no fair share of the episodes: that is why waiting is the default.
    assert seconds(set(played.stale)) > 1.5 * seconds(set(played.trained))


def test_a_group_below_its_quorum_takes_a_place_and_the_stage_goes_on() -> None:
    factory = WaitingFactory(breaks=0.3)
    limits = Limits(concurrency=12, retries=0, quorum=2, give_up_after=1000)
    played = Played(factory=factory, limits=limits, iterations=30).run()
    assert played.discarded
    assert len(played.trained) + len(played.discarded) == 30 * 3
    assert_every_group_has_one_fate(played)
    assert [one.number for one in played.made] == list(range(30))


def test_where_every_group_is_discarded_the_stage_ends_with_the_cause() -> None:
    limits = Limits(concurrency=12, retries=0, quorum=2, give_up_after=10_000)
    with pytest.raises(EpisodeError, match="the machine of this episode broke"):
        Played(factory=WaitingFactory(breaks=1.0), limits=limits).run()


def test_what_stops_the_play_reaches_the_learner() -> None:
    with pytest.raises(EpisodeError, match="the machine of this episode broke"):
        Played(factory=WaitingFactory(breaks=1.0)).run()


def test_a_stage_that_ends_early_says_what_it_leaves() -> None:
    played = Played(bound=2, stops_after=5).run()
    assert len(played.trained) == 15
    assert played.carried
    assert_every_group_has_one_fate(played)


def test_the_learner_sees_the_policy_that_its_updates_begin_with() -> None:
    played = Played(bound=2, updates=3, iterations=12, update_s=4.0).run()
    by_iteration = [batch for batch in played.batches if batch.id.endswith("/2")]
    assert by_iteration
    for batch in by_iteration:
        version = int(batch.id.split("-")[1].split("/")[0])
        for row in batch.rows:
            if any(row.advantages):
                assert row.proximal_logprobs == (-1.0 - version,) * len(row.token_ids)


# What is recorded is whole, whatever went wrong


def samples(one: Trajectory) -> list[Sample]:
    return [step.sample for step in one.steps]


def versions_by_token(sample: Sample) -> list[int]:
    starts = [*(start for start, _ in sample.versions), len(sample.token_ids)]
    assert starts[0] == 0
    assert all(a < b for a, b in pairwise(starts))
    spans = zip(sample.versions, pairwise(starts), strict=True)
    return [version for (_, version), (start, end) in spans for _ in range(start, end)]


def assert_whole(played: Played) -> None:
    """Ids, masks, log-probabilities and versions are of one length, and belong together."""
    for one in played.stored.values():
        for sample in samples(one):
            versions = versions_by_token(sample)
            assert len(versions) == len(sample.token_ids) == len(sample.logprobs)
            # The engine's log-probability says which version it was drawn with.
            assert list(sample.logprobs) == [-1.0 - version for version in versions]
            assert versions == sorted(versions)
    for batch in played.batches:
        for row in batch.rows:
            behaviour = row.behaviour_logprobs
            assert behaviour is not None
            assert (
                len(row.token_ids)
                == len(row.action_mask)
                == len(behaviour)
                == len(row.advantages)
                == len(row.proximal_logprobs or row.token_ids)
            )
            stored = played.stored.get(row.trajectory_id)
            if stored is not None:
                assert sum(row.action_mask) == stored.sampled_tokens
                logprobs = [value for sample in samples(stored) for value in sample.logprobs]
                masked = zip(behaviour, row.action_mask, strict=True)
                assert [value for value, sampled in masked if sampled] == logprobs
            masked = zip(behaviour, row.action_mask, strict=True)
            assert all(value == 0 for value, sampled in masked if not sampled)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bound=st.integers(0, 3),
    late=st.sampled_from(["wait", "drop"]),
    broken=st.sampled_from([0.0, 0.05, 0.2]),
    aborted=st.sampled_from([0.0, 0.05, 0.2]),
    straggler_s=st.sampled_from([None, 5.0]),
    stops_after=st.integers(1, 8),
)
def test_abort_retry_and_resume_leave_records_whole_and_lose_and_double_nothing(
    seed: int,
    bound: int,
    late: str,
    broken: float,
    aborted: float,
    straggler_s: float | None,
    stops_after: int,
) -> None:
    rng = random.Random(seed)
    limits = Limits(
        concurrency=rng.choice((4, 12, 40)),
        retries=3,
        give_up_after=10_000,
        quorum=1,
        straggler_s=straggler_s,
        backoff_s=rng.choice((0.0, 3.0)),
    )
    common: dict[str, Any] = {
        "bound": bound,
        "late": late,
        "iterations": 8,
        "group_size": 3,
        "updates": rng.choice((1, 2)),
        "update_s": rng.choice((1.0, 10.0, 40.0)),
        "limits": limits,
        "fails": lambda episode, call: rng.random() < aborted,
    }
    first = Played(**common, factory=WaitingFactory(breaks=broken), stops_after=stops_after).run()
    assert_whole(first)
    assert_every_group_has_one_fate(first)
    if stops_after == 8:
        assert not first.carried
    # A kill: what was in flight is gone, what was complete is in the store, and what was learnt
    # since the last checkpoint is learnt again.
    checkpoint = rng.randint(1, stops_after)
    second = Played(
        **common,
        factory=WaitingFactory(breaks=broken),
        recorded=recorded_by(first),
        done=checkpoint,
        version=checkpoint,
        known=first.taken,
    ).run()
    assert_whole(second)
    assert_every_group_has_one_fate(second)
    assert max([*ages(first), *ages(second)]) <= bound
    assert_from_no_future(first)
    assert_from_no_future(second)
    # What was taken after the checkpoint is taken again, and on record once.
    again = {one.number: one.trained for one in first.taken[checkpoint:]}
    for one in second.made[: len(again)]:
        assert {each.id for each in one.groups} == set(again[one.number])
    assert [one.number for one in (*first.taken, *second.taken)] == list(range(8))
    if late == "wait":
        assert not first.stale
        assert not second.stale
    fates = [*fates_of(first, checkpoint), *fates_of(second, 8)]
    assert set(Counter(fates).values()) == {1}
    stale = sum(len(one.asynchrony.stale) for one in first.made[:checkpoint] if one.asynchrony)
    stale += len(second.stale)
    assert sorted(fates) == sorted(expected_ids(3, 8 * 3 + stale, first.factory))
    # No episode that had been finished was played again.
    finished = {(one.group_id, one.trial) for one in first.stored.values() if one.failure is None}
    assert not finished & {(one.group_id, one.trial) for one in second.stored.values()}


def assert_from_no_future(played: Played) -> None:
    """Nothing is learnt from before the weights that sampled it."""
    for one in played.made:
        for group_ in one.groups:
            for each in group_.trajectories:
                versions = [v for sample in samples(each) for v in versions_by_token(sample)]
                assert max(versions, default=0) <= one.number


def fates_of(played: Played, iterations: int) -> list[str]:
    """Groups settled in the first iterations that were made."""
    ids: list[str] = []
    for one in played.made[:iterations]:
        assert one.asynchrony is not None
        ids += [*one.asynchrony.ages, *one.asynchrony.stale, *one.asynchrony.discarded]
    return ids


def test_every_trajectory_counts_once_however_long_it_is_and_an_update_is_one_step() -> None:
    played = Played(bound=2, updates=2, factory=WaitingFactory(longest=8), iterations=25).run()
    lengths = {len(one.steps) for one in played.stored.values()}
    assert min(lengths) == 1
    assert max(lengths) >= 6
    assert len(played.batches) == 2 * 25
    for batch in played.batches:
        shares: Counter[str] = Counter()
        for row in batch.rows:
            shares[row.trajectory_id] += row.weight * sum(row.action_mask)  # type: ignore[assignment]
        np.testing.assert_allclose(list(shares.values()), np.mean(list(shares.values())))


def test_a_ledger_knows_what_is_settled_out_of_order() -> None:
    ledger = Ledger()
    ledger.settle((1, 4, 0))
    assert (ledger.first, ledger.beyond, ledger.count) == (2, {4}, 3)
    ledger.settle((2,))
    assert (ledger.first, ledger.beyond, ledger.count) == (3, {4}, 4)
    ledger.settle((3, 5))
    assert (ledger.first, ledger.beyond, ledger.count) == (6, set(), 6)


def test_what_an_iteration_took_is_plain_data_and_back() -> None:
    taken = Taken(3, {"a": 1}, {"b": 2}, {"c": 5})
    assert Taken(**taken.to_data()) == taken
    assert taken.positions == {"a": 1, "b": 2, "c": 5}


def test_a_group_belongs_to_the_iteration_that_would_have_played_it() -> None:
    played = Played(iterations=4).run()
    for name, request in played.begun.items():
        assert iteration_of(request, "stage0") == int(name.split("-")[1])
