"""Starting a server: its flags, its last words, and that nothing is left of one that fails."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from agentrl.core.errors import ConfigError, EngineError
from agentrl.engines.vllm.environment import ServerEnvironment
from agentrl.engines.vllm.launch import LaunchSettings, ServerProcess, command, last_words

CPU = ServerEnvironment(Path("/server"), "cpu", "0.32.0")
GPU = ServerEnvironment(Path("/server"), "gpu", "0.33.0")


def pretended(folder: Path, script: str) -> ServerEnvironment:
    """An environment whose Python is a shell script."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return ServerEnvironment(folder, "gpu", "0.33.0")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_flags_that_samples_depend_on_are_always_given() -> None:
    for environment in (CPU, GPU):
        line = " ".join(command(environment, LaunchSettings(), "/model", 8000))
        assert "--logprobs-mode processed_logprobs" in line
        assert "--generation-config vllm" in line
        assert "--host 127.0.0.1 --port 8000" in line
        assert "--model /model --served-model-name policy" in line
    assert "--enforce-eager" in command(CPU, LaunchSettings(), "m", 1)
    assert "--enforce-eager" not in command(GPU, LaunchSettings(), "m", 1)


def test_flags_follow_the_settings() -> None:
    settings = LaunchSettings(
        dtype="bfloat16",
        context_tokens=4096,
        gpus=2,
        lora_rank=12,
        loras=3,
        transfer="nccl",
        seed=11,
        flags=("--seed", "3"),
    )
    line = command(GPU, settings, "m", 1)
    joined = " ".join(line)
    assert "--max-model-len 4096" in joined
    assert "--tensor-parallel-size 2" in joined
    assert "--enable-lora --max-lora-rank 16 --max-loras 3" in joined
    assert json.loads(line[line.index("--weight-transfer-config") + 1]) == {"backend": "nccl"}
    assert "--seed 11" in joined
    assert line[-2:] == ["--seed", "3"]  # what the user says comes last and holds


def test_last_words_are_the_errors_that_began_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(EngineCore pid=7) ERROR 12-01 12:39:24 [core.py:1512] Traceback (most recent call):\n"
        "(EngineCore pid=7) ERROR 12-01 12:39:24 [core.py:1512] ValueError: 100 GiB are too many\n"
        "(EngineCore pid=7) ValueError: 100 GiB are too many\n"
        "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert last_words(log) == "\n  It raised:\n  ValueError: 100 GiB are too many"
    log.write_text("loading\n\napi_server.py: error: unrecognized arguments: --nonsense\n")
    assert last_words(log).endswith("\n  api_server.py: error: unrecognized arguments: --nonsense")
    assert last_words(tmp_path / "none") == ""


def test_a_server_that_ends_at_its_start_says_why(tmp_path: Path) -> None:
    environment = pretended(tmp_path, "echo 'OSError: no such model'; exit 3")
    server = ServerProcess(environment, LaunchSettings(), tmp_path / "logs" / "server.log")
    with pytest.raises(EngineError, match=r"ended with exit code 3\n.*\n  OSError: no such model"):
        asyncio.run(server.start("model"))
    assert server.pid is None


def test_no_start_draws_what_another_has_drawn(tmp_path: Path) -> None:
    # vLLM's own seed is 0 everywhere: members of a group at two servers would be copies.
    environment = pretended(tmp_path, f'echo "$@" >>{tmp_path}/lines; exit 3')
    for seed in (1, 2):
        server = ServerProcess(environment, LaunchSettings(seed=seed), tmp_path / "server.log")
        for _ in range(2):
            with pytest.raises(EngineError, match="exit code 3"):
                asyncio.run(server.start("model"))
    told = (tmp_path / "lines").read_text().split()
    seeds = [int(told[at + 1]) for at, one in enumerate(told) if one == "--seed"]
    assert len(set(seeds)) == 4
    assert all(0 <= one < 2**32 for one in seeds)


def test_a_server_that_never_answers_is_ended_in_time(tmp_path: Path) -> None:
    environment = pretended(tmp_path, f"echo $$ >{tmp_path}/pid; echo loading; exec sleep 600")
    settings = LaunchSettings(start_s=1.0)
    server = ServerProcess(environment, settings, tmp_path / "server.log")
    with pytest.raises(EngineError, match=r"did not answer within 1 s(.|\n)*loading"):
        asyncio.run(server.start("model"))
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_heads_that_the_cpu_build_cannot_serve_are_refused_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64, "num_attention_heads": 4}')
    server = ServerProcess(CPU, LaunchSettings(), tmp_path / "log")
    with pytest.raises(ConfigError, match=r"heads of 16 numbers, .* serves only 32, 64"):
        asyncio.run(server.start(tmp_path))


def test_an_environment_that_is_gone_is_said(tmp_path: Path) -> None:
    server = ServerProcess(
        ServerEnvironment(tmp_path, "gpu", "0.33.0"), LaunchSettings(), tmp_path / "log"
    )
    with pytest.raises(EngineError, match="No such file"):
        asyncio.run(server.start("model"))
