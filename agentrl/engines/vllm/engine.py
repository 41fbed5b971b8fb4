"""``VllmEngine``: samples from one or several vLLM servers, and brings them new weights.

Tokens go out and tokens come back, with the log-probabilities that the servers sampled them at and
the version of the weights for each span. The servers are processes of their own with weights of
their own, in an environment of their own; nothing here imports vllm or torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import shutil
import socket
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from agentrl.core.errors import ConfigError, EngineError, WeightSyncError
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.vllm.control import InFlight
from agentrl.engines.vllm.environment import find_environment
from agentrl.engines.vllm.fleet import Fleet, Patience, Server
from agentrl.engines.vllm.generate import request_of, sample_of
from agentrl.engines.vllm.launch import LaunchSettings, ServerProcess
from agentrl.engines.vllm.publish import (
    BASE,
    LoraDisk,
    NoPublisher,
    Publisher,
    ReloadPath,
    private_folder,
)
from agentrl.engines.vllm.publish_nccl import VllmNccl

__all__ = ["Policy", "VllmEngine", "VllmStats", "Way"]

T = TypeVar("T")
Way = Literal["auto", "reload_path", "lora_disk", "vllm_nccl", "none"]
_WAYS = ("auto", "reload_path", "lora_disk", "vllm_nccl", "none")
_IN_FLIGHT = ("keep", "abort", "wait")


class Policy(Protocol):
    """The learner's weights, as servers are given them."""

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        ...

    @property
    def lora_rank(self) -> int:
        """Of its adapter; 0: it has none."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """Longest prompt plus answer that the model was made for."""
        ...

    def save(self, folder: Path) -> None:
        """Write a whole model into an empty folder: an adapter is merged."""
        ...

    def save_base(self, folder: Path) -> None:
        """Write the model as it is without its adapter."""
        ...

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter alone, in peft's format."""
        ...

    def state(self) -> Mapping[str, Any]:
        """The weights by name, where they are now."""
        ...


