"""The engine in front of stand-in servers: what is asked, what a sample is, how weights pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, EngineError, WeightSyncError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.vllm.engine import VllmEngine
from agentrl.engines.vllm.generate import sample_of
from tests.engines.vllm.serving import Stand, choice, standing
from tests.engines.vllm.test_fleet import run, until


class Weights:
    """A policy whose weights are a text."""

    size, context_tokens = 10, 512

    def __init__(self, lora_rank: int = 0) -> None:
        self.lora_rank = lora_rank
        self.text = "first"

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_text(self.text)

    save_base = save_adapter = save

    def state(self) -> dict[str, Any]:
        return {}


@asynccontextmanager
async def engine_of(*stands: Stand, **options: Any) -> AsyncIterator[VllmEngine]:
    told = {"policy": Weights(), "urls": [one.url for one in stands], "health_s": 0.02, **options}
    engine = await asyncio.to_thread(lambda: VllmEngine(**told))
    try:
        yield engine
    finally:
        await engine.aclose()


async def ask(engine: VllmEngine, episode: str = "one", **sampling: Any) -> Sample:
    return await engine.sample(
        [1, 2, 3],
        sampling=Sampling(**{"max_tokens": 5, **sampling}),
        stop_token_ids=(9, 10),
        seed=4,
        episode_id=episode,
    )


async def publish(engine: VllmEngine, version: int) -> None:
    await asyncio.to_thread(engine.set_version, version)


def test_ids_go_out_and_ids_log_probabilities_and_spans_come_back() -> None:
    async def work() -> None:
        async with standing() as [stand], engine_of(stand) as engine:
            spans = [{"start": 0, "version": "3"}, {"start": 1, "version": "4"}]

            async def answer(told: Any) -> Any:
                return 200, choice([6, 9], reason="stop", weight_versions=spans)

            stand.behave = answer  # type: ignore[method-assign]
            sample = await ask(engine, temperature=0.7, top_k=4)
            assert sample == Sample((6, 9), (-0.56, -0.59), ((0, 3), (1, 4)), "stop")
            assert stand.asked == [
                {
                    "model": "policy",
                    "token_ids": [1, 2, 3],
                    "sampling_params": {
                        "max_tokens": 5,
                        "temperature": 0.7,
                        "top_p": 1.0,
                        "top_k": 4,
                        "logprobs": 0,
                        "ignore_eos": True,
                        "stop_token_ids": [9, 10],
                    },
                }
            ]
            assert (engine.stats.sampled_tokens, engine.stats.answers) == (2, 1)
            assert engine.context_tokens == 512

    run(work)


def test_what_is_asked_after_a_publication_is_answered_by_its_weights() -> None:
    async def work() -> None:
        async with standing(2) as stands, engine_of(*stands) as engine:
            assert (await ask(engine)).versions == ((0, 0),)
            for version in (1, 2):
                await publish(engine, version)
                assert [one.version for one in stands] == [str(version)] * 2
                assert (await ask(engine)).versions == ((0, version),)
            assert engine.policy_version == 2
            assert engine.stats.published == 2

    run(work)


def test_a_server_that_says_another_version_afterwards_ends_the_run() -> None:
    async def work() -> None:
        async with standing() as [stand], engine_of(stand) as engine:
            controlled = stand._controlled

            def deaf(route: str, told: Any) -> Any:
                return (200, {}) if route == "/update_weight_version" else controlled(route, told)

            stand._controlled = deaf  # type: ignore[method-assign]
            with pytest.raises(WeightSyncError, match=r"given version 1 .* says that it has 0"):
                await publish(engine, 1)

    run(work)


def test_a_server_that_was_away_gets_the_weights_before_it_is_asked() -> None:
    async def work() -> None:
        async with standing(2) as [away, there], engine_of(away, there) as engine:
            await away.close()
            await publish(engine, 5)
            await until(lambda: engine.urls == (there.url,))
            assert (await ask(engine)).versions == ((0, 5),)
            assert len(there.asked) == 1
            assert away.version == "0"
            await away.open()
            await until(lambda: len(engine.urls) == 2)
            assert away.version == "5"

    run(work)


def test_a_request_that_new_weights_abort_is_sampled_anew_and_counted_once() -> None:
    async def work() -> None:
        async with standing() as [stand], engine_of(stand, in_flight="abort") as engine:
            answers = [choice([5], reason="abort"), choice([], reason="abort"), choice([7], "1")]

            async def answer(told: Any) -> Any:
                return 200, answers.pop(0)

            stand.behave = answer  # type: ignore[method-assign]
            assert (await ask(engine)).token_ids == (7,)
            assert (engine.stats.sampled_tokens, engine.stats.answers) == (1, 1)
            await publish(engine, 1)

    run(work)


def test_with_an_adapter_a_sample_has_the_version_of_the_adapter_that_was_named() -> None:
    async def work() -> None:
        async with standing() as [stand]:
            listed = ["policy"]

            def adapters(route: str, told: Any) -> Any:
                if route == "/v1/load_lora_adapter":
                    listed.append(told["lora_name"])
                elif route == "/v1/unload_lora_adapter":
                    listed.remove(told["lora_name"])
                return 200, {"data": [{"id": one} for one in listed]}

            stand._controlled = adapters  # type: ignore[method-assign]
            options = {"policy": Weights(lora_rank=8), "publish": "lora_disk"}
            async with engine_of(stand, **options) as engine:
                assert (await ask(engine)).versions == ((0, 0),)
                for version in (3, 4):
                    await publish(engine, version)
                    assert (await ask(engine)).versions == ((0, version),)
            names = [one["model"] for one in stand.asked]
            assert names == ["policy-1-v0", "policy-2-v3", "policy-3-v4"]
            assert listed == ["policy", "policy-2-v3", "policy-3-v4"]

    run(work)


def test_servers_with_weights_of_their_own_are_sampled_and_never_trained_from() -> None:
    async def work() -> None:
        async with (
            standing() as [stand],
            engine_of(stand, publish="none", policy=None, model=None) as engine,
        ):
            stand.version = "somebody's"
            assert (await ask(engine)).versions == ((0, 0),)
            assert set(stand.routes) == {"/health", "/version", "/inference/v1/generate"}
            with pytest.raises(ConfigError, match="nothing can be trained"):
                engine.set_version(1)

    run(work)


def test_a_closed_engine_says_so() -> None:
    async def work() -> None:
        async with standing() as [stand], engine_of(stand) as engine:
            call = asyncio.create_task(ask(engine))
            await call
            await engine.aclose()
            await engine.aclose()
            engine.release("one")
            with pytest.raises(EngineError, match="the engine is closed"):
                await ask(engine)
            with pytest.raises(WeightSyncError, match="after the engine had been closed"):
                engine.set_version(1)

    run(work)


def test_calls_in_flight_end_when_the_engine_is_closed() -> None:
    async def work() -> None:
        async with standing() as [stand], engine_of(stand) as engine:

            async def never(told: Any) -> None:
                await asyncio.Event().wait()

            stand.behave = never  # type: ignore[method-assign]
            calls = [asyncio.create_task(ask(engine, str(one))) for one in range(3)]
            await until(lambda: len(stand.asked) == 3)
            await engine.aclose()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(one, EngineError | asyncio.CancelledError) for one in ended)

    run(work)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"error": "none"}, "not understood"),
        ([], "not understood"),
        (choice([1, 2], token_ids=[1]), "1 tokens with 2 log-probabilities"),
        (choice([]), "0 tokens"),
        (choice([1], logprobs={"content": [{"logprob": float("nan")}]}), "of which 0 are finite"),
        (choice([1], logprobs=None), "not understood"),
        (choice([1], weight_versions=[]), "do not begin with token 0"),
        (choice([1], weight_versions=[{"start": 1, "version": "1"}]), "do not begin with token 0"),
    ],
)
def test_an_answer_that_is_none_is_refused_with_what_was_got(data: Any, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        sample_of(data, "http://127.0.0.1:1", None)


LOCAL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either urls .* or launch: true"),
        ({"urls": [LOCAL], "launch": True}, "not both"),
        ({"urls": LOCAL}, "urls is a list of addresses"),
        ({"urls": ["127.0.0.1:8000"]}, "is no address like"),
        ({"urls": ["http://8.8.8.8:8000"]}, "public address 8.8.8.8"),
        ({"urls": ["http://no-such-host.invalid:1"]}, "is not known"),
        ({"urls": [LOCAL], "publish": "disk"}, "publish must be one of auto, reload_path"),
        ({"urls": [LOCAL], "in_flight": "drop"}, "in_flight must be one of keep, abort, wait"),
        ({"urls": [LOCAL], "publish": "lora_disk"}, "set model.lora"),
        ({"launch": True, "servers": 0}, "servers must be a whole number of at least 1, got 0"),
        ({"urls": [LOCAL], "concurrency": 0}, "concurrency must be a whole number of at least 1"),
        ({"urls": [LOCAL], "concurrency": "many"}, "at least 1, got 'many'"),
        ({"urls": [LOCAL], "adapters": 0}, "adapters must be a whole number of at least 1"),
        ({"urls": [LOCAL], "retries": -1}, "retries must be a whole number of at least 0"),
        ({"urls": [LOCAL], "health_s": 0}, "health_s must be a number of seconds above 0, got 0"),
        ({"urls": [LOCAL], "sync_s": float("nan")}, "sync_s must be a number of seconds above 0"),
        ({"urls": [LOCAL], "restarts": 1.5}, "restarts must be a whole number of at least 0"),
        ({"launch": True, "devices": ["0"], "servers": 2}, "names the GPUs of 1 servers"),
        ({"urls": [LOCAL], "deterministic": True}, "deterministic runs need engine"),
        ({"urls": [LOCAL], "policy": None}, "no model to serve or publish"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_words(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        VllmEngine(**{"policy": Weights(), **options})


def test_an_engine_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        stand = Stand()
        await stand.open()
        await stand.close()
        with pytest.raises(EngineError, match="Start it before the run"):
            async with engine_of(stand, folder=str(tmp_path / "shared")):
                pass
        assert list((tmp_path / "shared").iterdir()) == []

    run(work)
