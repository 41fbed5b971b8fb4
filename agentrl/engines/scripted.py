"""An engine that answers from a script: for tests and demonstrations, without a model.

Deterministic: an answer depends on the episode, the number of its calls so far and the prompt,
never on scheduling. It behaves as a real engine does (stop tokens, ``max_tokens``, versions), keeps
a record of what it was asked, and can be told to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentrl.core.errors import ConfigError, EngineError, nearest
from agentrl.core.trajectory import FinishReason, Sample, Sampling

__all__ = ["Answer", "Call", "Delay", "Fault", "Hang", "Raise", "ScriptedEngine"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with stated log-probabilities (one per id) or weight changes.

    ``versions`` overrides the engine's: ``((start, policy_version), ...)``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """The call raises ``error``."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Hang:
    """The call never returns; it can only be cancelled."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The call waits before it answers."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """What the engine was asked. ``index`` counts the calls of the episode, from 0."""

    episode_id: str
    index: int
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    seed: int


Reply: TypeAlias = Answer | Sequence[int]
Rule: TypeAlias = Callable[[tuple[int, ...], int], Reply]
Fault: TypeAlias = Raise | Hang | Delay


class ScriptedEngine:
    """Answers from a script.

    Args:
        script: One of

            - a function ``(prompt_ids, call_index) -> ids``,
            - a list of answers that every episode plays in order,
            - a mapping from episode id to that episode's list of answers.

            An answer is a sequence of ids or an ``Answer``. If it holds no stop id and there is
            room, the first of the caller's stop ids is appended, as a model would emit it.
        logprob: Log-probability of every token whose answer does not state its own.
        policy_version: Version at the start, see ``set_version``.
        faults: What goes wrong: ``(episode_id, call_index) -> Fault``, as a mapping or a function
            that returns ``None`` where nothing does. A failed call counts: the next one is answered
            from the next place in the script.
        context_tokens: Longest prompt plus answer; ``None``: no limit.
        sleep: Waits for ``Delay``; tests pass their own to keep the clock out.
        model: Ignored; run files give every engine the run's model.

    Attributes:
        calls: Every call, in order of arrival.
        released: Episode ids given to ``release``, in order.
        in_flight: Calls that have not returned.
    """

    def __init__(
        self,
        script: Rule | Sequence[Reply] | Mapping[str, Sequence[Reply]],
        *,
        logprob: float = 0.0,
        policy_version: int = 0,
        faults: Mapping[tuple[str, int], Fault] | Callable[[str, int], Fault | None] | None = None,
        context_tokens: int | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        model: object = None,
    ) -> None:
        if logprob > 0:
            raise ConfigError(f"logprob must be at most 0, got {logprob}")
        self.calls: list[Call] = []
        self.released: list[str] = []
        self.in_flight = 0
        self._script = script
        self._logprob = logprob
        self._version = policy_version
        self._faults = faults
        self._context_tokens = context_tokens
        self._sleep = sleep
        self._counts: dict[str, int] = {}
        self._closed = False
        self._pauses: set[asyncio.Future[None]] = set()

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def closed(self) -> bool:
        return self._closed

    def set_version(self, version: int) -> None:
        """Answers given from now on carry ``version``."""
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
        """Answer from the script.

        Raises:
            EngineError: closed, empty or too long prompt, ``max_tokens`` below 1, or the script has
                no answer for this call. A ``Raise`` fault raises its own error.
        """
        self._check(prompt_ids, sampling)
        index = self._counts.get(episode_id, 0)
        self._counts[episode_id] = index + 1
        call = Call(episode_id, index, tuple(prompt_ids), sampling, tuple(stop_token_ids), seed)
        self.calls.append(call)
        self.in_flight += 1
        try:
            await asyncio.sleep(0)  # a real engine never answers without waiting
            await self._suffer(call)
            return self._answer(call)
        finally:
            self.in_flight -= 1

    def release(self, episode_id: str) -> None:
        """Note that the episode is over; its calls are counted from 0 again."""
        self.released.append(episode_id)
        self._counts.pop(episode_id, None)

    async def aclose(self) -> None:
        """Fail the calls that hang or wait, and every later one."""
        self._closed = True
        for pause in self._pauses:
            if not pause.done():
                pause.set_result(None)

    def _check(self, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        if self._closed:
            raise EngineError("the scripted engine is closed; make a new one")
        if not prompt_ids:
            raise EngineError("the prompt is empty; an engine needs at least one token to go on")
        if sampling.max_tokens < 1:
            raise EngineError(f"max_tokens must be at least 1, got {sampling.max_tokens}")
        wanted = len(prompt_ids) + sampling.max_tokens
        if self._context_tokens is not None and wanted > self._context_tokens:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens and an answer of up to "
                f"{sampling.max_tokens} need {wanted} tokens, and the context holds "
                f"{self._context_tokens}: shorten the history or lower max_tokens"
            )

    async def _suffer(self, call: Call) -> None:
        """Do what the fault of this call says; nothing where there is none."""
        if callable(self._faults):
            fault = self._faults(call.episode_id, call.index)
        else:
            fault = (self._faults or {}).get((call.episode_id, call.index))
        if isinstance(fault, Raise):
            raise fault.error
        if isinstance(fault, Hang):
            await self._pause(None)
        elif isinstance(fault, Delay):
            await self._pause(self._sleep(fault.seconds))

    async def _pause(self, waiting: Awaitable[object] | None) -> None:
        """Wait for ``waiting`` (``None``: for ever), or until the engine is closed."""
        closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(closing)
        waits: list[asyncio.Future[Any]] = [closing]
        if waiting is not None:
            waits.append(asyncio.ensure_future(waiting))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pauses.discard(closing)
            for one in waits:
                one.cancel()
        if self._closed:
            raise EngineError("the scripted engine was closed while this call waited")

    def _answer(self, call: Call) -> Sample:
        reply = self._reply(call)
        stated = reply if isinstance(reply, Answer) else Answer(tuple(reply))
        logprobs = stated.logprobs
        if logprobs is None:
            logprobs = (self._logprob,) * len(stated.token_ids)
        elif len(logprobs) != len(stated.token_ids):
            raise EngineError(
                f"the answer to {_place(call)} has {len(stated.token_ids)} ids and "
                f"{len(logprobs)} logprobs; state one per id"
            )
        ids, finish = _cut(stated.token_ids, call)
        logprobs = (*logprobs, self._logprob)[: len(ids)]
        versions = stated.versions or ((0, self._version),)
        return Sample(ids, logprobs, versions, finish)

    def _reply(self, call: Call) -> Reply:
        script = self._script
        if callable(script):
            return script(call.prompt_ids, call.index)
        if isinstance(script, Mapping):
            if call.episode_id not in script:
                raise EngineError(
                    f"the script has no episode '{call.episode_id}'"
                    f"{nearest(call.episode_id, script)} Known: {', '.join(script) or 'none'}."
                )
            script = script[call.episode_id]
        if call.index >= len(script):
            raise EngineError(
                f"the script holds {len(script)} answers and {_place(call)} wants one more: "
                "write a longer script, or let the episode end earlier"
            )
        return script[call.index]


def _place(call: Call) -> str:
    return f"call {call.index} of episode '{call.episode_id}'"


def _cut(token_ids: tuple[int, ...], call: Call) -> tuple[tuple[int, ...], FinishReason]:
    """End after the first stop id, or at ``max_tokens``, or by an appended stop id."""
    limit = call.sampling.max_tokens
    for place, token in enumerate(token_ids[:limit]):
        if token in call.stop_token_ids:
            return token_ids[: place + 1], "stop"
    if len(token_ids) < limit and call.stop_token_ids:
        return (*token_ids, call.stop_token_ids[0]), "stop"
    if not token_ids:
        raise EngineError(f"the answer to {_place(call)} is empty and the caller gave no stop ids")
    return token_ids[:limit], "length"
