"""``HfEngine``: samples from a transformers causal language model in this process.

Hundreds of episodes call ``sample`` from one event loop. A task in that loop plans one forward pass
after another (``engines.scheduler``); each runs in one worker thread, so the loop is never blocked
by torch. The model is shared with the learner: nothing of it is changed, its mode is put back after
every pass, and ``set_version`` says that its weights are new.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import ConfigError, EngineError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.hf.drawing import stream_key
from agentrl.engines.hf.forward import CachedRunner, PlainRunner
from agentrl.engines.hf.support import context_of, why_not_cached
from agentrl.engines.scheduler import Scheduler
from agentrl.engines.waves import Drawn, Request, Runner, Wave

__all__ = ["EngineStats", "HfEngine"]

FIXED_WIDTH = 16  # positions of a prefill piece in deterministic mode
_QUIET_TURNS = 3  # turns of the event loop without a new request, before a pass begins
_MOST_TURNS = 64


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine has done since it was made.

    Attributes:
        requests: Calls of ``sample`` that were accepted.
        sampled_tokens: Tokens drawn. prefilled_tokens: prompt tokens computed.
        reused_tokens: Prompt tokens that were in the cache already.
        evictions: Idle episodes whose slot was given to another.
        forwards: Forward passes. busy_s: seconds spent in them.
        mean_batch: Mean number of requests in a pass.
    """

    requests: int
    sampled_tokens: int
    prefilled_tokens: int
    reused_tokens: int
    evictions: int
    forwards: int
    busy_s: float
    mean_batch: float


