"""What a child process hosts in tests of engines in processes: a scripted engine, ready at once.

Weights are a file with one number. An answer is that number again and again, so that whatever was
sampled says which weights it was sampled with.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrl.core.errors import EngineError
from agentrl.core.trajectory import Sample, Sampling

__all__ = ["CRASH", "PATIENT", "NumberEngine", "NumberHost", "host", "save_number"]

ANSWER = 4  # tokens, where the caller gave stop ids
CRASH = 666  # a prompt that begins with it kills the process
PATIENT = 667  # a prompt that begins with it is given one token by each version


def save_number(number: int, path: Path) -> None:
    """The weights of a ``NumberHost``."""
    path.write_text(str(number), encoding="ascii")


class NumberEngine:
    """Samples the weights, one token a turn of the event loop, and a stop id as the fourth.

    A token is the number that the weights are when it is drawn; its log-probability is minus that.
    Prompts that begin with ``CRASH`` kill the process.
    """

    context_tokens = 1000

    def __init__(self, number: int, version: int) -> None:
        self.number, self.version = number, version
        self.sampled = self.calls = 0

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        if not prompt_ids or sampling.max_tokens < 1:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens and max_tokens={sampling.max_tokens}: both "
                "must be at least 1"
            )
        if prompt_ids[0] == CRASH:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        ids: list[int] = []
        versions: list[tuple[int, int]] = []
        while len(ids) < sampling.max_tokens:
            await asyncio.sleep(0)
            if prompt_ids[0] == PATIENT and versions and versions[-1][1] == self.version:
                continue
            if not versions or versions[-1][1] != self.version:
                versions.append((len(ids), self.version))
            ends = bool(stop_token_ids) and len(ids) == ANSWER - 1
            ids.append(stop_token_ids[0] if ends else self.number)
            self.sampled += 1
            if ids[-1] in stop_token_ids:
                break
        stopped = ids[-1] in stop_token_ids
        logprobs = tuple(-float(one) for one in ids)
        return Sample(tuple(ids), logprobs, tuple(versions), "stop" if stopped else "length")

    def release(self, episode_id: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is open."""


class NumberHost:
    """The host of a ``NumberEngine``."""

    def __init__(self, file: Path, version: int) -> None:
        self.engine = NumberEngine(int(file.read_text(encoding="ascii")), version)

    def take_up(self, file: Path, version: int) -> None:
        self.engine.number = int(file.read_text(encoding="ascii"))
        self.engine.version = version

    def work(self) -> Mapping[str, float]:
        engine = self.engine
        return {
            "busy_s": 0.0,
            "forwards": engine.sampled,
            "rows": engine.sampled,
            "sampled_tokens": engine.sampled,
        }


def host(folder: Path, file: Path, version: int) -> NumberHost:
    """Make it, in the child."""
    return NumberHost(file, version)
