"""The in-process engine on bad days: cancellation, broken models, crashes, closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from agentrl.core.errors import ConfigError, EngineError
from agentrl.core.trajectory import Sample
from agentrl.engines.hf import HfEngine
from agentrl.testing.driving import VOCABULARY, forward_logprobs, prompt_of, run, sample, until
from agentrl.testing.tiny_models import tiny_model

STOP = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model(VOCABULARY, hidden_size=32, layers=2, seed=3, max_length=512)


def test_cancelling_anywhere_frees_the_slot_and_harms_nobody(model: PreTrainedModel) -> None:
    engine = HfEngine(model, max_batch_size=2)
    prompts = {name: prompt_of(number, 20) for number, name in enumerate("abc")}

    async def play() -> None:
        alone = {
            name: (await sample(engine, prompt, episode=f"{name}0", max_tokens=6)).token_ids
            for name, prompt in prompts.items()
        }
        for number in range(40):
            passes, turns = number // 4, number % 4
            begun = engine.stats.forwards
            calls = {  # the third waits for a slot
                name: asyncio.ensure_future(sample(engine, prompt, episode=name, max_tokens=6))
                for name, prompt in prompts.items()
            }
            await until(lambda: engine.stats.forwards >= begun + passes)  # noqa: B023
            for _ in range(turns):
                await asyncio.sleep(0)
            victim = "abc"[number % 3]
            calls[victim].cancel()
            for name, call in calls.items():
                outcome = (await asyncio.gather(call, return_exceptions=True))[0]
                if name != victim or isinstance(outcome, Sample):
                    assert isinstance(outcome, Sample)
                    assert outcome.token_ids == alone[name]
            again = await sample(engine, prompts[victim], episode=victim, max_tokens=6)
            assert again.token_ids == alone[victim]
            for name in calls:
                engine.release(name)

    run(engine, play)


def test_nothing_is_sampled_for_a_cancelled_call(model: PreTrainedModel) -> None:
    engine = HfEngine(model)

    async def play() -> int:
        call = asyncio.ensure_future(sample(engine, [5, 6], max_tokens=400))
        await until(lambda: engine.stats.sampled_tokens >= 3)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        sampled = engine.stats.sampled_tokens
        await sample(engine, [5, 6], episode="b", max_tokens=1)
        return engine.stats.sampled_tokens - sampled

    assert run(engine, play) == 1


def test_logits_that_are_not_numbers_are_an_error_in_words() -> None:
    rubbish = tiny_model(VOCABULARY, seed=1)
    good = {name: one.clone() for name, one in rubbish.state_dict().items()}
    rubbish.model.norm.weight.data.fill_(float("nan"))
    engine, prompt = HfEngine(rubbish), prompt_of(0, 20)

    async def play() -> Sample:
        calls = [sample(engine, prompt, episode=str(one)) for one in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for one in outcomes:
            assert isinstance(one, EngineError)
            assert "not numbers (NaN or infinite)" in str(one)
            assert "policy version 0" in str(one)
        rubbish.load_state_dict(good)
        engine.set_version(1)
        return await sample(engine, prompt)

    answer = run(engine, play)
    assert answer.logprobs == pytest.approx(forward_logprobs(rubbish, prompt, answer), abs=1e-4)


def test_nan_in_one_episode_leaves_no_trace_in_another() -> None:
    poisoned = tiny_model(VOCABULARY, seed=1)
    poisoned.model.embed_tokens.weight.data[9] = float("nan")
    poisoned.lm_head.weight = torch.nn.Parameter(tiny_model(VOCABULARY).lm_head.weight.detach())
    engine, healthy = HfEngine(poisoned, max_batch_size=1), [5, 6, 7]

    async def play() -> Sample:
        with pytest.raises(EngineError, match="NaN"):
            await sample(engine, [5, 9] * 20)
        return await sample(engine, healthy, episode="b", max_tokens=1)

    answer = run(engine, play)
    expected = forward_logprobs(poisoned, healthy, answer)
    assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_crash_in_the_worker_reaches_every_caller_and_the_engine_goes_on() -> None:
    crashing = tiny_model(VOCABULARY, seed=1)
    engine = HfEngine(crashing, max_batch_size=2)
    crash = [True]

    def before(module: torch.nn.Module, inputs: Any) -> None:
        if crash[0]:
            raise RuntimeError("out of imaginary memory")

    crashing.register_forward_pre_hook(before)

    async def play() -> Sample:
        calls = [sample(engine, [1, 2], episode=str(one)) for one in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for one in outcomes:
            assert isinstance(one, EngineError)
            assert "RuntimeError: out of imaginary memory" in str(one)
            assert isinstance(one.__cause__, RuntimeError)
        crash[0] = False
        return await sample(engine, [1, 2])

    assert len(run(engine, play).token_ids) == 8


def test_impossible_requests_are_refused_with_numbers(model: PreTrainedModel) -> None:
    engine = HfEngine(model, context_tokens=20)

    async def play() -> None:
        for prompt, limit, words in (
            ([], 4, "prompt is empty"),
            ([1] * 17, 4, "need 21 tokens, and the context holds 20"),
            ([1, 99], 4, "token id 99 at position 1 .* vocabulary of 48"),
            ([1, -1], 4, "token id -1 at position 1"),
            ([1], 0, "max_tokens must be at least 1, got 0"),
        ):
            with pytest.raises(EngineError, match=words):
                await sample(engine, prompt, max_tokens=limit)
        with pytest.raises(EngineError, match="temperature"):
            await sample(engine, [1], temperature=-1.0)
        assert len((await sample(engine, [1] * 16, max_tokens=4)).token_ids) == 4

    run(engine, play)
    with pytest.raises(ConfigError, match="between 2 and the 512 positions"):
        HfEngine(model, context_tokens=513)
    with pytest.raises(ConfigError, match="max_batch_size must be at least 1, got 0"):
        HfEngine(model, max_batch_size=0)


def test_an_engine_serves_one_loop_after_another(model: PreTrainedModel) -> None:
    engine, prompt = HfEngine(model), prompt_of(0, 9)
    first = asyncio.run(sample(engine, prompt))

    async def leave_in_the_middle() -> asyncio.Task[Sample]:
        call = asyncio.create_task(sample(engine, prompt, max_tokens=400))
        begun = engine.stats.sampled_tokens
        await until(lambda: engine.stats.sampled_tokens > begun)
        return call

    left = asyncio.run(leave_in_the_middle())  # cancels what still runs, the engine's task too
    assert left.cancelled()
    abandoned = asyncio.new_event_loop()
    left = abandoned.run_until_complete(leave_in_the_middle())
    abandoned.close()  # with a call in it that can never return
    assert run(engine, lambda: sample(engine, prompt)).token_ids == first.token_ids
    assert not left.done()


def test_two_loops_at_once_are_refused(model: PreTrainedModel) -> None:
    engine = HfEngine(model)

    async def play() -> None:
        call = asyncio.ensure_future(sample(engine, [1], max_tokens=50))
        await until(lambda: engine.stats.requests > 0)
        other = asyncio.to_thread(lambda: asyncio.run(sample(engine, [1])))
        with pytest.raises(EngineError, match="in use by another event loop"):
            await other
        await call

    run(engine, play)


def test_closing_fails_what_waits_and_ends_the_thread(model: PreTrainedModel) -> None:
    engine = HfEngine(model, max_batch_size=1)

    async def play() -> None:
        calls = [
            asyncio.ensure_future(sample(engine, [1], episode=str(one), max_tokens=400))
            for one in range(3)
        ]
        await until(lambda: engine.stats.forwards > 0)
        await engine.aclose()
        await engine.aclose()
        for call in calls:
            with pytest.raises(EngineError, match="closed while this call waited"):
                await call
        with pytest.raises(EngineError, match="engine is closed"):
            await sample(engine, [1])

    run(engine, play)
