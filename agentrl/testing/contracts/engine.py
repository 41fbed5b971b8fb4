"""What every engine must do. The subject is an ``EngineSubject``: its maker, and ids to feed it.

``assert_contract(CHECKS, EngineSubject(make=lambda: MyEngine(...), prompt_ids=(5, 7), ...))``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from agentrl.core.errors import AgentRLError, EngineError
from agentrl.core.protocols import Engine
from agentrl.core.trajectory import Sample, Sampling
from agentrl.testing.contract import ContractViolation, require

__all__ = ["CHECKS", "EngineSubject"]

T = TypeVar("T")
EPISODES = 24
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class EngineSubject:
    """An engine under test.

    Attributes:
        make: Makes a fresh engine; called once per check, inside the event loop.
        prompt_ids: A prompt of at least two tokens that leaves room for 64 more.
        vocabulary_size: Sampled ids lie in ``range(vocabulary_size)``.
        stop_token_ids: Ids that end an answer.
        policy_version: Version of a fresh engine.
    """

    make: Callable[[], Engine]
    prompt_ids: tuple[int, ...]
    vocabulary_size: int
    stop_token_ids: tuple[int, ...]
    policy_version: int = 0


async def _sample(
    engine: Engine,
    subject: EngineSubject,
    *,
    episode_id: str = "episode",
    seed: int = 0,
    max_tokens: int = 8,
    stop: Sequence[int] | None = None,
    prompt_ids: Sequence[int] | None = None,
) -> Sample:
    return await engine.sample(
        subject.prompt_ids if prompt_ids is None else prompt_ids,
        sampling=Sampling(max_tokens=max_tokens),
        stop_token_ids=subject.stop_token_ids if stop is None else stop,
        seed=seed,
        episode_id=episode_id,
    )


@asynccontextmanager
async def _opened(subject: EngineSubject) -> AsyncIterator[Engine]:
    engine = subject.make()
    try:
        yield engine
    finally:
        await engine.aclose()


async def _within(call: Awaitable[T], what: str) -> T:
    try:
        return await asyncio.wait_for(call, WAIT_S)
    except TimeoutError:
        raise ContractViolation(f"{what} did not return within {WAIT_S:g} s") from None


async def samples_are_well_formed(subject: EngineSubject) -> None:
    """A sample has one finite log-probability <= 0 per id, and ids of the vocabulary."""
    async with _opened(subject) as engine:
        for seed in range(8):
            sample = await _sample(engine, subject, seed=seed, episode_id=f"episode{seed}")
            _require_well_formed(sample, subject)


def _require_well_formed(sample: Sample, subject: EngineSubject) -> None:
    ids, logprobs = sample.token_ids, sample.logprobs
    require(len(ids) >= 1, "the sample is empty; an engine samples at least one token")
    require(
        len(ids) == len(logprobs),
        f"{len(ids)} ids but {len(logprobs)} logprobs; give one per sampled id, stop id included",
    )
    wrong = [one for one in ids if not 0 <= one < subject.vocabulary_size]
    require(not wrong, f"ids {wrong} are outside range({subject.vocabulary_size})")
    wrong_logprobs = [one for one in logprobs if not (math.isfinite(one) and one <= 0)]
    require(not wrong_logprobs, f"logprobs {wrong_logprobs} are not finite numbers <= 0")
    require(
        all(type(one) is int for one in ids) and all(type(one) is float for one in logprobs),
        "ids must be int and logprobs float, not numbers of another library; convert them",
    )
    require(
        sample.finish_reason in ("stop", "length"),
        f"finish_reason is {sample.finish_reason!r}; it is 'stop' or 'length'",
    )


async def stop_ids_end_an_answer(subject: EngineSubject) -> None:
    """A sampled stop id ends the answer, is part of it, and occurs nowhere earlier."""
    async with _opened(subject) as engine:
        stopped = 0
        for seed in range(8):
            sample = await _sample(
                engine, subject, seed=seed, episode_id=f"episode{seed}", max_tokens=64
            )
            ids, stop = sample.token_ids, set(subject.stop_token_ids)
            early = [place for place, one in enumerate(ids[:-1]) if one in stop]
            require(not early, f"a stop id stands at {early} of {len(ids)} ids; end there")
            ended = ids[-1] in stop
            require(
                ended == (sample.finish_reason == "stop"),
                f"finish_reason is {sample.finish_reason!r} and the last id is "
                f"{ids[-1]}; 'stop' means exactly that a stop id was sampled and included",
            )
            stopped += ended
        require(
            stopped > 0, "no answer of 8 met a stop id; give the subject ids that are sampled often"
        )
        everything = range(subject.vocabulary_size)
        sample = await _sample(engine, subject, episode_id="any", stop=everything, max_tokens=64)
        require(
            len(sample.token_ids) == 1 and sample.finish_reason == "stop",
            f"with every id a stop id the answer has {len(sample.token_ids)} ids and ends by "
            f"{sample.finish_reason!r}; it must be that one id and 'stop'",
        )


async def max_tokens_is_a_bound(subject: EngineSubject) -> None:
    """Without a stop id the answer ends at max_tokens at the latest, with reason length."""
    async with _opened(subject) as engine:
        for limit in (1, 2, 5):
            sample = await _sample(
                engine, subject, episode_id=f"episode{limit}", max_tokens=limit, stop=()
            )
            require(
                1 <= len(sample.token_ids) <= limit,
                f"max_tokens={limit} gave {len(sample.token_ids)} ids",
            )
            require(
                sample.finish_reason == "length",
                f"without stop ids finish_reason is {sample.finish_reason!r}, not 'length'",
            )


async def a_seed_fixes_the_sample(subject: EngineSubject) -> None:
    """The same prompt and seed give the same ids, in a new episode and in a new engine."""
    samples = []
    for _ in range(2):
        async with _opened(subject) as engine:
            for name in ("a", "b"):
                samples.append(await _sample(engine, subject, seed=7, episode_id=name))
    ids = {one.token_ids for one in samples}
    require(len(ids) == 1, f"one seed gave {len(ids)} different answers: {sorted(ids)}")
    drift = max(
        abs(a - b)
        for one in samples
        for a, b in zip(one.logprobs, samples[0].logprobs, strict=True)
    )
    require(drift <= 1e-3, f"logprobs of one seed differ by {drift:g}; at most 1e-3 is float noise")


async def turns_extend_the_prompt(subject: EngineSubject) -> None:
    """A prompt that extends the last one, or another one, answers as a fresh episode does."""
    async with _opened(subject) as engine:
        first = await _sample(engine, subject)
        longer = (*subject.prompt_ids, *first.token_ids, *subject.prompt_ids)
        for prompt in (longer, subject.prompt_ids[1:], longer):
            kept = await _sample(engine, subject, prompt_ids=prompt, seed=3)
            async with _opened(subject) as fresh:
                alone = await _sample(fresh, subject, prompt_ids=prompt, seed=3)
            require(
                kept.token_ids == alone.token_ids,
                f"after other turns a prompt of {len(prompt)} tokens gave {kept.token_ids}, in a "
                f"fresh engine {alone.token_ids}; what is kept of an episode must not matter",
            )


async def concurrent_calls_are_all_answered(subject: EngineSubject) -> None:
    """Many episodes at once are all answered, each with what it gets alone."""
    async with _opened(subject) as engine:
        calls = [
            _sample(engine, subject, episode_id=f"episode{number}", seed=number)
            for number in range(EPISODES)
        ]
        together = await _within(asyncio.gather(*calls), f"{EPISODES} concurrent calls")
        for number, sample in enumerate(together):
            _require_well_formed(sample, subject)
            alone = await _sample(engine, subject, episode_id=f"alone{number}", seed=number)
            require(
                sample.token_ids == alone.token_ids,
                f"seed {number} gave {sample.token_ids} among others and {alone.token_ids} alone",
            )


async def cancelling_harms_nobody(subject: EngineSubject) -> None:
    """A cancelled call ends at once; its neighbours and its episode's next call are answered."""
    async with _opened(subject) as engine:
        for yields in range(6):
            calls = [
                asyncio.ensure_future(
                    _sample(
                        engine, subject, episode_id=f"{yields}/{number}", max_tokens=32, stop=()
                    )
                )
                for number in range(8)
            ]
            for _ in range(yields):
                await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            done = await _within(
                asyncio.gather(*calls, return_exceptions=True), "calls beside cancelled ones"
            )
            for call, outcome in zip(calls[1::2], done[1::2], strict=True):
                require(
                    isinstance(outcome, Sample),
                    f"a neighbour of a cancelled call got {outcome!r} (cancelled: "
                    f"{call.cancelled()}); it must be answered",
                )
            again = _sample(engine, subject, episode_id=f"{yields}/0")
            _require_well_formed(await _within(again, "a call after a cancelled one"), subject)
            for number in range(8):
                engine.release(f"{yields}/{number}")