class HfEngine:
    """Samples from a transformers causal language model.

    Log-probabilities are those of the full distribution at the sampling temperature, whatever
    ``top_p`` and ``top_k`` leave; at temperature 0 (greedy) those of temperature 1.

    Keys and values of an episode stay in its slot between turns, until ``release``. If slots run
    out, the episode that has been idle for longest loses its own and is prefilled again later:
    have as many slots as concurrent episodes. A model that the cache cannot serve is computed whole
    for every token, with one ``RuntimeWarning`` that says why.

    Args:
        model: A causal language model of transformers (or wrapped by peft).
        max_batch_size: Most sequences of one forward pass.
        slots: Episodes whose keys and values are kept; default ``max_batch_size``.
        context_tokens: Longest prompt plus answer; default: what the model's configuration says.
            Memory grows with use, by doubling, never beyond this.
        policy_version: Version of the weights now.
        keep_cache: Answers under way keep their keys and values when the weights change (no prefill
            again). Their further tokens then come from a mix of old and new weights, which no
            single version gives again; their log-probabilities are those they were drawn with.
            Nothing that the old weights made is used for another episode.
        deterministic: Every forward pass has a fixed shape that does not depend on who is in it, so
            a request alone and among others gives the same bits. Slower.
        device: Where to move the model; default: where it is.
        clock: For ``stats.busy_s``.

    Raises:
        ConfigError: sizes that make no sense, or a deterministic engine of a model that the cache
            cannot serve.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_batch_size: int = 128,
        slots: int | None = None,
        context_tokens: int | None = None,
        policy_version: int = 0,
        keep_cache: bool = False,
        deterministic: bool = False,
        device: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        slots = max_batch_size if slots is None else slots
        longest = context_of(model)
        self.context_tokens = longest if context_tokens is None else context_tokens
        _check_sizes(max_batch_size, slots, self.context_tokens, longest)
        if device is not None:
            model.to(device)
        self._vocabulary_size = int(model.get_input_embeddings().num_embeddings)
        self._runner = _runner(model, slots, self.context_tokens, deterministic)
        self._scheduler = Scheduler(
            slots,
            max_batch_size=max_batch_size,
            keeps_prefix=self._runner.keeps_prefix,
            fixed_width=FIXED_WIDTH if deterministic else None,
        )
        self._version, self._epoch = policy_version, 0
        self._keep_cache = keep_cache and self._runner.keeps_prefix and not deterministic
        self._weights = threading.Lock()  # held during a pass, and while weights change
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hf-engine")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._clock = clock
        self._forwards = self._rows = 0
        self._busy_s = 0.0

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def stats(self) -> EngineStats:
        plan = self._scheduler
        return EngineStats(
            requests=plan.submitted,
            sampled_tokens=plan.sampled_tokens,
            prefilled_tokens=plan.prefilled_tokens,
            reused_tokens=plan.reused_tokens,
            evictions=plan.evictions,
            forwards=self._forwards,
            busy_s=self._busy_s,
            mean_batch=self._rows / self._forwards if self._forwards else 0.0,
        )

    def set_version(self, version: int) -> None:
        """The model's weights are new. Drops every key and value that the old ones made.

        Answers under way are prefilled again (unless ``keep_cache``) and go on with the new
        weights; their ``versions`` then have another span. Waits for a running forward pass; may be
        called from any thread.
        """
        with self.changing_weights(version):
            pass

    @contextmanager
    def changing_weights(self, version: int) -> Iterator[None]:
        """No forward pass runs inside: change weights here while episodes may be in flight."""
        with self._weights:
            try:
                yield
            finally:
                self._epoch += not (self._keep_cache and version != self._version)
                self._version = version

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        """Sample an answer; cancelling the call frees its place in the batch.

        The tokens are a function of (prompt, sampling, seed, weights), up to float noise.

        Raises:
            EngineError: the engine is closed or was closed meanwhile; an empty prompt; ids outside
                the vocabulary; prompt plus ``max_tokens`` exceed the context; the model's logits
                are not numbers; the forward pass failed.
        """
        tokens = self._checked(prompt_ids, sampling)
        loop = self._join_loop()
        request = Request(
            tokens=tokens,
            sampling=sampling,
            stop_token_ids=frozenset(stop_token_ids),
            key=stream_key(seed),
            episode_id=episode_id,
            answer=loop.create_future(),
        )
        self._scheduler.submit(request)
        if self._pump is None or self._pump.done():
            self._pump = loop.create_task(self._work(), name="hf-engine")
        return await request.answer

    def release(self, episode_id: str) -> None:
        """Free the slot of an episode that is over. Unknown ids are fine."""
        self._scheduler.release(episode_id)

    async def aclose(self) -> None:
        """Fail pending calls, wait for the running forward pass, end the worker."""
        if not self._closed:
            self._closed = True
            self._scheduler.fail("the engine was closed while this call waited")
        pump = self._pump
        if pump is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait([pump])
        self._thread.shutdown()

    def _checked(self, prompt_ids: Sequence[int], sampling: Sampling) -> list[int]:
        tokens = list(prompt_ids)
        if self._closed:
            raise EngineError("the engine is closed; make a new one")
        if not tokens:
            raise EngineError("the prompt is empty; a model needs at least one token to go on")
        _check_sampling(sampling)
        if len(tokens) + sampling.max_tokens > self.context_tokens:
            raise EngineError(
                f"a prompt of {len(tokens)} tokens and an answer of up to {sampling.max_tokens} "
                f"need {len(tokens) + sampling.max_tokens} tokens, and the context holds "
                f"{self.context_tokens}: shorten the history, lower max_tokens, or raise the "
                "engine's context_tokens"
            )
        if min(tokens) < 0 or max(tokens) >= self._vocabulary_size:
            wrong = next(one for one in tokens if not 0 <= one < self._vocabulary_size)
            raise EngineError(
                f"token id {wrong} at position {tokens.index(wrong)} of the prompt is outside the "
                f"model's vocabulary of {self._vocabulary_size}: do tokenizer and model belong "
                "together?"
            )
        return tokens

    def _join_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; an engine serves one loop at a time."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._scheduler.busy:
                if not self._loop.is_closed():
                    raise EngineError(
                        "the engine is in use by another event loop; call it from one loop, or "
                        "make an engine per loop"
                    )
                self._scheduler.abandon()
            self._loop, self._pump = loop, None
        return loop

    async def _work(self) -> None:
        """One forward pass after another, until nobody waits."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._let_episodes_go_on()
                wave = self._scheduler.next_wave(self._version, self._epoch)
                if wave is None:
                    return
                drawn = await loop.run_in_executor(self._thread, self._forward, wave)
                if drawn is None:
                    self._scheduler.take_back(wave)
                else:
                    self._scheduler.apply(wave, drawn)
        except asyncio.CancelledError:
            self._scheduler.fail("the event loop cancelled the engine's task")
            raise
        except Exception as error:
            self._scheduler.fail(
                f"the model's forward pass failed with {type(error).__name__}: {error}. If memory "
                "ran out, lower slots or context_tokens",
                error,
            )

    async def _let_episodes_go_on(self) -> None:
        """Turn the event loop until no new request arrives, so that they share a pass."""
        quiet = 0
        for _ in range(_MOST_TURNS):
            seen = self._scheduler.submitted
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._scheduler.submitted == seen else 0
            if quiet == _QUIET_TURNS:
                return

    def _forward(self, wave: Wave) -> Drawn | None:
        """Run ``wave`` in the worker thread; ``None`` if the weights have changed since."""
        with self._weights:
            if (wave.epoch, wave.version) != (self._epoch, self._version):
                return None
            started = self._clock()
            drawn = self._runner.run(wave)
            self._busy_s += self._clock() - started
            self._forwards += 1
            self._rows += len(wave.rows)
            return drawn


def _runner(model: Any, slots: int, context_tokens: int, deterministic: bool) -> Runner:
    reason = why_not_cached(model, context_tokens)
    if reason is None:
        return CachedRunner(model, slots=slots)
    name = type(model).__name__
    if deterministic:
        raise ConfigError(
            f"deterministic=True needs the engine's cache, and {name} cannot use it: {reason}"
        )
    warnings.warn(
        f"{name} cannot use the engine's key/value cache: {reason}. Every token is computed from "
        "the whole sequence, which is right but slow",
        RuntimeWarning,
        stacklevel=3,
    )
    return PlainRunner(model)


def _check_sampling(sampling: Sampling) -> None:
    if sampling.max_tokens < 1:
        raise EngineError(f"max_tokens must be at least 1, got {sampling.max_tokens}")
    if not 0 <= sampling.temperature < math.inf:
        raise EngineError(f"temperature must be 0 or a positive number, got {sampling.temperature}")
    if not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
        raise EngineError(
            f"top_p must lie in (0, 1] and top_k be 0 (off) or positive, got top_p="
            f"{sampling.top_p} and top_k={sampling.top_k}"
        )


def _check_sizes(max_batch_size: int, slots: int, context_tokens: int, longest: int) -> None:
    for name, value in (("max_batch_size", max_batch_size), ("slots", slots)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    if not 2 <= context_tokens <= longest:
        raise ConfigError(
            f"context_tokens must lie between 2 and the {longest} positions that the model's "
            f"configuration names, got {context_tokens}"
        )
