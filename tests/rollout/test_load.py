"""Where the time of a rollout went: sums of timings, the engine's share, tokens a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from agentrl.engines.work import EngineWork
from agentrl.rollout.load import Load, Meter, shares
from agentrl.rollout.stats import RolloutCounts
from tests.rollout.playing import agent, corridor, requests, run, runner


@dataclass
class BusyEngine:
    """Counters as ``HfEngine.stats`` has them."""

    busy_s: float = 0.0
    forwards: int = 0
    mean_batch: float = 0.0
    sampled_tokens: int = 0

    @property
    def stats(self) -> BusyEngine:
        return self


def test_the_timings_of_all_steps_are_summed() -> None:
    factory = corridor()
    playing = runner(factory)
    meter = Meter(playing.stats, playing.agent.engine)
    before = meter.mark()
    groups = run(playing.run(requests(factory, 2, 2)))
    load = meter.since(before)
    steps = [step for group in groups for one in group.trajectories for step in one.steps]
    for name in ("sample_s", "env_s", "tool_s", "wait_s"):
        played = sum(getattr(step.timings, name) for step in steps)
        assert load.counts.timings.get(name, 0.0) == pytest.approx(played)
        assert load.to_data()[name] == pytest.approx(played)
    assert load.to_data()["sampled_tokens"] == load.counts.sampled_tokens > 0


def test_the_engines_share_is_what_it_was_busy_between_two_readings() -> None:
    ticks: Iterator[float] = iter((100.0, 110.0))
    engine = BusyEngine(busy_s=50.0, forwards=100, mean_batch=1.0, sampled_tokens=1000)
    meter = Meter(runner(corridor()).stats, engine, clock=lambda: next(ticks))
    before = meter.mark()
    # 20 passes of 8 requests after 100 passes of one.
    engine.busy_s, engine.forwards, engine.mean_batch = 59.0, 120, 260 / 120
    engine.sampled_tokens = 1160
    load = meter.since(before)
    assert load.engine_utilisation == pytest.approx(0.9)
    assert load.engine is not None
    assert load.engine.mean_batch == pytest.approx(8.0)
    assert load.tokens_per_s == pytest.approx(16.0)


def test_an_engine_without_counters_is_unknown_not_idle() -> None:
    assert EngineWork.of(agent().engine) is None
    assert EngineWork.of(SimpleNamespace(stats=SimpleNamespace(busy_s=1.0))) is None
    load = Load(RolloutCounts(sampled_tokens=30), 10.0)
    data = load.to_data()
    assert (data["engine_utilisation"], data["engine_mean_batch"]) == (None, None)
    assert load.tokens_per_s == 3.0
    assert Load(RolloutCounts(), 0.0).tokens_per_s == 0.0


def test_shares_take_tools_out_of_the_environment_and_sum_to_one() -> None:
    found = shares({"sample_s": 6.0, "env_s": 3.0, "tool_s": 2.0, "wait_s": 1.0})
    assert found == {"sampling": 0.6, "environment": 0.1, "tools": 0.2, "waiting": 0.1}
    assert shares({}) == {} == shares({"sample_s": 0.0})
