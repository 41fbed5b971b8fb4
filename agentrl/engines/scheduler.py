"""Continuous batching without tensors: which requests join which forward pass.

A request waits, is given a slot, is prefilled (its prompt's tokens enter the cache), and then takes
one token per forward pass until it ends. After every pass the batch is made anew, so a request
joins at the next token boundary and leaves at its last token. Requests that still need prefilling
go first, in groups of similar length; then all others take their next token together.

Little is computed twice: a prompt that extends what its episode's slot holds costs only the new
tokens, and an episode that begins like another one gets a copy of that one's keys and values
(episodes of a group have the same first prompt).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentrl.engines.slots import Slot, SlotTable
from agentrl.engines.waves import Copy, Drawn, Request, Wave

__all__ = ["Scheduler", "shared_prefix"]

PREFILL_WIDTH = 512  # longest piece of one prompt in one forward pass
FORWARD_TOKENS = 2048  # padded tokens of one prefill pass; more is no faster and blocks longer
FULL_PASS_TOKENS = 256  # from here on another pass is cheaper than padding
SHARED_TOKENS = 32  # shorter shared prefixes are not worth a copy
SMALLEST_WINDOW = 64
FIXED_PIECES = 8  # rows of a prefill pass in deterministic mode
FIXED_ANSWERS = 16  # rows of a decoding pass in deterministic mode


@dataclass(frozen=True, slots=True)
class _Choice:
    """Requests of a pass and its shape, see ``Wave``."""

    requests: list[Request]
    height: int
    width: int
    window: int


class Scheduler:
    """Plans waves and applies what they drew. Lives in the event loop's thread.

    Args:
        slots: Rows of the cache.
        max_batch_size: Most rows of one forward pass.
        keeps_prefix: Whether there is a cache; without one every pass computes whole sequences.
        fixed_width: Deterministic mode: prompts are computed in pieces of exactly this many
            positions, counted from 0. A pass has one of two shapes (a few pieces, or the next token
            of more rows) and a window that depends on a row's own length only. A later turn reuses
            whole pieces, so that its numbers do not depend on what was held.
    """

    def __init__(
        self,
        slots: int,
        *,
        max_batch_size: int,
        keeps_prefix: bool = True,
        fixed_width: int | None = None,
    ) -> None:
        self._table = SlotTable(slots)
        self._max_batch_size = max_batch_size
        self._keeps_prefix = keeps_prefix
        self._fixed_width = fixed_width
        self._waiting: list[Request] = []
        self._active: list[Request] = []
        self._copies: list[Copy] = []
        self._epoch = 0
        self._version: int | None = None
        self.submitted = 0
        self.sampled_tokens = 0
        self.prefilled_tokens = 0
        self.reused_tokens = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._active)

    @property
    def evictions(self) -> int:
        return self._table.evictions

    def submit(self, request: Request) -> None:
        self.submitted += 1
        self._waiting.append(request)

    def release(self, episode_id: str) -> None:
        """Free what is kept for an episode, at once or when its running request ends."""
        self._table.release(episode_id)

    def fail(self, message: str, cause: BaseException | None = None) -> None:
        """Fail every request and forget every slot."""
        for request in (*self._active, *self._waiting):
            request.fail(message, cause)
        self.abandon()

    def abandon(self) -> None:
        """Drop every request without a word (their event loop is gone) and forget every slot."""
        self._active, self._waiting, self._copies = [], [], []
        self._table.clear()

    def next_wave(self, version: int, epoch: int) -> Wave | None:
        """Plan the next forward pass; ``None`` if there is nothing to do.

        Another ``epoch``: what the cache holds is void. Another ``version`` alone: it is kept, by
        those that made it.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._forget()
        elif self._version not in (None, version):
            self._keep_for_their_own()
        self._version = version
        self._drop_the_finished()
        self._admit()
        if not self._active:
            return None
        choice = self._choose()
        copies, self._copies = tuple(self._copies), []
        rows = [(one.row(choice.width), one) for one in choice.requests]
        rows.sort(key=lambda pair: pair[0].slot)
        return Wave(
            requests=tuple(request for _, request in rows),
            rows=tuple(row for row, _ in rows),
            height=choice.height,
            width=choice.width,
            window=choice.window,
            copies=copies,
            version=version,
            epoch=epoch,
        )

    def apply(self, wave: Wave, drawn: Drawn) -> None:
        """Take in what ``wave`` drew; requests that are over leave."""
        broken = False
        for request, row, token, logprob in zip(
            wave.requests, wave.rows, drawn.token_ids, drawn.logprobs, strict=True
        ):
            self.prefilled_tokens += max(0, min(row.end, request.prompt_length) - row.start)
            if request.slot is not None and self._keeps_prefix:
                request.slot.held += row.token_ids
                if len(row.token_ids) == self._fixed_width:
                    request.slot.canonical = row.end
            if not row.draws or request.answer.done():
                continue
            if math.isnan(logprob):
                broken = True
                request.fail(_BROKEN.format(place=row.place, version=wave.version))
            else:
                self.sampled_tokens += 1
                request.take(token, logprob, wave.version)
        if broken:
            self._forget()
        self._drop_the_finished()

    def take_back(self, wave: Wave) -> None:
        """``wave`` was not run, for the weights have changed; the next one is planned anew."""
        self._copies = [*wave.copies, *self._copies]

    def _forget(self) -> None:
        self._table.forget()
        self._copies = []

    def _keep_for_their_own(self) -> None:
        """What is held stays with the requests that run, and is no longer lent to others."""
        self._table.age(void={copy.target for copy in self._copies})
        self._copies = []

    def _drop_the_finished(self) -> None:
        """Requests that are answered, or that nobody waits for, give their slots back."""
        over = [one for one in self._active if one.answer.done()]
        if over:
            self._active = [one for one in self._active if not one.answer.done()]
        for one in over:
            if one.slot is not None:
                self._table.rest(one.slot)

    def _admit(self) -> None:
        """Give slots to waiting requests, in order of arrival."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if request.answer.done():
                continue
            if not self._table.available or not self._admit_one(request):
                self._waiting.append(request)

    def _admit_one(self, request: Request) -> bool:
        """Give ``request`` a slot that holds as much of its prompt as can be had."""
        own = self._table.idle_slot(request.episode_id)
        reuse = self._reusable(own, request) if own and self._keeps_prefix else 0
        donor: Slot | None = None
        if self._keeps_prefix and reuse < SHARED_TOKENS < len(request.tokens):
            donor, best = self._best_donor(request)
            if self._soon(request) >= max(best, reuse) + SHARED_TOKENS:
                return False  # a running prefill will hold much more of this prompt: wait for it
            donor = donor if best >= reuse + SHARED_TOKENS else None
        slot = self._table.acquire(request.episode_id)
        if slot is None:
            return False
        slot.trim(reuse)
        if donor is not None and donor is not slot:
            self._copies.append(Copy(donor.row, slot.row, best))
            slot.held[:], slot.canonical = donor.held[:best], min(donor.canonical, best)
        self.reused_tokens += len(slot.held)
        request.slot = slot
        self._active.append(request)
        return True

    def _reusable(self, slot: Slot, request: Request) -> int:
        """How many tokens that ``slot`` holds can serve ``request``; never its last one."""
        shared = shared_prefix(slot.held, request.tokens)
        return self._whole(min(shared, slot.canonical if self._fixed_width else shared), request)

    def _whole(self, shared: int, request: Request) -> int:
        """``shared`` tokens, less the last one of the prompt, in whole pieces."""
        usable = min(shared, len(request.tokens) - 1)
        return usable // self._fixed_width * self._fixed_width if self._fixed_width else usable

    def _best_donor(self, request: Request) -> tuple[Slot | None, int]:
        """The slot that holds most of this prompt, and how much."""
        head = request.tokens[:SHARED_TOKENS]
        donor, best = None, 0
        for slot in self._table:
            if not slot.old and slot.held[:SHARED_TOKENS] == head:
                reuse = self._reusable(slot, request)
                if reuse > best:
                    donor, best = slot, reuse
        return donor, best

    def _soon(self, request: Request) -> int:
        """How much of this prompt a prefill that runs now will hold."""
        head = request.tokens[:SHARED_TOKENS]
        return max(
            (
                self._whole(shared_prefix(other.tokens, request.tokens), request)
                for other in self._active
                if other.pending > 1
                and other.tokens[:SHARED_TOKENS] == head
                and not (other.slot and other.slot.old)
            ),
            default=0,
        )

    def _choose(self) -> _Choice:
        """What the next pass computes; there is an active request."""
        if self._fixed_width:
            return self._choose_of_one_shape(self._fixed_width)
        if not self._keeps_prefix:
            longest = max(len(one.tokens) for one in self._active)
            most = min(self._max_batch_size, FORWARD_TOKENS // longest)
            return _Choice(self._take_turns(most), 0, longest, 0)
        filling = [one for one in self._active if one.pending > 1]
        if filling:
            return self._choose_of_similar_length(filling)
        return _Choice(self._take_turns(self._max_batch_size), 0, 1, 0)

    def _take_turns(self, most: int) -> list[Request]:
        most = max(most, 1)
        chosen = self._active[:most]
        self._active = self._active[most:] + chosen
        return chosen

    def _choose_of_similar_length(self, filling: list[Request]) -> _Choice:
        """The longest prefill and those that pad little beside it."""
        filling.sort(key=lambda one: -one.pending)
        width = min(filling[0].pending, PREFILL_WIDTH)
        most = max(1, min(self._max_batch_size, FORWARD_TOKENS // width))
        chosen: list[Request] = []
        for one in filling[:most]:
            if 4 * one.pending < 3 * width and len(chosen) * width >= FULL_PASS_TOKENS:
                break
            chosen.append(one)
        return _Choice(chosen, 0, width, 0)

    def _choose_of_one_shape(self, fixed_width: int) -> _Choice:
        """Rows of one shape: the shape is the row's own, never its neighbours'."""
        groups: dict[tuple[int, int], list[Request]] = {}
        for one in self._active:
            answering = one.pending == 1 and len(one.tokens) > one.prompt_length
            width = 1 if answering else fixed_width
            end = len(one.tokens) - one.pending + width
            window = max(SMALLEST_WINDOW, 1 << (end - 1).bit_length())
            groups.setdefault((width, window), []).append(one)

        def height(width: int) -> int:
            return min(FIXED_ANSWERS if width == 1 else FIXED_PIECES, self._max_batch_size)

        def fullness(shape: tuple[int, int]) -> tuple[float, int]:
            return min(1.0, len(groups[shape]) / height(shape[0])), shape[0]

        width, window = max(groups, key=fullness)
        chosen = groups[width, window][: height(width)]
        return _Choice(chosen, height(width), width, window)


_BROKEN = (
    "the model's logits are not numbers (NaN or infinite) at token {place} of the answer, policy "
    "version {version}: its weights are damaged, or the last update diverged. Look at the "
    "learner's gradient norm and learning rate, or load an older checkpoint"
)


def shared_prefix(left: list[int], right: list[int]) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
