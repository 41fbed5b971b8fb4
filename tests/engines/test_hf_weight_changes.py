"""New weights while answers are under way: what is kept, what is computed again, what is lent."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import PreTrainedModel

from agentrl.core.trajectory import Sample
from agentrl.engines.hf import HfEngine
from agentrl.testing.driving import VOCABULARY, forward_logprobs, prompt_of, run, sample, until
from agentrl.testing.tiny_models import tiny_model

PROMPT = prompt_of(0, 100)


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_model(VOCABULARY, hidden_size=32, layers=2, seed=3, max_length=512)


def shake(model: PreTrainedModel) -> None:
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.05 * torch.sin(torch.arange(one.numel()).reshape(one.shape)))


def changed_in_the_middle(engine: HfEngine, model: PreTrainedModel) -> tuple[Sample, Sample, int]:
    """An answer with new weights in its middle, one of an episode that follows, prefilled ids."""

    async def play() -> tuple[Sample, Sample, int]:
        call = asyncio.ensure_future(sample(engine, PROMPT, max_tokens=200))
        await until(lambda: engine.stats.sampled_tokens >= 50)
        prefilled = engine.stats.prefilled_tokens
        with engine.changing_weights(1):
            shake(model)
        whole = await call
        again = engine.stats.prefilled_tokens - prefilled
        return whole, await sample(engine, PROMPT, episode="b", seed=1), again

    return run(engine, play)


@pytest.mark.parametrize("keep", [False, True])
def test_an_answer_goes_on_with_new_weights_in_a_second_span(
    model: PreTrainedModel, keep: bool
) -> None:
    engine = HfEngine(model, max_batch_size=4, keep_cache=keep)
    whole, after, again = changed_in_the_middle(engine, model)
    assert len(whole.token_ids) == len(whole.logprobs) == 200
    (first, old), (start, new) = whole.versions
    assert (first, old, new) == (0, 0, 1)
    assert 50 <= start < 200
    assert again == (0 if keep else len(PROMPT))
    expected = forward_logprobs(model, PROMPT, whole)[start:]
    if keep:
        # Keys and values before the change are of the old weights: no version gives these again.
        assert whole.logprobs[start:] != pytest.approx(expected, abs=1e-2)
    else:
        assert whole.logprobs[start:] == pytest.approx(expected, abs=1e-4)
    # What old weights made is lent to nobody: another episode has the new weights alone.
    assert after.versions == ((0, 1),)
    assert after.logprobs == pytest.approx(forward_logprobs(model, PROMPT, after), abs=1e-4)


def test_an_episode_between_two_turns_is_computed_anew_even_where_the_cache_is_kept(
    model: PreTrainedModel,
) -> None:
    engine = HfEngine(model, max_batch_size=4, keep_cache=True)

    async def play() -> tuple[list[int], Sample]:
        first = await sample(engine, PROMPT)
        with engine.changing_weights(1):
            shake(model)
        prompt = [*PROMPT, *first.token_ids, 5, 6]
        return prompt, await sample(engine, prompt)

    prompt, second = run(engine, play)
    assert second.versions == ((0, 1),)
    assert second.logprobs == pytest.approx(forward_logprobs(model, prompt, second), abs=1e-4)


def test_weights_published_twice_as_one_version_are_new_both_times(model: PreTrainedModel) -> None:
    engine = HfEngine(model, max_batch_size=4, keep_cache=True)

    async def play() -> Sample:
        await sample(engine, PROMPT)
        with engine.changing_weights(0):
            shake(model)
        return await sample(engine, PROMPT, seed=1)

    second = run(engine, play)
    assert second.logprobs == pytest.approx(forward_logprobs(model, PROMPT, second), abs=1e-4)


@pytest.mark.parametrize("keep", [False, True])
def test_weights_that_change_at_every_moment_break_no_answer(
    model: PreTrainedModel, keep: bool
) -> None:
    # Many prompts with a shared beginning: prefixes are being copied when the weights change.
    engine = HfEngine(model, max_batch_size=4, slots=6, keep_cache=keep)
    prompts = [[*PROMPT[:60], *prompt_of(one, 5)] for one in range(24)]

    async def play() -> list[Sample]:
        calls = [
            asyncio.ensure_future(sample(engine, one, episode=str(place), seed=place))
            for place, one in enumerate(prompts)
        ]
        version = 0
        while not all(call.done() for call in calls):
            version += 1
            await asyncio.to_thread(engine.set_version, version)
            await asyncio.sleep(0)
        return [call.result() for call in calls]

    # The weights are the same each time, so every answer must be as if nothing had happened.
    for prompt, answer in zip(prompts, run(engine, play), strict=True):
        assert answer.logprobs == pytest.approx(forward_logprobs(model, prompt, answer), abs=1e-4)
        starts = [start for start, _ in answer.versions]
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        assert starts[-1] < len(answer.token_ids)
