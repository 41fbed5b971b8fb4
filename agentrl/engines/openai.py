"""Any OpenAI-compatible endpoint as the policy: to be evaluated, never trained.

It takes messages, not tokens, and tells no log-probabilities of ours. The renderer ``messages``
writes the conversation down as ids and this engine reads it back, so that everything else (the
loop, the store, the report) is the same as for a model of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.completions.client import KEY_VARIABLE, CompletionClient
from agentrl.completions.usage import Usage
from agentrl.completions.written import END, write_messages, written_from
from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import Sample, Sampling

__all__ = ["OpenAIEngine"]


class OpenAIEngine:
    """An endpoint as an engine. Arguments not named here are ``CompletionClient``'s.

    Args:
        model_name: The model's name at the endpoint.
        model: Ignored; run files give every engine the run's model, and here there is none.

    Attributes:
        trainable: False: what is sampled here has no token ids and log-probabilities of ours, so a
            policy cannot be trained on it; to train, use ``hf`` (or a server of one's own).
    """

    trainable = False
    needs_model = False

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        key_variable: str | None = KEY_VARIABLE,
        timeout_s: float = 120.0,
        retries: int = 5,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        prices: Mapping[str, float] | None = None,
        most_cost: float | None = None,
        extra: Mapping[str, Any] | None = None,
        record: str | Path | None = None,
        replay: str | Path | None = None,
        model: object = None,
    ) -> None:
        self._client = CompletionClient(
            model_name,
            base_url=base_url,
            key_variable=key_variable,
            timeout_s=timeout_s,
            retries=retries,
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            prices=prices,
            most_cost=most_cost,
            extra=extra,
            record=record,
            replay=replay,
        )

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost so far."""
        return self._client.usage

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        """The endpoint's answer, written down; its log-probabilities are NaN: nobody knows them.

        Raises:
            EngineError: the endpoint could not answer.
            ConfigError: no request can be answered (a wrong key or model, the cost is reached), or
                the prompt is not one of the renderer ``messages``.
        """
        if sampling.top_k:
            raise ConfigError(
                f"engine openai: sampling.top_k={sampling.top_k} is not offered there"
            )
        try:
            messages, tools = written_from(prompt_ids)
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                "engine openai takes messages, not tokens: set agent.renderer: {name: messages}"
            ) from None
        got = await self._client.complete(
            messages,
            tools,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=seed,
        )
        ids = tuple(write_messages([got.message]))
        if got.finish_reason == "stop":
            ids = (*ids, END)
        return Sample(ids, (math.nan,) * len(ids), ((0, 0),), got.finish_reason)

    def release(self, episode_id: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        await self._client.aclose()
