"""A real vLLM server on the CPU: it agrees with the learner, takes new weights, dies, comes back.

One server serves the whole file, for its start takes half a minute. The model has random weights.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import PreTrainedModel

from agentrl.config import LoraConfig
from agentrl.core.errors import EngineError, WeightSyncError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.vllm.control import Control
from agentrl.engines.vllm.engine import VllmEngine
from agentrl.engines.vllm.environment import ServerEnvironment
from agentrl.engines.vllm.launch import LaunchSettings, ServerProcess
from agentrl.engines.vllm.publish import LoraDisk, ReloadPath
from agentrl.models.loading import load_model, save_policy
from agentrl.models.lora import adapter_tensors, add_adapter, save_adapter
from agentrl.models.serving import ServedPolicy
from agentrl.models.tiny import tiny_policy
from agentrl.testing.agreement import check_agreement
from agentrl.testing.driving import forward_logprobs, prompt_of, sample
from agentrl.testing.tiny_tokenizers import tiny_tokenizer

DEADLINE_S = 300.0  # generous: nothing here depends on it
CONTEXT, RANK, LONG = 2048, 4, 1500
MEDIAN, LARGEST = 1e-4, 0.09  # the latter: e**0.09 is within [0.9, 1.1]


@dataclass
class World:
    """A model, and the server that was started from its folder."""

    model: PreTrainedModel
    tokenizer: Any
    folder: Path
    server: ServerProcess

    def save(self, folder: Path) -> None:
        save_policy(folder, self.model, self.tokenizer)

    def shake(self, seed: int) -> None:
        """Other weights, in place."""
        shaken(self.model.parameters(), seed)


def shaken(parameters: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in parameters:
            one.copy_(0.15 * torch.randn(one.shape, generator=generator))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    asyncio.run(bounded())


@pytest.fixture(scope="module")
def world(
    server_environment: ServerEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    if server_environment.kind != "cpu":
        pytest.skip("the vLLM found is for GPUs, and these tests compare it with a CPU's numbers")
    folder = tmp_path_factory.mktemp("served")
    tokenizer = tiny_tokenizer()
    model = tiny_policy(tokenizer, hidden_size=64, layers=2, heads=2, context=CONTEXT)
    settings = LaunchSettings(context_tokens=CONTEXT, lora_rank=RANK, loras=3)
    server = ServerProcess(server_environment, settings, folder / "server.log")
    made = World(model, tokenizer, folder / "model", server)
    made.shake(0)
    made.save(made.folder)
    run(lambda: server.start(made.folder))
    yield made
    run(server.stop)


@asynccontextmanager
async def asking(world: World) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=world.server.url, timeout=DEADLINE_S, limits=limits, trust_env=False
    ) as client:
        yield client


async def ask(
    client: httpx.AsyncClient, prompt: Sequence[int], tokens: int, name: str = "policy"
) -> Sample:
    sampling = {"max_tokens": tokens, "temperature": 1.0, "logprobs": 0, "ignore_eos": True}
    told = {"model": name, "token_ids": list(prompt), "sampling_params": sampling}
    answer = await client.post("/inference/v1/generate", json=told)
    answer.raise_for_status()
    choice = answer.json()["choices"][0]
    spans = tuple(
        (one["start"], int(one["version"]) if one["version"].isdigit() else -1)
        for one in choice["weight_versions"]
    )
    logprobs = tuple(one["logprob"] for one in choice["logprobs"]["content"])
    return Sample(tuple(choice["token_ids"]), logprobs, spans, "length")


def agree(model: Any, prompt: Sequence[int], answer: Sample) -> list[float]:
    """Differences from a plain forward pass."""
    expected = forward_logprobs(model, prompt, answer)
    return [abs(ours - theirs) for ours, theirs in zip(expected, answer.logprobs, strict=True)]


def test_tokens_come_back_with_the_learners_own_log_probabilities(world: World) -> None:
    async def work() -> None:
        prompts = [prompt_of(one, 4 + 11 * one) for one in range(8)]
        async with asking(world) as client:
            first = await asyncio.gather(*(ask(client, prompt, 32) for prompt in prompts))
            longer = [
                [*prompt, *answer.token_ids, 5, 6]
                for prompt, answer in zip(prompts, first, strict=True)
            ]
            second = await asyncio.gather(*(ask(client, prompt, 16) for prompt in longer))
        differences = [
            one
            for prompt, answer in zip([*prompts, *longer], [*first, *second], strict=True)
            for one in agree(world.model, prompt, answer)
        ]
        assert len(differences) == 8 * (32 + 16)
        assert statistics.median(differences) < MEDIAN
        assert max(differences) < LARGEST

    run(work)


def test_adapters_are_loaded_beside_each_other_and_agree(world: World, tmp_path: Path) -> None:
    adapted = load_model(world.folder)
    add_adapter(adapted, LoraConfig(rank=RANK, alpha=2 * RANK), seed=0)
    publisher = LoraDisk(lambda folder: save_adapter(adapted, folder), folder=tmp_path, keep=2)
    prompt = prompt_of(1, 20)

    async def work() -> None:
        async with asking(world) as client:
            for version in (1, 2, 3):
                shaken(adapter_tensors(adapted).values(), version)
                under_way = asyncio.create_task(ask(client, prompt, 200, publisher.name))
                await asyncio.to_thread(publisher.publish, version, [world.server.url])
                answer = await ask(client, prompt, 32, publisher.name)
                assert statistics.median(agree(adapted, prompt, answer)) < MEDIAN
                assert len((await under_way).token_ids) == 200
            plain = await ask(client, prompt, 32)
            assert statistics.median(agree(world.model, prompt, plain)) < MEDIAN

    run(work)
    with Control(world.server.url) as control:
        assert control.models() == ["policy", "policy-2-v2", "policy-3-v3"]


def test_an_adapter_that_it_refuses_is_said_in_its_own_words(world: World, tmp_path: Path) -> None:
    adapted = load_model(world.folder)
    add_adapter(adapted, LoraConfig(rank=32), seed=0)
    publisher = LoraDisk(lambda folder: save_adapter(adapted, folder), folder=tmp_path)
    with pytest.raises(WeightSyncError, match="rank 32 is greater than max_lora_rank"):
        publisher.publish(1, [world.server.url])
    assert world.server.death is None


def test_new_weights_come_between_two_tokens_and_no_request_is_lost(
    world: World, tmp_path: Path
) -> None:
    before = load_model(world.folder)
    publisher = ReloadPath(world.save, folder=tmp_path)
    prompts = [prompt_of(100 + one, 8) for one in range(24)]
    url = world.server.url

    async def work() -> None:
        await asyncio.to_thread(publisher.publish, 6, [url])  # the same weights, with a number
        async with asking(world) as client:
            sampled = await tokens_sampled(client)
            requests = [asyncio.create_task(ask(client, prompt, LONG)) for prompt in prompts]
            while await tokens_sampled(client) == sampled:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            world.shake(7)
            await asyncio.to_thread(publisher.publish, 7, [url])
            after = await ask(client, prompts[0], 32)
            answers = await asyncio.gather(*requests)
        assert after.versions == ((0, 7),)
        assert statistics.median(agree(world.model, prompts[0], after)) < MEDIAN
        assert {version for one in answers for _, version in one.versions} == {6, 7}
        for prompt, answer in zip(prompts, answers, strict=True):
            assert len(answer.token_ids) == LONG
            check_spans(prompt, answer, {6: before, 7: world.model})

    run(work)
    with Control(url) as control:
        assert control.version() == "7"
    assert [one.name for one in tmp_path.iterdir()] == ["publication-000002"]


async def tokens_sampled(client: httpx.AsyncClient) -> float:
    text = (await client.get("/metrics")).text
    lines = [one for one in text.splitlines() if one.startswith("vllm:generation_tokens_total")]
    return sum(float(one.split()[-1]) for one in lines)


def check_spans(prompt: Sequence[int], answer: Sample, models: dict[int, Any]) -> None:
    """Each span was sampled from the weights that it names."""
    by_version = {version: agree(one, prompt, answer) for version, one in models.items()}
    ends = [*(start for start, _ in answer.versions[1:]), len(answer.token_ids)]
    for (start, version), end in zip(answer.versions, ends, strict=True):
        assert statistics.median(by_version[version][start:end]) < MEDIAN
        assert max(by_version[version][start:end]) < LARGEST


def test_weights_that_it_cannot_load_are_said_in_its_own_words(
    world: World, tmp_path: Path
) -> None:
    def damaged(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"no weights")

    with pytest.raises(WeightSyncError, match=r"answered POST /collective_rpc with 500: \S+"):
        ReloadPath(damaged, folder=tmp_path).publish(8, [world.server.url])
    assert world.server.death is None


def test_the_engine_agrees_with_the_learner_before_and_after_it_publishes(world: World) -> None:
    options = {"urls": [world.server.url]}
    with Control(world.server.url) as control:  # the weights that the folder has
        control.pause("keep")
        control.reload(str(world.folder))
        control.forget_prefixes()
        control.resume()
    sampling = Sampling(max_tokens=32)
    found = check_agreement(VllmEngine, str(world.folder), options, sampling=sampling, episodes=8)
    assert found.published is not None
    for one in (found, found.published):
        assert one.tokens == 8 * 2 * 32
        assert one.median < MEDIAN
        assert one.outside == 0


def test_an_engine_whose_server_is_killed_loses_no_request_and_starts_it_with_the_newest_weights(
    server_environment: ServerEnvironment,
) -> None:
    model = tiny_policy(tiny_tokenizer(), hidden_size=64, layers=2, heads=2, context=CONTEXT)
    policy = ServedPolicy(model, tiny_tokenizer())
    engine = VllmEngine(
        policy=policy, launch=True, environment=str(server_environment.folder), health_s=0.5
    )
    prompt = prompt_of(3, 12)

    async def work() -> None:
        try:
            shaken(model.parameters(), 5)
            await asyncio.to_thread(engine.set_version, 4)
            requests = [
                asyncio.create_task(sample(engine, prompt, episode=str(one), max_tokens=LONG))
                for one in range(8)
            ]
            await asyncio.sleep(0.3)
            assert engine._fleet is not None
            process = engine._fleet.servers[0].process
            assert isinstance(process, ServerProcess)
            group = process.pid
            assert group is not None
            os.kill(group, signal.SIGKILL)
            for answer in await asyncio.gather(*requests):
                assert len(answer.token_ids) == LONG
                assert answer.versions == ((0, 4),)
                assert statistics.median(agree(model, prompt, answer)) < MEDIAN
            assert engine.stats.deaths == 1
            with pytest.raises(ProcessLookupError):
                os.killpg(group, 0)  # its workers are gone with it
        finally:
            await engine.aclose()

    run(work)


def test_a_model_that_is_not_there_is_said_in_its_own_words(
    server_environment: ServerEnvironment, tmp_path: Path
) -> None:
    server = ServerProcess(server_environment, LaunchSettings(), tmp_path / "log")
    with pytest.raises(EngineError, match=r"exit code 1\n.*\n.*/no/such/model"):
        run(lambda: server.start("/no/such/model"))
    assert server.pid is None
