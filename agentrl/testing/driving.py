"""How tests drive an engine: prompts by seed, one request, one event loop, a plain forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from agentrl.core.protocols import Engine
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sample, Sampling

__all__ = ["VOCABULARY", "forward_logprobs", "prompt_of", "run", "sample", "until"]

T = TypeVar("T")
VOCABULARY = 48


def prompt_of(seed: int, length: int) -> list[int]:
    """``length`` ids below ``VOCABULARY``, equal for equal seeds."""
    return [derive_seed("prompt", seed, place) % VOCABULARY for place in range(length)]


def sample(
    engine: Engine,
    prompt: Sequence[int],
    *,
    episode: str = "a",
    seed: int = 0,
    stop: tuple[int, ...] = (),
    max_tokens: int = 8,
    temperature: float = 1.0,
) -> Coroutine[Any, Any, Sample]:
    """One request with the defaults of tests."""
    return engine.sample(
        prompt,
        sampling=Sampling(temperature=temperature, max_tokens=max_tokens),
        stop_token_ids=stop,
        seed=seed,
        episode_id=episode,
    )


def run(engine: Engine, work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work`` in a fresh loop, with a deadline, and close the engine."""

    async def main() -> T:
        try:
            async with asyncio.timeout(30):
                return await work()
        finally:
            await engine.aclose()

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Turn the event loop until ``condition`` holds."""
    while not condition():  # noqa: ASYNC110 - the engine has no event for this
        await asyncio.sleep(0)


def forward_logprobs(
    model: Any, prompt: Sequence[int], answer: Sample, temperature: float = 1.0
) -> list[float]:
    """Log-probabilities of an answer by one plain forward pass over the whole sequence."""
    import torch

    ids = [*prompt, *answer.token_ids]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, -1)
    start = len(prompt)
    return [float(logprobs[place - 1, ids[place]]) for place in range(start, len(ids))]
