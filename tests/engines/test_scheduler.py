"""The scheduler against a model of the cache: whatever happens, rows hold what they should."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given, settings

from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sampling
from agentrl.engines.scheduler import Scheduler, shared_prefix
from agentrl.engines.waves import Drawn, Request, Wave

VOCABULARY = 5
STOP = 0


def next_token(tokens: list[int]) -> int:
    """A language model whose next token is a function of everything before it."""
    return derive_seed(*tokens) % VOCABULARY


def answer_to(prompt: list[int], max_tokens: int) -> tuple[int, ...]:
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(tokens))
        if tokens[-1] == STOP:
            break
    return tuple(tokens[len(prompt) :])


@dataclass
class TokenCache:
    """Stands for a model with a cache: a row holds the tokens themselves, and must be right."""

    keeps_prefix: bool = True
    rows: dict[int, list[int]] = field(default_factory=dict)
    computed: int = 0
    widths: list[tuple[int, int]] = field(default_factory=list)

    def run(self, wave: Wave) -> Drawn:
        for copy in wave.copies:
            self.rows[copy.target] = self.rows[copy.source][: copy.length]
        ids = []
        for row in wave.rows:
            assert 1 <= len(row.token_ids) <= wave.width
            held = self.rows.get(row.slot, [])[: row.start] if self.keeps_prefix else []
            assert len(held) == row.start, "a row starts behind what was ever written to it"
            self.rows[row.slot] = held + row.token_ids
            self.computed += len(row.token_ids)
            ids.append(next_token(self.rows[row.slot]))
        self.widths.append((len(wave.rows), wave.width))
        return Drawn(ids, [-1.0] * len(ids))


def request(prompt: list[int], episode: str, max_tokens: int = 4) -> Request:
    return Request(
        tokens=list(prompt),
        sampling=Sampling(max_tokens=max_tokens),
        stop_token_ids=frozenset({STOP}),
        key=0,
        episode_id=episode,
        answer=asyncio.get_running_loop().create_future(),
    )


def drain(scheduler: Scheduler, runner: TokenCache, epoch: int = 0) -> None:
    while (wave := scheduler.next_wave(0, epoch)) is not None:
        scheduler.apply(wave, runner.run(wave))
    assert not scheduler.busy


def prompt_of(seed: int, length: int) -> list[int]:
    return [derive_seed(seed, place) % VOCABULARY for place in range(length)]


def test_a_turn_that_extends_the_last_costs_only_its_new_tokens() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(2, max_batch_size=2), TokenCache()
        prompt = prompt_of(0, 20)
        first = request(prompt, "a")
        scheduler.submit(first)
        drain(scheduler, runner)
        answer = first.answer.result().token_ids
        assert runner.computed == 20 + len(answer) - 1  # the last token is never looked behind
        longer = [*prompt, *answer, 1, 2, 3]
        second = request(longer, "a", max_tokens=1)
        scheduler.submit(second)
        drain(scheduler, runner)
        assert runner.computed == 20 + len(answer) - 1 + 4  # that last token, and three new ones
        assert second.answer.result().token_ids == answer_to(longer, 1)

    asyncio.run(play())


def test_a_group_computes_its_common_prompt_once() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(16, max_batch_size=16), TokenCache()
        prompts = [prompt_of(group, 100) for group in (1, 2) for _ in range(8)]
        requests = [request(one, f"{number}", 1) for number, one in enumerate(prompts)]
        for one in requests:
            scheduler.submit(one)
        drain(scheduler, runner)
        assert runner.computed == 2 * 100 + 14  # the last token of each copy
        for one, prompt in zip(requests, prompts, strict=True):
            assert one.answer.result().token_ids == answer_to(prompt, 1)

    asyncio.run(play())


def test_prefills_of_like_length_share_a_pass() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(64, max_batch_size=64), TokenCache()
        for number in range(40):
            length = 100 if number % 2 else 10
            scheduler.submit(request(prompt_of(number, length), f"{number}", 1))
        drain(scheduler, runner)
        assert runner.widths == [(20, 100), (20, 10)]

    asyncio.run(play())


def test_a_long_prompt_is_computed_in_pieces() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(1, max_batch_size=1), TokenCache()
        long = request(prompt_of(0, 1300), "a", 1)
        scheduler.submit(long)
        drain(scheduler, runner)
        assert [width for _, width in runner.widths] == [512, 512, 276]
        assert long.answer.result().token_ids == answer_to(prompt_of(0, 1300), 1)

    asyncio.run(play())


def test_a_request_joins_at_the_next_token_and_leaves_at_its_last() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(4, max_batch_size=4), TokenCache()
        prompts = [prompt_of(seed, 3) for seed in range(50)]
        long = [one for one in prompts if len(answer_to(one, 6)) == 6][:2]
        first, second = request(long[0], "a", 6), request(long[1], "b", 2)
        scheduler.submit(first)
        for _ in range(2):
            wave = scheduler.next_wave(0, 0)
            assert wave is not None
            scheduler.apply(wave, runner.run(wave))
        scheduler.submit(second)
        drain(scheduler, runner)
        # a prefills, a decodes; b prefills; both decode, b is done; a alone
        assert runner.widths == [(1, 3), (1, 1), (1, 3), (2, 1), (1, 1), (1, 1), (1, 1)]

    asyncio.run(play())


def test_a_cancelled_request_computes_nothing_more() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(1, max_batch_size=1), TokenCache()
        first, second = request([1, 2], "a", 100), request([1, 3], "b", 1)
        scheduler.submit(first)
        scheduler.submit(second)  # no slot is left for it
        wave = scheduler.next_wave(0, 0)
        assert wave is not None
        first.answer.cancel()  # while the pass runs
        scheduler.apply(wave, runner.run(wave))
        computed = runner.computed
        drain(scheduler, runner)
        assert runner.computed == computed + 2
        assert second.answer.result().token_ids == answer_to([1, 3], 1)

    asyncio.run(play())


def test_new_weights_void_what_is_held_and_open_a_second_span() -> None:
    async def play() -> None:
        scheduler, runner = Scheduler(2, max_batch_size=2), TokenCache()
        prompt = next(
            one for one in map(prompt_of, range(50), [3] * 50) if len(answer_to(one, 4)) == 4
        )
        kept = request(prompt, "idle", 1)
        scheduler.submit(kept)
        drain(scheduler, runner)
        running = request(prompt, "a", 4)
        scheduler.submit(running)
        for _ in range(2):
            wave = scheduler.next_wave(7, 0)
            assert wave is not None
            scheduler.apply(wave, runner.run(wave))
        computed = runner.computed
        while (wave := scheduler.next_wave(8, 1)) is not None:
            scheduler.apply(wave, runner.run(wave))
        assert running.answer.result().versions == ((0, 7), (2, 8))
        assert runner.computed == computed + 3 + 2 + 1  # prompt and answer again, one more token
        again = request(prompt, "idle", 1)
        scheduler.submit(again)
        drain(scheduler, runner, epoch=1)
        assert runner.computed == computed + 6 + 3

    asyncio.run(play())


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("turn", "turn", "turn", "wave", "wave", "cancel", "release", "weights")),
        st.integers(0, 5),  # which episode
        st.integers(0, 3),  # what is done with its history
        st.integers(1, 90),  # length of what is new
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    events=EVENTS,
    slots=st.integers(1, 4),
    batch=st.integers(1, 4),
    mode=st.sampled_from(("cached", "fixed", "plain")),
)
def test_every_answer_is_the_models_whatever_happens(
    events: list[tuple[str, int, int, int]], slots: int, batch: int, mode: str
) -> None:
    async def play() -> None:
        runner = TokenCache(keeps_prefix=mode != "plain")
        scheduler = Scheduler(
            slots,
            max_batch_size=batch,
            keeps_prefix=runner.keeps_prefix,
            fixed_width=16 if mode == "fixed" else None,
        )
        asked: list[tuple[Request, list[int]]] = []
        history: dict[int, list[int]] = {}
        epoch = 0
        for kind, episode, change, length in events:
            if kind == "turn":
                past = history.get(episode, [])
                kept = (past, past, past[: len(past) // 2], [])[change]
                # half of the episodes begin in the same way
                new = prompt_of(episode % 2 if not kept else len(asked), length)
                prompt = history[episode] = kept + new
                asked.append((request(prompt, str(episode), 1 + length % 5), prompt))
                scheduler.submit(asked[-1][0])
                history[episode] = prompt + list(answer_to(prompt, 1 + length % 5))
            elif kind == "wave":
                wave = scheduler.next_wave(epoch, epoch)
                if wave is not None:
                    if change == 0 and asked:  # somebody leaves while the pass runs
                        asked[length % len(asked)][0].answer.cancel()
                    scheduler.apply(wave, runner.run(wave))
            elif kind == "cancel" and asked:
                asked[length % len(asked)][0].answer.cancel()
            elif kind == "release":
                scheduler.release(str(episode))
            elif kind == "weights":
                epoch += 1
                runner.rows.clear()  # whoever relies on old keys and values fails
        drain(scheduler, runner, epoch)
        for one, prompt in asked:
            if not one.answer.cancelled():
                sample = one.answer.result()
                assert sample.token_ids == answer_to(prompt, one.sampling.max_tokens)
                assert len(sample.logprobs) == len(sample.token_ids)

    asyncio.run(play())


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_shared_prefix_is_the_longest(left: list[int], right: list[int]) -> None:
    length = shared_prefix(left, right)
    assert left[:length] == right[:length]
    assert left[length : length + 1] != right[length : length + 1] or length in (
        len(left),
        len(right),
    )