class _Whole:
    """A model of transformers without adapter."""

    lora_rank = 0

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def size(self) -> int:
        return sum(one.numel() * one.element_size() for one in self._model.parameters())

    @property
    def context_tokens(self) -> int | None:
        told = self._model.config.get_text_config(decoder=True)
        return getattr(told, "max_position_embeddings", None)

    def save(self, folder: Path) -> None:
        self._model.save_pretrained(folder)

    save_base = save_adapter = save

    def state(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._model.state_dict()
        return state


@dataclass(frozen=True, slots=True)
class VllmStats:
    """What the engine has done since it was made.

    Attributes:
        sampled_tokens: Tokens of answers that came back.
        answers: Answers. moved: requests that were sent again, to the same server or another.
        deaths: Servers that went down. published: Publications of weights.
    """

    sampled_tokens: int
    answers: int
    moved: int
    deaths: int
    published: int


class VllmEngine:
    """vLLM servers as an engine. May be called from any event loop and thread.

    Args:
        model: The policy's model, whose weights are published; ignored where ``policy`` is given.
        policy: Its weights, if the model has an adapter or the servers need its tokenizer.
        urls: Servers that somebody else has started, such as ``http://127.0.0.1:8000``.
        launch: Start servers on this machine, and end them with the run.
        servers: How many of those.
        devices: GPUs of each of them, as of CUDA_VISIBLE_DEVICES, such as ``["0,1", "2,3"]``.
        gpus: GPUs that one model is spread over.
        environment: Folder of the virtual environment with vLLM; ``None``: the one that was
            installed with ``agentrl engines install vllm``.
        dtype, gpu_memory, cache_gib, flags, variables, start_s: As of ``LaunchSettings``.
        context_tokens: Longest prompt plus answer; 0: what the model was made for.
        concurrency: Most requests at one server; the others wait here.
        publish: How new weights reach the servers. ``auto``: ``lora_disk`` for a policy with an
            adapter on servers that are started here, or else ``reload_path``.
        in_flight: What becomes of answers under way when weights are published. ``keep``: they go
            on with the new weights, in a further version span; ``abort``: they are sampled anew;
            ``wait``: they are finished first.
        folder: For the weights, readable by every server under this path; ``None``: private.
        sync_s: How long a server may take for new weights.
        adapters: With ``lora_disk``: how many versions servers keep; ``max_staleness`` + 2.
        retries, health_s, restarts: As of ``Patience``.
        seed: Each start of a server here draws from a stream of its own that derives from it; a run
            gives its own. No promise of equal samples: they depend on who asks beside.
        deterministic: Refused: what a server computes depends on who asks beside it.

    Attributes:
        own_weights: The learner's weights may change while it samples.

    Raises:
        ConfigError: settings that cannot work.
        MissingDependencyError: vLLM's environment is not installed.
        EngineError: a server could not be started or reached; the message has its own words.
    """

    own_weights = True

    def __init__(
        self,
        *,
        model: Any = None,
        policy: Policy | None = None,
        urls: Sequence[str] = (),
        launch: bool = False,
        servers: int = 1,
        devices: Sequence[str] = (),
        gpus: int = 1,
        environment: str | None = None,
        dtype: str = "float32",
        context_tokens: int = 0,
        gpu_memory: float = 0.9,
        cache_gib: int = 1,
        concurrency: int = 64,
        flags: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        start_s: float = 600.0,
        publish: Way = "auto",
        in_flight: InFlight = "keep",
        folder: str | None = None,
        sync_s: float = 600.0,
        adapters: int = 2,
        retries: int = 3,
        health_s: float = 5.0,
        restarts: int = 3,
        seed: int = 0,
        deterministic: bool = False,
    ) -> None:
        weights = policy or (None if model is None else _Whole(model))
        least = {"servers": servers, "gpus": gpus, "concurrency": concurrency, "adapters": adapters}
        seconds = {"start_s": start_s, "sync_s": sync_s, "health_s": health_s}
        none = {"retries": retries, "restarts": restarts, "context_tokens": context_tokens}
        _check(
            urls,
            launch,
            servers,
            devices,
            publish,
            in_flight,
            deterministic,
            weights,
            _bad_numbers(least, seconds, none),
        )
        self._private = private_folder(weights.size if weights else 0)
        self._publishing = threading.Lock()
        self._closed = False
        self._version = 0
        self._tokens = self._answers = self._published = 0
        self._way: Way = publish
        if publish == "auto":
            adapted = weights is not None and weights.lora_rank and launch
            self._way = "lora_disk" if adapted else "reload_path"
        limit = context_tokens or (weights.context_tokens if weights else None)
        self.context_tokens = limit
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="engine-vllm", daemon=True)
        self._thread.start()
        self._publisher: Publisher = NoPublisher()
        self._fleet: Fleet | None = None
        try:
            self._publisher = self._make_publisher(weights, folder, in_flight, sync_s, adapters)
            settings = LaunchSettings(
                dtype=dtype,
                context_tokens=context_tokens,
                concurrency=concurrency,
                cache_gib=cache_gib,
                gpu_memory=gpu_memory,
                gpus=gpus,
                lora_rank=weights.lora_rank if weights and self._way == "lora_disk" else 0,
                loras=adapters + 1,  # a new one is there before the oldest goes
                transfer="nccl" if self._way == "vllm_nccl" else "",
                start_s=start_s,
                seed=seed,
                flags=tuple(flags),
                variables=dict(variables or {}),
            )
            made = [Server(one.rstrip("/"), asyncio.Semaphore(concurrency)) for one in urls]
            if launch:
                made = self._processes(weights, servers, devices, environment, settings)
            self._publisher.publish(self._version, ())  # what each server is given at its start
            self._fleet = Fleet(
                made,
                model=str(self._private / "model"),
                renew=self._renew,
                patience=Patience(retries=retries, health_s=health_s, restarts=restarts),
            )
            self._begin(self._fleet.start()).result()
        except BaseException:
            self._end()
            raise

    def _make_publisher(
        self,
        weights: Policy | None,
        folder: str | None,
        in_flight: InFlight,
        sync_s: float,
        adapters: int,
    ) -> Publisher:
        place = self._private / "weights" if folder is None else Path(folder)
        if weights is None or self._way == "none":
            return NoPublisher()
        if self._way == "lora_disk":
            return LoraDisk(weights.save_adapter, folder=place, keep=adapters, timeout_s=sync_s)
        if self._way == "vllm_nccl":
            return VllmNccl(weights.state, in_flight=in_flight, timeout_s=sync_s)
        return ReloadPath(weights.save, folder=place, in_flight=in_flight, timeout_s=sync_s)

    def _processes(
        self,
        weights: Policy | None,
        count: int,
        devices: Sequence[str],
        environment: str | None,
        settings: LaunchSettings,
    ) -> list[Server]:
        """Servers that are to be started, from the weights as they are now."""
        assert weights is not None
        found = find_environment(environment)
        save = weights.save_base if self._way == "lora_disk" else weights.save
        save(self._private / "model")
        made = []
        for number in range(count):
            own = replace(settings, seed=derive_seed(settings.seed, "server", number))
            own = replace(own, devices=devices[number]) if devices else own
            log = self._private / f"server-{number}.log"
            process = ServerProcess(found, own, log, weights=self._private)
            places = asyncio.Semaphore(settings.concurrency)
            made.append(Server(f"server {number}", places, process))
        return made

    @property
    def policy_version(self) -> int:
        """Version of the last publication."""
        return self._version

    @property
    def stats(self) -> VllmStats:
        fleet = self._fleet
        return VllmStats(
            sampled_tokens=self._tokens,
            answers=self._answers,
            moved=fleet.moved if fleet else 0,
            deaths=fleet.deaths if fleet else 0,
            published=self._published,
        )

    @property
    def urls(self) -> tuple[str, ...]:
        """Addresses of the servers that may be asked now."""
        servers = self._fleet.servers if self._fleet else ()
        return tuple(one.url for one in servers if one.up)

    def set_version(self, version: int) -> None:
        """Publish the weights as they are now, as ``version``; returns when the servers have them.

        A server that is down gets them before it is asked again.

        Raises:
            ConfigError: ``publish`` is ``none``.
            WeightSyncError: they could not be written, a server refused them or says afterwards
                that it has others, or the engine is closed.
        """
        if self._way == "none":
            raise ConfigError(
                "engine.options.publish: none brings no weights to the servers, so nothing can be "
                "trained with them: take reload_path, or lora_disk for an adapter"
            )
        with self._publishing:
            if self._closed or self._fleet is None:
                raise WeightSyncError(
                    f"version {version} of the weights was published after the engine had been "
                    "closed; make a new one"
                )
            servers = {one.url: one for one in self._fleet.servers if one.current}
            unreached = self._publisher.publish(version, tuple(servers))
            self._version = version
            self._published += 1
            for url in unreached:
                servers[url].current = False
                why = f"the vLLM server {url} could not be reached with new weights"
                self._loop.call_soon_threadsafe(self._fleet.lose, servers[url], why)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        """Sample an answer; cancelling the call ends the request at its server.

        ``seed`` is not used: servers batch as requests come, so none of them could repeat it.

        Raises:
            EngineError: no server could answer, or one refused; its own words are in the message.
        """
        return await asyncio.wrap_future(
            self._begin(self._sampled(tuple(prompt_ids), sampling, stop_token_ids, episode_id))
        )

    def release(self, episode_id: str) -> None:
        """Forget where an episode's requests went. Unknown ids are fine."""
        if self._fleet is not None:
            with contextlib.suppress(RuntimeError):  # the thread has ended
                self._loop.call_soon_threadsafe(self._fleet.release, episode_id)

    async def aclose(self) -> None:
        """End the servers that were started here; returns when they are gone."""
        await asyncio.to_thread(self._end)

    # The engine's own thread

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._closed:
            work.close()
            raise EngineError("the engine is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _sampled(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        episode_id: str,
    ) -> Sample:
        assert self._fleet is not None

        def request() -> dict[str, Any]:
            return request_of(self._publisher.name, prompt_ids, sampling, stop_token_ids)

        while True:
            told, url, data = await self._fleet.ask(episode_id, request)
            sample = sample_of(data, url, _version_of(told["model"]))
            if sample is not None:  # or else it was given up for new weights: once more, with them
                self._answers += 1
                self._tokens += len(sample.token_ids)
                return sample

    async def _renew(self, server: Server) -> None:
        await asyncio.to_thread(self._restore, server)

    def _restore(self, server: Server) -> None:
        """From here on ``server`` takes part in publications: none can come between."""
        with self._publishing:
            self._publisher.restore(server.url)
            server.current = True

    def _end(self) -> None:
        closed, self._closed = self._closed, True
        if not closed:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._publisher.close()
            shutil.rmtree(self._private, ignore_errors=True)
        self._thread.join(10.0)

    async def _close(self) -> None:
        if self._fleet is not None:
            await self._fleet.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.call_soon(self._loop.stop)


