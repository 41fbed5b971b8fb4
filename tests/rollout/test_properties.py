"""Whatever breaks, wherever and however often: nothing is lost, invented, doubled or left open."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl.core.errors import EpisodeError
from agentrl.core.task import Task, derive_seed
from agentrl.rollout.poison import Poison
from agentrl.rollout.runner import Limits, Runner
from agentrl.testing.faults import Fault, FaultyFactory
from tests.rollout.playing import (
    QUICK,
    Ledger,
    agent,
    bare,
    corridor,
    finished,
    requests,
    run,
    runner,
)

FACTORY = corridor()
ASKED = requests(FACTORY, 3, 3)
UNDISTURBED = finished(run(runner(FACTORY).run(ASKED)))
QUICKER = replace(
    QUICK, make_s=0.02, reset_s=0.02, step_s=0.02, close_s=0.02, sample_s=1.0, cancel_s=0.005
)
ANYWHERE = ("raise", "bug", "exit", "cancel", "hang", "late", "slow")
FAULTS = st.one_of(
    st.none(),
    st.builds(
        Fault,
        kind=st.sampled_from(ANYWHERE),
        at=st.sampled_from(("make", "reset", "step", "close")),
        step=st.integers(0, 3),
        late_s=st.just(0.001),
    ),
    st.builds(
        Fault,
        kind=st.sampled_from(("nan_reward", "infinite_reward", "not_a_result")),
        step=st.integers(0, 3),
    ),
)
# For each episode, by place in the list, what each of its attempts meets; then nothing.
PLANS = st.lists(st.lists(FAULTS, max_size=3), min_size=9, max_size=9)
SEEDS = [derive_seed(one.seed, one.task.id, trial) for one in ASKED for trial in range(one.size)]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    plans=PLANS,
    retries=st.integers(0, 2),
    concurrency=st.sampled_from([1, 4, 64]),
    quorum=st.integers(0, 3),
    poison=st.integers(0, 2),
)
def test_requested_is_finished_and_recorded_failures_and_the_rest_is_as_without_faults(
    plans: list[list[Fault | None]], retries: int, concurrency: int, quorum: int, poison: int
) -> None:
    by_seed = dict(zip(SEEDS, plans, strict=True))

    def plan(task: Task, seed: int, attempt: int) -> Fault | None:
        faults = by_seed[seed]
        return faults[attempt] if attempt < len(faults) else None

    factory, ledger = FaultyFactory(FACTORY, plan), Ledger([])
    playing = Runner(
        factory,
        agent(deadlines=QUICKER),
        Limits(concurrency=concurrency, retries=retries, quorum=quorum, give_up_after=99),
        ledger,
        poison=Poison(poison),
    )
    stopped = ""
    try:
        groups = run(playing.run(ASKED))
    except EpisodeError as error:
        groups, stopped = [], str(error)
    last = ledger.last()
    won = {key: one for key, one in last.items() if one.failure is None}
    lost = {key: one for key, one in last.items() if one.failure is not None}

    # Nothing is lost: whatever was asked for is on record, finished or failed with its cause.
    assert len(last) == 9
    counts = playing.stats.counts()
    assert counts.requested == len(won) + len(lost) == 9
    assert (counts.finished, counts.failed + counts.poisoned) == (len(won), len(lost))
    assert counts.under_way == playing.stats.in_flight == 0
    # Nothing is invented: what finished is what finishes without faults, to the token.
    for key, one in finished_records(ledger).items():
        assert one == UNDISTURBED[key]
    # A failure is never a reward.
    assert all(one.reward is None and one.success is None for one in lost.values())
    # Attempts are bounded, and there is one record of each.
    attempts = Counter((one.group_id, one.trial) for one in ledger.records)
    assert all(attempts[key] == one.attempt + 1 <= retries + 1 for key, one in last.items())
    # Delivered is what is on record, whole: the groups that reach the quorum.
    enough = Counter(group for group, _ in won)
    assert [one.id for one in groups] == [one.id for one in ASKED if enough[one.id] >= quorum]
    assert ("no episode of any group finished" in stopped) == (not won and quorum > 0)
    for group in groups:
        assert [last[group.id, one.trial] for one in group.trajectories] == list(group.trajectories)
    # What was opened was closed.
    assert factory.opened == factory.closed


def finished_records(ledger: Ledger) -> dict[tuple[str, int], object]:
    return {
        (one.group_id, one.trial): replace(bare(one), close_failure=None)
        for one in ledger.records
        if one.failure is None
    }
