"""A transformers model in a process of its own: its numbers, its weights, its shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import torch
from transformers import PreTrainedModel

from agentrl.core.trajectory import Sample
from agentrl.engines.hf.hosted import hosted
from agentrl.testing.driving import VOCABULARY, forward_logprobs, prompt_of, sample
from agentrl.testing.tiny_models import tiny_model

DEADLINE_S = 300.0  # it loads torch


def shaken(model: PreTrainedModel, seed: int) -> dict[str, torch.Tensor]:
    """Change the weights in place, as an optimiser does; returns what they were."""
    before = {name: one.clone() for name, one in model.state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=generator))
    return before


@pytest.mark.parametrize("tied", [False, True])
def test_it_samples_from_the_published_weights_whatever_the_learner_does(tied: bool) -> None:
    model = tiny_model(VOCABULARY, hidden_size=32, layers=2, seed=3, max_length=512)
    if tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
    engine = hosted(model, threads=1, policy_version=4, max_batch_size=4)
    prompt = prompt_of(0, 40)

    async def answered(work: Callable[[], Awaitable[list[Sample]]]) -> list[Sample]:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await work()
        finally:
            await engine.aclose()

    async def work() -> list[Sample]:
        return await asyncio.gather(
            *(sample(engine, prompt, episode=str(one), seed=one) for one in range(3))
        )

    async def twice() -> list[Sample]:
        first = await work()
        old = shaken(model, seed=1)
        unpublished = await work()
        for one, other in zip(first, unpublished, strict=True):
            assert one.token_ids == other.token_ids
            assert other.versions == ((0, 4),)
        engine.set_version(5)
        second = await work()
        for answers, version, weights in ((second, 5, None), (first, 4, old)):
            if weights is not None:
                model.load_state_dict(weights)
            for one in answers:
                assert one.versions == ((0, version),)
                expected = forward_logprobs(model, prompt, one)
                assert one.logprobs == pytest.approx(expected, abs=1e-4)
        return second

    asyncio.run(answered(twice))
    assert engine.context_tokens == 512
    assert engine.stats.sampled_tokens == 9 * 8
    assert engine.stats.busy_s > 0
