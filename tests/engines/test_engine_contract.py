"""The engine contract goes red on engines that break it, and says how."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentrl.core.errors import EngineError
from agentrl.core.trajectory import Sample
from agentrl.engines.scripted import ScriptedEngine
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.engine import CHECKS, EngineSubject


class Faulty(ScriptedEngine):
    """Right in everything that a subclass does not spoil."""

    def __init__(self) -> None:
        super().__init__(lambda prompt_ids, call_index: prompt_ids[-3:])

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        return self.spoil(await super().sample(prompt_ids, **asked), asked)

    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return sample


class MissingLogprob(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return replace(sample, logprobs=sample.logprobs[1:])


class PositiveLogprob(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return replace(sample, logprobs=(0.1,) * len(sample.token_ids))


class StopLeftOut(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        if sample.finish_reason == "length" or len(sample.token_ids) == 1:
            return sample
        return replace(sample, token_ids=sample.token_ids[:-1], logprobs=sample.logprobs[:-1])


class BoundlessAnswers(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return replace(sample, token_ids=sample.token_ids * 9, logprobs=sample.logprobs * 9)


class SeedIgnored(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return replace(sample, token_ids=(len(self.calls) % 8, *sample.token_ids[1:]))


class WrongVersion(Faulty):
    def spoil(self, sample: Sample, asked: dict[str, Any]) -> Sample:
        return replace(sample, versions=((0, 5),))


class AnswersWhenClosed(Faulty):
    async def aclose(self) -> None:
        pass


class KeepsWhatIsReleased(Faulty):
    def release(self, episode_id: str) -> None:
        raise KeyError(episode_id)


class EmptyPromptAnswered(Faulty):
    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        return await super().sample(prompt_ids or (1,), **asked)


class OneAtATimeForEver(Faulty):
    """A cancelled call keeps the only slot."""

    taken = False

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        while self.taken:
            await asyncio.sleep(0)
            if self.closed:
                raise EngineError("closed while this call waited for the slot")
        self.taken = True
        sample = await super().sample(prompt_ids, **asked)
        self.taken = False
        return sample


def subject_of(engine: type[Faulty]) -> EngineSubject:
    return EngineSubject(engine, (1, 2, 3), 10, (9,))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (MissingLogprob, "give one per sampled id"),
        (PositiveLogprob, "not finite numbers <= 0"),
        (StopLeftOut, "'stop' means exactly that a stop id was sampled"),
        (BoundlessAnswers, "max_tokens=1 gave 9 ids"),
        (SeedIgnored, "one seed gave 2 different answers"),
        (WrongVersion, "must all name the engine's version 0"),
        (AnswersWhenClosed, "a call after aclose was answered"),
        (KeepsWhatIsReleased, "raised KeyError"),
        (EmptyPromptAnswered, "an empty prompt was answered"),
        (OneAtATimeForEver, "did not return within"),
    ],
)
def test_a_broken_engine_is_found_out(
    engine: type[Faulty], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.testing.contracts.engine.WAIT_S", 1.0)
    with pytest.raises(AssertionError, match=words):
        assert_contract(CHECKS, subject_of(engine))


def test_an_engine_that_is_right_passes() -> None:
    assert_contract(CHECKS, subject_of(Faulty))
