"""One answer of a vLLM server: token ids go out; ids, log-probabilities and versions come back.

The route is vLLM's own for whoever has token ids (``/inference/v1/generate``); nothing is encoded
or decoded. No seed is sent: a request with a seed can end the engine of vLLM's build for CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.errors import EngineError
from agentrl.core.trajectory import FinishReason, Sample, Sampling

__all__ = ["ROUTE", "refusal", "request_of", "sample_of"]

ROUTE = "/inference/v1/generate"
_LONGEST = 2_000  # characters of a server's own words


def request_of(
    name: str, prompt_ids: Sequence[int], sampling: Sampling, stop_token_ids: Sequence[int]
) -> dict[str, Any]:
    """What is asked.

    Args:
        name: Of the model or adapter at the server.
        prompt_ids: Ids of the whole prompt.
        sampling: How to sample.
        stop_token_ids: Ids after which the answer is over; the model's own end is none of them
            unless it is named.
    """
    told = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "logprobs": 0,  # of the sampled token alone
        "ignore_eos": True,
        "stop_token_ids": list(stop_token_ids),
    }
    if sampling.top_k:
        told["top_k"] = sampling.top_k
    return {"model": name, "token_ids": list(prompt_ids), "sampling_params": told}


def sample_of(data: Any, url: str, version: int | None) -> Sample | None:
    """The sample in an answer; ``None``: the server was told to give the request up.

    Args:
        data: The answer, as JSON.
        url: Of the server, for messages.
        version: Of the weights that were asked for by name; ``None``: what the server says of each
            span of the answer.

    Raises:
        EngineError: it is no such answer, or its parts do not belong together.
    """
    try:
        (choice,) = data["choices"]
        reason = choice["finish_reason"]
        if reason == "abort":
            return None
        ids = tuple(int(one) for one in choice["token_ids"])
        logprobs = tuple(float(one["logprob"]) for one in choice["logprobs"]["content"])
        spans = ((0, version),) if version is not None else _spans(choice["weight_versions"])
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"the server {url} gave an answer that is not understood ({error!r}): "
            f"{str(data)[:_LONGEST]}. Is it a vLLM that agentrl supports, started with "
            "--enable-scale-out?"
        ) from error
    if not ids or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise EngineError(
            f"the server {url} gave {len(ids)} tokens with {len(logprobs)} log-probabilities, of "
            f"which {sum(map(math.isfinite, logprobs))} are finite; expected one for each of at "
            "least one token"
        )
    kind: FinishReason = "stop" if reason == "stop" else "length"
    return Sample(ids, logprobs, spans, kind)


def _spans(told: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int], ...]:
    """``((start, version), ...)``; weights that nobody has numbered are version 0."""
    spans: list[tuple[int, int]] = []
    for one in told:
        start, word = int(one["start"]), str(one["version"])
        version = int(word) if word.isdigit() else 0
        if not spans or spans[-1][1] != version:
            spans.append((start, version))
    if not spans or spans[0][0] != 0 or any(a[0] >= b[0] for a, b in zip(spans, spans[1:])):  # noqa: B905, RUF007
        raise ValueError(f"spans of versions that do not begin with token 0 and go up: {told}")
    return tuple(spans)


def refusal(url: str, code: int, text: str) -> str:
    """What a server says where it does not answer."""
    hint = (
        ". It takes token ids only if it was started with --enable-scale-out, and is asked for the "
        "model policy: --served-model-name policy"
    )
    words = f"the server {url} answered a request with {code}: {text.strip()[:_LONGEST]}"
    return words + hint * (code == 404)
