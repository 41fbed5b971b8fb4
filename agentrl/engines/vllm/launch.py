"""Starts and ends one vLLM server on this machine: its flags, its process, its own words.

The server runs from an environment of its own (``environment``), behind a guard that ends it with
the trainer (``guard``), and listens on a free loopback port. What it prints goes to a file; if it
does not come up, the errors in there are the message.

Flags that decide whether a sample can be learnt from, whatever else is asked for:

- ``--logprobs-mode processed_logprobs``: log-probabilities at the sampling temperature;
- ``--generation-config vllm``: none of the sampling defaults that a model's own
  ``generation_config.json`` may bring (a top_p, a repetition penalty);
- ``--enable-scale-out``: the route that takes and gives token ids, and says for each span of an
  answer which weights sampled it;
- ``--seed``, another one for each start: a server would draw what others draw, and what it drew
  before it died, as their random numbers begin anew;
- development mode, for the routes that pause, reload and tell the version. They ask for no
  password, so the server is reachable from this machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from agentrl.core.errors import ConfigError, EngineError
from agentrl.core.task import derive_seed
from agentrl.engines.vllm.environment import Kind, ServerEnvironment
from agentrl.engines.vllm.untied import is_tied, untied

__all__ = [
    "SERVED_NAME",
    "LaunchSettings",
    "ServerProcess",
    "command",
    "last_words",
    "server_variables",
]

SERVED_NAME = "policy"
GUARD = Path(__file__).with_name("guard.py")
HOST = "127.0.0.1"
GRACE_S = 5.0
SEEDS = 2**32  # that NumPy takes, which vLLM seeds too
_POLL_S = 0.2
_LOG_BYTES, _LOG_LINES, _ERRORS, _LONGEST = 2**18, 12, 4, 600
_CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
# What vLLM puts before a line of its log, and how the last line of a traceback begins.
_PREFIX = re.compile(r"^(\([\w ]+ pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] ?)?")
_RAISED = re.compile(r"^([A-Za-z_]\w*\.)*\w*(Error|Exception)\b.*: \S")
_ECHO = re.compile(r"See root cause|see the stack trace|check the stack trace")


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How a server is started.

    Attributes:
        dtype: Of its weights; on a CPU anything but float32 is slow.
        context_tokens: Longest prompt plus answer; 0: what the model's configuration says.
        concurrency: Most sequences that it computes at once.
        cache_gib: Memory for keys and values on a CPU.
        gpu_memory: Share of the GPU's memory that it may use.
        gpus: GPUs that one model is spread over.
        devices: Their numbers, as of CUDA_VISIBLE_DEVICES; empty: all that are visible.
        lora_rank: Largest rank of an adapter; 0: it serves none.
        loras: Adapters that are loaded at once.
        transfer: Backend of vLLM's own weight transfer; empty: none.
        start_s: How long it may take until it answers.
        seed: Of what it draws. vLLM's own is 0 everywhere, so that two servers draw the same.
        flags: More of vLLM's own, each as one would type it.
        variables: More environment variables of the process.
    """

    dtype: str = "float32"
    context_tokens: int = 0
    concurrency: int = 64
    cache_gib: int = 1
    gpu_memory: float = 0.9
    gpus: int = 1
    devices: str = ""
    lora_rank: int = 0
    loras: int = 2
    transfer: str = ""
    start_s: float = 600.0
    seed: int = 0
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def command(
    environment: ServerEnvironment, settings: LaunchSettings, model: str, port: int
) -> list[str]:
    """The command line of the server."""
    kind = environment.kind
    return [
        *(str(environment.python), "-I", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model, "--served-model-name", SERVED_NAME),
        *("--host", HOST, "--port", str(port), "--disable-uvicorn-access-log"),
        *("--dtype", settings.dtype, "--max-num-seqs", str(settings.concurrency)),
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
        *("--enable-scale-out", "--seed", str(settings.seed)),
        *_optional(settings, kind),
        *settings.flags,
    ]


def _optional(settings: LaunchSettings, kind: Kind) -> Iterator[str]:
    if settings.context_tokens:
        yield from ("--max-model-len", str(settings.context_tokens))
    if kind == "cpu":
        yield "--enforce-eager"
    else:
        yield from ("--gpu-memory-utilization", str(settings.gpu_memory))
        yield from ("--tensor-parallel-size", str(settings.gpus))
    if settings.lora_rank:
        yield from ("--enable-lora", "--max-lora-rank", str(_served_rank(settings.lora_rank)))
        yield from ("--max-loras", str(settings.loras), "--max-cpu-loras", str(settings.loras))
    if settings.transfer:
        yield from ("--weight-transfer-config", json.dumps({"backend": settings.transfer}))


def _served_rank(rank: int) -> int:
    """The next rank that vLLM has kernels for."""
    return next((one for one in (8, 16, 32, 64, 128, 256, 320, 512) if one >= rank), rank)


