"""The scripted engine: its contract, its scripts, its faults."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, EngineError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.scripted import Answer, Delay, Fault, Hang, Raise, ScriptedEngine
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.engine import CHECKS, EngineSubject

STOP = 9


def sample(
    engine: ScriptedEngine,
    prompt: tuple[int, ...] = (1, 2),
    *,
    episode: str = "a",
    max_tokens: int = 8,
    stop: tuple[int, ...] = (STOP,),
) -> Coroutine[Any, Any, Sample]:
    return engine.sample(
        prompt,
        sampling=Sampling(max_tokens=max_tokens),
        stop_token_ids=stop,
        seed=0,
        episode_id=episode,
    )


def echo(prompt_ids: tuple[int, ...], call_index: int) -> tuple[int, ...]:
    return prompt_ids[-3:]


def test_the_contract_holds() -> None:
    subject = EngineSubject(lambda: ScriptedEngine(echo), (1, 2, 3), 10, (STOP,))
    assert_contract(CHECKS, subject)


def test_an_episode_plays_its_own_list_whatever_the_others_do() -> None:
    engine = ScriptedEngine({"a": [[1], [2, STOP]], "b": [[3]]})

    async def play() -> list[Sample]:
        return [await sample(engine, episode=one) for one in ("a", "b", "a")]

    assert [one.token_ids for one in asyncio.run(play())] == [(1, STOP), (3, STOP), (2, STOP)]
    assert [(call.episode_id, call.index) for call in engine.calls] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
    ]


def test_one_list_serves_every_episode_from_its_start() -> None:
    engine = ScriptedEngine([[1], [2]])

    async def play() -> list[tuple[int, ...]]:
        return [(await sample(engine, episode=one)).token_ids for one in ("a", "a", "b")]

    assert asyncio.run(play()) == [(1, STOP), (2, STOP), (1, STOP)]


def test_an_empty_answer_is_the_stop_token_alone() -> None:
    answer = asyncio.run(sample(ScriptedEngine([[]])))
    assert (answer.token_ids, answer.finish_reason) == ((STOP,), "stop")


def test_a_long_answer_is_cut_and_a_stop_id_in_it_ends_it() -> None:
    cut = asyncio.run(sample(ScriptedEngine([[1, 2, 3]]), max_tokens=3))
    assert (cut.token_ids, cut.finish_reason) == ((1, 2, 3), "length")
    ended = asyncio.run(sample(ScriptedEngine([[1, STOP, 3]])))
    assert (ended.token_ids, ended.finish_reason) == ((1, STOP), "stop")


def test_stated_logprobs_and_versions_are_given_back() -> None:
    answer = Answer((1, 2), logprobs=(-0.5, -1.0), versions=((0, 3), (1, 4)))
    engine = ScriptedEngine([answer], logprob=-0.25)
    got = asyncio.run(sample(engine))
    assert got == Sample((1, 2, STOP), (-0.5, -1.0, -0.25), ((0, 3), (1, 4)), "stop")


def test_faults_hit_the_call_they_name() -> None:
    waits: list[float] = []

    async def no_clock(seconds: float) -> None:
        waits.append(seconds)

    faults: dict[tuple[str, int], Fault] = {
        ("a", 1): Raise(EngineError("planted")),
        ("a", 2): Delay(5.0),
        ("b", 0): Hang(),
    }
    engine = ScriptedEngine([[1], [2], [3]], faults=faults, sleep=no_clock)

    async def play() -> None:
        assert (await sample(engine)).token_ids == (1, STOP)
        with pytest.raises(EngineError, match="planted"):
            await sample(engine)
        assert (await sample(engine)).token_ids == (3, STOP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sample(engine, episode="b"), 0.01)

    asyncio.run(play())
    assert waits == [5.0]
    assert engine.in_flight == 0


def test_closing_frees_a_hanging_call() -> None:
    engine = ScriptedEngine([[1]], faults=lambda episode, index: Hang())

    async def play() -> None:
        call = asyncio.ensure_future(sample(engine))
        await asyncio.sleep(0.001)
        await engine.aclose()
        with pytest.raises(EngineError, match="closed"):
            await call

    asyncio.run(play())
    assert engine.closed


def test_errors_say_what_to_do() -> None:
    short = ScriptedEngine([[1]])
    asyncio.run(sample(short))
    with pytest.raises(EngineError, match=r"holds 1 answers and call 1 of episode 'a'"):
        asyncio.run(sample(short))
    with pytest.raises(EngineError, match=r"no episode 'a'"):
        asyncio.run(sample(ScriptedEngine({"b": [[1]]})))
    with pytest.raises(EngineError, match=r"2 ids and 1 logprobs"):
        asyncio.run(sample(ScriptedEngine([Answer((1, 2), (0.0,))])))
    with pytest.raises(EngineError, match=r"need 10 tokens, and the context holds 9"):
        asyncio.run(sample(ScriptedEngine([[1]], context_tokens=9)))
    with pytest.raises(EngineError, match=r"no stop ids"):
        asyncio.run(sample(ScriptedEngine([[]]), stop=()))
    with pytest.raises(ConfigError, match="at most 0"):
        ScriptedEngine([], logprob=0.1)
