"""Deterministic mode: a request alone and among others gives the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from transformers import PreTrainedModel

from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.hf import HfEngine
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 96


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model(VOCABULARY, hidden_size=64, layers=2, seed=3)


def prompt_of(seed: int | str, length: int) -> list[int]:
    return [derive_seed("prompt", seed, place) % VOCABULARY for place in range(length)]


async def play(engine: HfEngine, name: str, *, length: int, turns: int = 3) -> list[Sample]:
    """An episode whose prompts extend each other; all that is sampled derives from its name."""
    prompt, answers = prompt_of(name, length), []
    for turn in range(turns):
        answer = await engine.sample(
            prompt,
            sampling=Sampling(max_tokens=6),
            stop_token_ids=(0,),
            seed=derive_seed(name, turn),
            episode_id=name,
        )
        answers.append(answer)
        prompt = [*prompt, *answer.token_ids, *prompt_of(f"{name}{turn}", 9)]
    engine.release(name)
    return answers


def together(engine: HfEngine, episodes: Sequence[tuple[str, int]]) -> dict[str, list[Sample]]:
    async def main() -> dict[str, list[Sample]]:
        calls = [play(engine, name, length=length) for name, length in episodes]
        answers = await asyncio.gather(*calls)
        await engine.aclose()
        return dict(zip((name for name, _ in episodes), answers, strict=True))

    return asyncio.run(main())


def test_alone_and_among_fifteen_give_the_same_bits(model: PreTrainedModel) -> None:
    episodes = [(f"episode{number}", 5 + 23 * number) for number in range(16)]

    def engine() -> HfEngine:
        return HfEngine(model, max_batch_size=16, deterministic=True)

    crowd = together(engine(), episodes)
    reversed_crowd = together(engine(), episodes[::-1])
    assert crowd == reversed_crowd
    for name, length in episodes[::3]:
        assert together(engine(), [(name, length)])[name] == crowd[name]


def test_what_was_evicted_or_shared_makes_no_difference(model: PreTrainedModel) -> None:
    # 4 slots for 9 episodes: every turn finds its slot taken by another episode, or in
    # part filled by a copy from one that began in the same way.
    def engine() -> HfEngine:
        return HfEngine(model, max_batch_size=4, deterministic=True)

    crowded = engine()
    # after 60 tokens an answer of 6 completes a piece of 16: it must not be reused
    crowd = together(crowded, [(f"episode{number}", 60) for number in range(9)])
    assert crowded.stats.evictions > 0
    for name in ("episode0", "episode4"):
        assert together(engine(), [(name, 60)])[name] == crowd[name]

    async def same_start(seeds: Sequence[int]) -> list[Sample]:
        sharing, prompt = engine(), prompt_of("shared", 100)
        calls = [
            sharing.sample(
                prompt,
                sampling=Sampling(max_tokens=6),
                stop_token_ids=(),
                seed=seed,
                episode_id=str(seed),
            )
            for seed in seeds
        ]
        answers = await asyncio.gather(*calls)
        assert (sharing.stats.reused_tokens > 0) == (len(seeds) > 1)
        await sharing.aclose()
        return answers

    group = asyncio.run(same_start(range(4)))
    assert [asyncio.run(same_start([seed]))[0] for seed in range(4)] == group


def test_without_it_answers_differ_by_float_noise_only(model: PreTrainedModel) -> None:
    exact = together(HfEngine(model, max_batch_size=16, deterministic=True), [("a", 50), ("b", 80)])
    fast = together(HfEngine(model), [("a", 50), ("b", 80)])
    for name in ("a", "b"):
        for one, other in zip(exact[name], fast[name], strict=True):
            assert one.token_ids == other.token_ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