def _version_of(name: str) -> int | None:
    """Of the adapter of that name; ``None``: it is the model, whose version the server says."""
    return None if name == BASE else int(name.rpartition("-v")[2])


def _check(
    urls: Sequence[str],
    launch: bool,
    servers: int,
    devices: Sequence[str],
    publish: str,
    in_flight: str,
    deterministic: bool,
    weights: Policy | None,
    problems: list[str],
) -> None:
    if deterministic:
        problems.append(
            "deterministic runs need engine: {name: hf}: what a server computes depends on the "
            "requests that it batches"
        )
    if isinstance(urls, str) or not all(isinstance(one, str) for one in urls):
        problems.append(f"urls is a list of addresses, got {urls!r}")
    elif bool(urls) == launch:
        problems.append(
            "give either urls (servers that run) or launch: true (servers to start)"
            + (", not both" if launch else "")
        )
    else:
        problems += filter(None, map(_unsafe, urls))
    if devices and len(devices) != servers:
        problems.append(f"devices names the GPUs of {len(devices)} servers, and servers={servers}")
    for name, value, known in (("publish", publish, _WAYS), ("in_flight", in_flight, _IN_FLIGHT)):
        if value not in known:
            problems.append(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if publish == "lora_disk" and (weights is None or not weights.lora_rank):
        problems.append(
            "publish: lora_disk publishes an adapter, and there is none: set model.lora"
        )
    if weights is None and (launch or publish != "none"):
        problems.append("there is no model to serve or publish: set model.path or model.create")
    if problems:
        raise ConfigError("engine vllm: " + "; ".join(problems))


def _bad_numbers(
    least: Mapping[str, Any], seconds: Mapping[str, Any], counts: Mapping[str, Any]
) -> list[str]:
    """What is wrong with numbers: those of at least 1, those above 0, those of at least 0."""
    problems = [
        f"{name} must be a whole number of at least {lowest}, got {value!r}"
        for lowest, numbers in ((1, least), (0, counts))
        for name, value in numbers.items()
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest
    ]
    return problems + [
        f"{name} must be a number of seconds above 0, got {value!r}"
        for name, value in seconds.items()
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0
    ]


def _unsafe(url: str) -> str | None:
    """Why a server must not be asked: its routes for weights ask for no password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"'{url}' is no address like http://127.0.0.1:8000"
    try:
        found = {one[4][0] for one in socket.getaddrinfo(parts.hostname, None)}
    except OSError as error:
        return f"'{url}': the name '{parts.hostname}' is not known ({error})"
    open_ones = [one for one in found if not ipaddress.ip_address(one).is_private]
    if open_ones:
        return (
            f"'{url}' is the public address {open_ones[0]}, and whoever reaches such a server can "
            "change its weights: use a loopback or private address, through a tunnel if need be"
        )
    return None
