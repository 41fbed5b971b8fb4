"""What passes between an engine's scheduler and what makes its forward passes. No tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentrl.core.errors import EngineError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.slots import Slot

__all__ = ["Copy", "Drawn", "Request", "Row", "Runner", "Wave"]


@dataclass(slots=True, eq=False)
class Request:
    """One call of ``sample`` on its way. Once its ``answer`` is done it is dropped.

    Attributes:
        tokens: The prompt, and what was sampled so far behind it.
        prompt_length: Length of the prompt.
        key: Names the stream of random numbers.
        versions: Spans of policy versions, as in ``Sample``.
    """

    tokens: list[int]
    sampling: Sampling
    stop_token_ids: frozenset[int]
    key: int
    episode_id: str
    answer: asyncio.Future[Sample]
    prompt_length: int = field(init=False)
    logprobs: list[float] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)
    slot: Slot | None = None

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)

    @property
    def pending(self) -> int:
        """Tokens that are not in the cache yet."""
        return len(self.tokens) - (len(self.slot.held) if self.slot else 0)

    def row(self, width: int) -> Row:
        """The next up to ``width`` pending tokens."""
        assert self.slot is not None, "a request without a slot was put into a wave"
        start = len(self.slot.held)
        tokens = self.tokens[start : start + width]
        return Row(
            slot=self.slot.row,
            start=start,
            token_ids=tokens,
            draws=start + len(tokens) == len(self.tokens),
            sampling=self.sampling,
            key=self.key,
            place=len(self.logprobs),
        )

    def take(self, token: int, logprob: float, version: int) -> None:
        """Add a sampled token; give the answer if it ends here."""
        if not self.versions or self.versions[-1][1] != version:
            self.versions.append((len(self.logprobs), version))
        self.tokens.append(token)
        self.logprobs.append(logprob)
        stopped = token in self.stop_token_ids
        if stopped or len(self.logprobs) == self.sampling.max_tokens:
            answer = Sample(
                token_ids=tuple(self.tokens[self.prompt_length :]),
                logprobs=tuple(self.logprobs),
                versions=tuple(self.versions),
                finish_reason="stop" if stopped else "length",
            )
            self.answer.set_result(answer)

    def fail(self, message: str, cause: BaseException | None = None) -> None:
        """End with an EngineError, unless it has ended already."""
        if not self.answer.done():
            error = EngineError(message)
            error.__cause__ = cause
            self.answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class Row:
    """One request's part of a forward pass.

    Attributes:
        slot: Row of the cache. start: position of the first token.
        token_ids: Tokens to compute.
        draws: Whether the next token is drawn after the last of them.
        sampling, key, place: How to draw; ``place`` is the number of the token in the answer.
    """

    slot: int
    start: int
    token_ids: list[int]
    draws: bool
    sampling: Sampling
    key: int
    place: int

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the first ``length`` positions of cache row ``source`` to row ``target``."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Wave:
    """One forward pass. ``rows`` are in the order of their slots, aligned with ``requests``.

    Attributes:
        height: Rows that the pass is padded to; 0: as many as there are.
        width: Positions of every row, shorter ones are padded.
        window: Cached positions that are looked at; 0: as few as will do.
        copies: To be made before, in order.
        version: Policy version when it was planned.
        epoch: Number of weight changes when it was planned; a change since makes it void.
    """

    requests: tuple[Request, ...]
    rows: tuple[Row, ...]
    height: int
    width: int
    window: int
    copies: tuple[Copy, ...]
    version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a forward pass drew, aligned with the rows; NaN log-probability: the model is broken."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]


class Runner(Protocol):
    """Makes forward passes. Synchronous: it runs in a worker thread."""

    @property
    def keeps_prefix(self) -> bool:
        """False: there is no cache, and every row is a whole sequence from position 0."""
        ...

    def run(self, wave: Wave) -> Drawn: ...
