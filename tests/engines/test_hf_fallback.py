"""Which models the cache serves, and that the others are still right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.hf import HfEngine

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 7, 1, 8], [1]]


def seeded(build: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().eval()


def mistral() -> Any:
    """Every layer looks back 6 tokens."""
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            sliding_window=6,
            initializer_range=0.3,
        )
    )


def bloom() -> Any:
    """Positions enter as a bias of the attention (ALiBi), not as given positions."""
    return BloomForCausalLM(
        BloomConfig(vocab_size=32, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3)
    )


def gpt2() -> Any:
    """Learned positions; no grouped heads."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def llama_in_bfloat16() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            max_position_embeddings=64,
        )
    ).to(torch.bfloat16)


def answers(engine: HfEngine) -> list[Sample]:
    async def main() -> list[Sample]:
        calls = [
            engine.sample(
                prompt,
                sampling=Sampling(max_tokens=12),
                stop_token_ids=(0,),
                seed=number,
                episode_id=str(number),
            )
            for number, prompt in enumerate(PROMPTS)
        ]
        found = await asyncio.gather(*calls)
        await engine.aclose()
        return found

    return asyncio.run(main())


def assert_right(model: Any, found: list[Sample], tolerance: float) -> None:
    for prompt, answer in zip(PROMPTS, found, strict=True):
        ids = [*prompt, *answer.token_ids]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
        logprobs = torch.log_softmax(logits, -1)
        expected = [float(logprobs[at - 1, ids[at]]) for at in range(len(prompt), len(ids))]
        assert answer.logprobs == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("build", "tolerance"), [(gpt2, 1e-4), (llama_in_bfloat16, 3e-2)])
def test_models_of_other_families_use_the_cache(build: Callable[[], Any], tolerance: float) -> None:
    model = seeded(build)
    engine = HfEngine(model)
    found = answers(engine)
    assert_right(model, found, tolerance)
    sampled = sum(len(one.token_ids) for one in found)
    assert engine.stats.prefilled_tokens == sum(map(len, PROMPTS))
    assert engine.stats.sampled_tokens == sampled


@pytest.mark.parametrize(
    ("build", "reason"),
    [(mistral, "looks back 6 tokens only and the context is 64"), (bloom, "cache")],
)
def test_models_the_cache_cannot_serve_are_computed_whole_after_one_warning(
    build: Callable[[], Any], reason: str
) -> None:
    model = seeded(build)
    with pytest.warns(RuntimeWarning, match=reason) as seen:
        engine = HfEngine(model)
    assert len(seen) == 1
    found = answers(engine)  # a second warning would be an error
    assert_right(model, found, 1e-4)
    assert engine.stats.reused_tokens == 0
    with pytest.raises(ConfigError, match="deterministic=True needs the engine's cache"):
        HfEngine(model, deterministic=True)


def test_a_context_within_the_window_is_served_from_the_cache() -> None:
    model = seeded(mistral)
    HfEngine(model, context_tokens=6)  # a warning would be an error
