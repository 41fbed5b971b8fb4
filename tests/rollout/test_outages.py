"""An engine that is down for all costs nobody an attempt of its own, and is not tried by all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentrl.agents.gate import EngineGate
from agentrl.core.errors import EngineError, EpisodeError
from agentrl.core.trajectory import Failure, Sample, Sampling
from agentrl.engines.scripted import Delay, Fault, Raise, ScriptedEngine
from agentrl.rollout.runner import Limits, Runner
from agentrl.testing.faults import FaultyFactory
from tests.rollout.playing import (
    QUICK,
    Improvised,
    Ledger,
    agent,
    corridor,
    finished,
    requests,
    run,
    runner,
)

REFUSED = Raise(EngineError("the prompt is too long"))


class Crashing(ScriptedEngine):
    """Takes ``takes_s`` for an answer; what is asked or under way in an outage fails.

    ``outages`` are (from, to) in seconds of the event loop.
    """

    takes_s = 0.05

    def __init__(self, *outages: tuple[float, float], **options: Any) -> None:
        super().__init__(Improvised(), **options)
        self.outages = outages
        self.now = 0
        self.together: list[int] = []  # for each call, how many there were with it

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.now += 1
        self.together.append(self.now)
        try:
            for start, end in self.outages:
                if start <= began < end:
                    raise EngineError("connection refused")
                if began < start < began + self.takes_s:
                    await asyncio.sleep(start - began)
                    raise EngineError("connection reset")
            await asyncio.sleep(self.takes_s)
            return await super().sample(
                prompt_ids,
                sampling=sampling,
                stop_token_ids=stop_token_ids,
                seed=seed,
                episode_id=episode_id,
            )
        finally:
            self.now -= 1


SLOW = replace(QUICK, sample_s=5.0)


def test_an_outage_is_one_failure_of_the_first_and_of_nobody_else() -> None:
    # Two outages; the first is longer than all retries would last.
    factory = corridor()
    asked = requests(factory, 6, 4)
    undisturbed = finished(run(runner(factory).run(asked)))
    ledger, faulty = Ledger([]), FaultyFactory(factory, lambda task, seed, attempt: None)
    engine = Crashing((0.07, 40.0), (51.32, 52.0))
    player = agent(engine, deadlines=SLOW)
    limits = Limits(retries=2, backoff_s=0.1, give_up_after=16)
    playing = Runner(faulty, player, limits, ledger, ledger.recorded)
    assert finished(run(playing.run(asked))) == undisturbed
    failed = [one for one in ledger.records if one.failure is not None]
    counts = playing.stats.counts()
    assert counts.outages >= 40
    assert len(failed) == counts.retried == counts.outages + 2  # the first of each outage
    assert (counts.finished, counts.failed) == (24, 0)
    assert faulty.opened == faulty.closed
    # The second 24 calls fell with it; then it was tried by one at a time: 0.1 s later, 0.2 s
    # after that, and so on; the pause of 25.6 s ended when it was up again.
    assert engine.together[48 : 48 + 10] == [*[1] * 9, 1]
    assert max(engine.together[58:]) > 1


def test_whoever_comes_while_the_engine_is_down_waits_with_its_environment() -> None:
    factory = corridor()
    engine = Crashing((0.0, 5.0))
    gate = EngineGate.of(0, 0.1)

    async def scenario() -> Runner:
        for episode in "ab":  # of another runner, a moment before
            gate.outages.failed(await gate.outages.admit(), episode)
        playing = Runner(factory, agent(engine, deadlines=SLOW), Limits(backoff_s=0.1), gate=gate)
        await playing.run(requests(factory, 8, 4))
        return playing

    counts = run(scenario()).stats.counts()
    # Tried at 0.1, 0.3, 0.7, 1.5, 3.1 and, with success, 6.3 s; nobody else lost anything.
    assert engine.together[:6] == [1] * 6
    assert (counts.finished, counts.retried, counts.outages) == (32, 5, 5)


@pytest.mark.parametrize("concurrency", [1, 7, 128])
@pytest.mark.parametrize("backoff_s", [0.0, 0.5])
def test_an_engine_that_stays_down_stops_the_run_with_the_first_cause(
    concurrency: int, backoff_s: float
) -> None:
    factory = corridor()
    engine = Crashing((0.0, math.inf))
    limits = Limits(concurrency, 2, 16, backoff_s=backoff_s, stall_s=20.0)
    playing = Runner(factory, agent(engine), limits)

    async def scenario() -> float:
        with pytest.raises(EpisodeError, match=r"none finished.*sample/EngineError: connection"):
            await playing.run(requests(factory, 20, 2))
        return asyncio.get_running_loop().time()

    seconds = run(scenario())
    assert len(engine.together) <= 16 + concurrency + 3
    assert seconds < 16 * 30
    assert playing.stats.in_flight == 0


def refuses(*groups: str, after: int = 0) -> Callable[[str, int], Fault]:
    """Episodes of some groups are refused from their call ``after`` on, at every attempt."""

    def fault(episode_id: str, index: int) -> Fault:
        return REFUSED if episode_id.split("/")[0] in groups and index >= after else Delay(0.01)

    return fault


@pytest.mark.parametrize("after", [0, 1])
def test_calls_that_fail_by_themselves_use_up_their_own_attempts(after: int) -> None:
    factory = corridor()
    engine = ScriptedEngine(Improvised(), faults=refuses("g1", after=after))
    playing = runner(factory, agent(engine), retries=2, concurrency=3)
    groups = run(playing.run(requests(factory, 8, 1)))
    failures = [one.trajectories[0].failure for one in groups]
    assert [one is not None for one in failures] == [False, True, *[False] * 6]
    assert groups[1].trajectories[0].attempt == 2
    assert playing.stats.counts().outages == 0


def test_where_only_what_must_fail_is_left_it_fails_within_its_bounds() -> None:
    # Nothing tells four episodes that are refused from an engine that is down, once nobody else
    # plays: their attempts are bounded all the same, and the run goes on to its end.
    factory = corridor()
    engine = ScriptedEngine(Improvised(), faults=refuses("g1", "g2"))
    playing = runner(factory, agent(engine), retries=1, outages=3, backoff_s=0.1)
    groups = run(playing.run(requests(factory, 8, 2)))
    failures = [one.failure for group in groups for one in group.trajectories]
    assert [one is not None for one in failures] == [False] * 2 + [True] * 4 + [False] * 10
    for group in groups[1:3]:
        for one in group.trajectories:
            assert one.failure is not None
            assert one.failure.outages <= 3
            assert one.attempt == 1 + one.failure.outages


def test_a_deadline_that_passes_while_the_engine_is_down_is_the_outages() -> None:
    factory = corridor()
    asked = requests(factory, 2, 3)
    undisturbed = finished(run(runner(factory).run(asked)))
    ledger = Ledger([])
    player = agent(Crashing((0.02, 9.0)), deadlines=replace(SLOW, episode_s=3.0))
    playing = Runner(factory, player, Limits(retries=1, backoff_s=0.5), ledger)
    assert finished(run(playing.run(asked))) == undisturbed
    overdue = [one.failure for one in ledger.records if one.failure]
    causes = [(one.boundary, one.error) for one in overdue if one.outages]
    assert ("episode", "DeadlineError") in causes


@pytest.mark.parametrize(
    ("attempt", "outages", "left"),
    [
        (0, 1, 2),  # the one attempt was an outage's
        (5, 6, 2),
        (5, 5, 1),  # five outages and one failure of its own
        (5, 4, 0),
        (1, 0, 0),
    ],
)
def test_a_resumed_run_knows_what_outages_took(attempt: int, outages: int, left: int) -> None:
    factory = corridor()
    (request,) = requests(factory, 1, 2)
    (whole,) = run(runner(factory).run([request]))
    won, other = whole.trajectories
    failure = Failure("sample", "EngineError", "connection reset", outages)
    known = replace(other, id=f"g0/1/{attempt}", attempt=attempt, failure=failure, success=None)
    down = ScriptedEngine(Improvised(), faults=refuses("g0"))
    ledger = Ledger([])
    playing = Runner(
        factory,
        agent(down),
        Limits(retries=1),
        ledger,
        lambda _: {0: won, 1: known},
    )
    (group,) = run(playing.run([request]))
    numbers = range(attempt + 1, attempt + 1 + left)
    assert [one.id for one in ledger.records] == [f"g0/1/{number}" for number in numbers]
    assert group.trajectories[1] == (ledger.records[-1] if left else known)


def test_two_runners_with_one_gate_share_the_tokens_of_their_engine() -> None:
    factory = corridor()
    train, panel = requests(factory, 4, 3), requests(factory, 4, 3)
    panel = [replace(one, id=f"panel-{one.id}") for one in panel]
    alone = [finished(run(runner(factory).run(one))) for one in (train, panel)]

    async def both(shared: bool) -> tuple[list[Any], int]:
        engine = Crashing()
        # A prompt of the corridor has more than 50 tokens: one call at a time, or one of each.
        limits = Limits(tokens_in_flight=60)
        gate = EngineGate.of(60) if shared else None
        playing = Runner(factory, agent(engine, deadlines=SLOW), limits, gate=gate)
        groups = await asyncio.gather(playing.run(train), playing.run(panel))
        return [finished(one) for one in groups], max(engine.together)

    assert run(both(shared=False)) == (alone, 2)
    assert run(both(shared=True)) == (alone, 1)


def test_an_outage_that_one_runner_meets_is_known_to_the_other() -> None:
    factory = corridor()
    train, panel = requests(factory, 4, 3), requests(factory, 1, 3)
    panel = [replace(one, id=f"panel-{one.id}") for one in panel]

    async def scenario() -> tuple[int, list[int]]:
        engine = Crashing((0.02, 5.0))
        player = agent(engine, deadlines=SLOW)
        first = Runner(factory, player, Limits(backoff_s=0.1), gate=EngineGate.of(0, 0.1))
        second = replace(first, stats=type(first.stats)())
        training = asyncio.create_task(first.run(train))
        await asyncio.sleep(1.0)
        await second.run(panel)
        await training
        return second.stats.counts().finished, engine.together

    done, together = run(scenario())
    assert done == 3
    assert set(together[12:16]) == {1}  # twelve went down with it; then one at a time, of either