async def release_is_always_fine(subject: EngineSubject) -> None:
    """Releasing an unknown, a known and a released episode is fine, and it can go on."""
    async with _opened(subject) as engine:
        engine.release("never seen")
        before = await _sample(engine, subject)
        engine.release("episode")
        engine.release("episode")
        after = await _sample(engine, subject)
        require(
            before.token_ids == after.token_ids,
            f"before release {before.token_ids}, after it {after.token_ids}; it must only forget",
        )


async def versions_are_recorded(subject: EngineSubject) -> None:
    """Spans of versions start at 0, rise, and name the version; set_version shows in the next."""
    async with _opened(subject) as engine:
        sample = await _sample(engine, subject)
        _require_versions(sample, subject.policy_version)
        set_version = getattr(engine, "set_version", None)
        if set_version is not None:
            set_version(subject.policy_version + 1)
            _require_versions(await _sample(engine, subject), subject.policy_version + 1)


def _require_versions(sample: Sample, version: int) -> None:
    starts = [start for start, _ in sample.versions]
    require(
        bool(starts) and starts[0] == 0 and starts == sorted(set(starts)),
        f"versions {sample.versions} must hold rising starts, the first 0",
    )
    require(
        starts[-1] < len(sample.token_ids),
        f"versions {sample.versions} has a span beyond the {len(sample.token_ids)} ids",
    )
    require(
        all(one == version for _, one in sample.versions),
        f"versions {sample.versions} must all name the engine's version {version}",
    )