def server_variables(settings: LaunchSettings, kind: Kind) -> dict[str, str]:
    """The environment variables of the server."""
    told = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # the trainer has brought the model to this disk
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if settings.lora_rank:
        told["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if kind == "cpu":
        told["VLLM_CPU_KVCACHE_SPACE"] = str(settings.cache_gib)
    elif settings.devices:
        told["CUDA_VISIBLE_DEVICES"] = settings.devices
    # OMP_NUM_THREADS is the trainer's: vLLM binds its own threads.
    inherited = {name: one for name, one in os.environ.items() if name != "OMP_NUM_THREADS"}
    return inherited | told | dict(settings.variables)


class ServerProcess:
    """One server, which may be started again after its death.

    Args:
        environment: What it runs from.
        settings: How.
        log: File for what it prints; begun anew with each start.
        weights: Folder through which its weights pass; removed if the trainer is killed.
    """

    def __init__(
        self,
        environment: ServerEnvironment,
        settings: LaunchSettings,
        log: Path,
        *,
        weights: Path | None = None,
    ) -> None:
        self._environment, self._settings, self._log = environment, settings, log
        self._weights = weights
        self._untied = log.with_suffix(".model")
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._starts = 0
        self.url = ""

    @property
    def pid(self) -> int | None:
        """Process id of the server, which leads its group; ``None`` if none was started."""
        return self._pid

    @property
    def death(self) -> str | None:
        """How it ended, with its own last words; ``None`` while it runs or none was started."""
        if self._guard is None or self._guard.poll() is None:
            return None
        return f"the vLLM server (pid {self._pid}) {_words(self._guard.returncode)}" + last_words(
            self._log
        )

    async def start(self, model: str | Path) -> None:
        """Start it and return once it answers; nothing is left of it if it does not.

        Args:
            model: Folder of the model (or a hub's id that is in the local cache).

        Raises:
            ConfigError: a model that the CPU build cannot serve.
            EngineError: it ended, or did not answer in time; the message has its own words.
        """
        await self.stop()
        if self._environment.kind == "cpu":
            _check_heads(Path(model))
            if is_tied(Path(model)):
                model = untied(Path(model), self._untied)
        port = _free_port()
        self._spawn(str(model), port)
        self.url = f"http://{HOST}:{port}"
        try:
            async with asyncio.timeout(self._settings.start_s):
                await self._answers()
        except TimeoutError:
            await self.stop()
            raise EngineError(
                f"the vLLM server did not answer within {self._settings.start_s:g} s and was ended"
                + last_words(self._log)
            ) from None
        except BaseException:
            await self.stop()
            raise

    def _spawn(self, model: str, port: int) -> None:
        told = (str(os.getpid()), str(GRACE_S), str(self._weights or ""))
        guarded = [sys.executable, "-I", str(GUARD), *told]
        seed = derive_seed(self._settings.seed, "start", self._starts) % SEEDS
        self._starts += 1
        settings = replace(self._settings, seed=seed)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._log.open("wb") as log:
                self._guard = subprocess.Popen(
                    [*guarded, *command(self._environment, settings, model, port)],
                    stdin=subprocess.PIPE,  # closes when this process ends, however it does
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    env=server_variables(self._settings, self._environment.kind),
                )
        except OSError as error:
            raise EngineError(f"the vLLM server could not be started: {error}") from error
        assert self._guard.stdout is not None
        with self._guard.stdout as said:
            line = said.readline().strip()
        self._pid = int(line) if line.isdigit() else None

    async def _answers(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
            while True:
                if self.death is not None:
                    raise EngineError(self.death + self._where())
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.url}/health")).status_code == 200:
                        return
                await asyncio.sleep(_POLL_S)

    def _where(self) -> str:
        """Where all that it printed can be read, if that file stays."""
        stays = self._weights is None or not self._log.is_relative_to(self._weights)
        return f"\nEverything that it printed: {self._log}" if stays else ""

    async def stop(self) -> None:
        """End it and all that it started; returns when nothing of it is left."""
        guard, self._guard = self._guard, None
        shutil.rmtree(self._untied, ignore_errors=True)
        if guard is None:
            return
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            async with asyncio.timeout(2 * GRACE_S):
                while guard.poll() is None:  # noqa: ASYNC110 - nothing tells of its end
                    await asyncio.sleep(0.05)
        except TimeoutError:
            guard.kill()
            guard.wait()
        finally:
            self._kill_group()

    def _kill_group(self) -> None:
        """Whatever the guard may have left, were it killed itself."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        self._pid = None


def last_words(log: Path) -> str:
    """What a server's log says of its end: the errors that it raised, or else its last lines."""
    try:
        text = log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [_PREFIX.sub("", line, count=1) for line in text.splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    causes = [line for line in raised if not _ECHO.search(line)] or raised
    shown = list(dict.fromkeys(causes))[-_ERRORS:]
    title = "It raised:" if shown else "The last that it printed:"
    shown = shown or [line for line in lines if line.strip()][-_LOG_LINES:]
    return "".join(f"\n  {line[:_LONGEST]}" for line in [title, *shown] if shown)


def _check_heads(folder: Path) -> None:
    """Refuse at once what would kill the server at the first request."""
    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # a hub's id, or what the server itself will refuse
    heads, width = told.get("num_attention_heads"), told.get("hidden_size")
    size = told.get("head_dim") or (width // heads if heads and width else None)
    if size is not None and size not in _CPU_HEAD_SIZES:
        raise ConfigError(
            f"the model in '{folder}' has attention heads of {size} numbers, and vLLM's build for "
            f"CPUs serves only {', '.join(map(str, _CPU_HEAD_SIZES))}: use engine: {{name: hf}}"
        )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        port: int = one.getsockname()[1]
        return port


def _words(code: int) -> str:
    if code < 0:
        return "lost its guard"
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