async def impossible_requests_are_refused(subject: EngineSubject) -> None:
    """An empty prompt and max_tokens below 1 raise EngineError in words; others go on."""
    async with _opened(subject) as engine:
        for what, prompt, limit in (
            ("an empty prompt", (), 4),
            ("max_tokens=0", subject.prompt_ids, 0),
        ):
            refusal = _sample(engine, subject, prompt_ids=prompt, max_tokens=limit)
            await _require_refused(refusal, what)
        _require_well_formed(await _sample(engine, subject), subject)


async def _require_refused(call: Awaitable[Sample], what: str) -> None:
    try:
        answer = await _within(call, what)
    except EngineError as error:
        require(len(str(error)) > 10, f"{what} raised an EngineError that says nothing: {error}")
    except AgentRLError as error:
        raise ContractViolation(f"{what} raised {type(error).__name__}; use EngineError") from error
    else:
        raise ContractViolation(f"{what} was answered with {answer}; raise EngineError")


async def closing_ends_everything(subject: EngineSubject) -> None:
    """Closing fails waiting calls with EngineError, may be called twice, and later calls fail."""
    engine = subject.make()
    calls = [
        asyncio.ensure_future(
            _sample(engine, subject, episode_id=f"{number}", max_tokens=48, stop=())
        )
        for number in range(4)
    ]
    await asyncio.sleep(0)
    await _within(engine.aclose(), "aclose")
    await _within(engine.aclose(), "the second aclose")
    outcomes = await _within(
        asyncio.gather(*calls, return_exceptions=True), "calls that waited while it closed"
    )
    odd = [one for one in outcomes if not isinstance(one, EngineError | Sample)]
    require(not odd, f"calls that waited during aclose ended with {odd}; use EngineError")
    await _require_refused(_sample(engine, subject), "a call after aclose")
    engine.release("episode")


CHECKS: tuple[Callable[[EngineSubject], Awaitable[None]], ...] = (
    samples_are_well_formed,
    stop_ids_end_an_answer,
    max_tokens_is_a_bound,
    a_seed_fixes_the_sample,
    turns_extend_the_prompt,
    concurrent_calls_are_all_answered,
    cancelling_harms_nobody,
    release_is_always_fine,
    versions_are_recorded,
    impossible_requests_are_refused,
    closing_ends_everything,
)
