"""An engine in a process of its own: the contract, versions, deaths, no process left behind.

The children host a scripted engine, which is ready at once and samples its own weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from agentrl.core.errors import EngineError, WeightSyncError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.process.engine import Limits, ProcessEngine, Program
from agentrl.engines.work import EngineWork
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.engine import CHECKS, EngineSubject
from agentrl.testing.scripted_host import CRASH, PATIENT, save_number

T = TypeVar("T")
HOST = "agentrl.testing.scripted_host:host"
DEADLINE_S = 120.0  # generous: nothing here depends on it


@dataclass
class Weights:
    """The trainer's weights: a number."""

    number: int = 5
    saved: int = 0
    full: bool = field(default=False)

    def save(self, path: Path) -> None:
        self.saved += 1
        if self.full:
            raise OSError("No space left on device")
        save_number(self.number, path)


def engine_of(weights: Weights, host: str = HOST, **options: object) -> ProcessEngine:
    return ProcessEngine(Program(host), save=weights.save, **options)  # type: ignore[arg-type]


async def ask(engine: ProcessEngine, prompt: int = 1, tokens: int = 3) -> Sample:
    return await engine.sample(
        (prompt,),
        sampling=Sampling(max_tokens=tokens),
        stop_token_ids=(),
        seed=0,
        episode_id="episode",
    )


def played(engine: ProcessEngine, work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work``, then close the engine; nothing of it may be left."""
    folder = engine._folder.path

    async def main() -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await work()
        finally:
            await engine.aclose()

    result = asyncio.run(main())
    assert not folder.exists()
    assert not engine._thread.is_alive()
    return result


async def alive(engine: ProcessEngine) -> int:
    """The id of a process that can sample."""
    await ask(engine)
    assert engine.pid is not None
    return engine.pid


def gone(pid: int) -> bool:
    """Whether there is no such process any more (one that ended and waits to be reaped is none)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def until(condition: Callable[[], bool]) -> None:
    deadline = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        if condition():
            return
        deadline.wait(0.05)
    raise AssertionError("it never came about")


def test_the_contract_holds() -> None:
    subject = EngineSubject(
        make=lambda: engine_of(Weights()),
        prompt_ids=(1, 2, 3),
        vocabulary_size=10,
        stop_token_ids=(9,),
    )
    assert_contract(CHECKS, subject)


def test_what_is_asked_after_a_publication_is_sampled_with_it() -> None:
    weights = Weights()
    engine = engine_of(weights, policy_version=7)

    async def work() -> None:
        for version in range(8, 40):
            weights.number = version
            engine.set_version(version)
            sample = await ask(engine)
            assert sample.token_ids == (version,) * 3
            assert sample.versions == ((0, version),)
            assert engine.policy_version == version

    played(engine, work)


def test_a_publication_before_the_process_is_ready_is_not_lost() -> None:
    weights = Weights(5)
    engine = engine_of(weights)
    weights.number = 6
    engine.set_version(1)

    async def work() -> None:
        assert (await ask(engine)).versions == ((0, 1),)

    played(engine, work)


def test_new_weights_come_between_two_tokens_and_drop_no_request() -> None:
    weights = Weights(5)
    engine = engine_of(weights)

    async def work() -> list[Sample]:
        calls = [asyncio.ensure_future(ask(engine, prompt=PATIENT, tokens=4)) for _ in range(4)]
        await ask(engine)
        for version in (1, 2, 3):
            weights.number = 5 + version
            engine.set_version(version)
            # The answer to a later request says that the weights were taken up meanwhile.
            assert (await ask(engine)).versions == ((0, version),)
        return list(await asyncio.gather(*calls))

    for one in played(engine, work):
        assert one.token_ids == (5, 6, 7, 8)
        assert one.logprobs == (-5.0, -6.0, -7.0, -8.0)
        assert one.versions == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_publishing_waits_for_nobody_and_keeps_few_files() -> None:
    # The process is stopped: it neither samples nor takes anything up, and set_version returns.
    weights = Weights(5)
    engine = engine_of(weights)

    async def work() -> None:
        pid = await alive(engine)
        os.kill(pid, signal.SIGSTOP)
        pending = asyncio.ensure_future(ask(engine))
        for version in range(1, 20):
            weights.number = version
            await asyncio.to_thread(engine.set_version, version)
        os.kill(pid, signal.SIGCONT)
        await pending
        assert (await ask(engine)).versions == ((0, 19),)
        left = [one.name for one in engine._folder.path.glob("weights-*")]
        assert left == ["weights-000020"]

    played(engine, work)


def test_a_process_that_hangs_over_its_weights_is_killed_and_replaced() -> None:
    weights = Weights(5)
    engine = engine_of(weights, limits=Limits(weights_s=0.2))

    async def work() -> None:
        os.kill(await alive(engine), signal.SIGSTOP)
        weights.number = 6
        engine.set_version(1)
        with pytest.raises(EngineError, match="did not take up version 1 of the weights within"):
            await ask(engine)
        assert (await ask(engine)).token_ids == (6, 6, 6)

    played(engine, work)
    assert engine.stats.deaths == 1


def test_a_dead_process_is_an_engine_error_and_another_goes_on_from_the_last_weights() -> None:
    weights = Weights(5)
    engine = engine_of(weights)

    async def work() -> None:
        pid = await alive(engine)
        weights.number = 6
        engine.set_version(1)
        weights.number = 7  # half-way through an update: nobody may see it
        long = [asyncio.ensure_future(ask(engine, tokens=10**6)) for _ in range(3)]
        await ask(engine)
        os.kill(pid, signal.SIGKILL)
        for one in await asyncio.gather(*long, return_exceptions=True):
            assert isinstance(one, EngineError)
            assert "was killed by SIGKILL" in str(one)
        again = await ask(engine)
        assert again.token_ids == (6, 6, 6)
        assert again.versions == ((0, 1),)
        assert engine.pid != pid
        assert gone(pid)

    before = weights.saved
    played(engine, work)
    assert engine.stats.deaths == 1
    assert weights.saved == before + 1
    work_done = EngineWork.of(engine)
    assert work_done is not None
    assert work_done.sampled_tokens >= 9  # of both processes


def test_processes_that_die_again_and_again_are_given_up() -> None:
    engine = engine_of(Weights(), limits=Limits(rebirths=2))

    async def work() -> None:
        for _ in range(2):
            with pytest.raises(EngineError, match="killed by SIGKILL"):
                await ask(engine, prompt=CRASH)
        for _ in range(3):
            with pytest.raises(EngineError, match="2 processes in a row died without an answer"):
                await ask(engine)

    played(engine, work)


def test_a_host_that_cannot_be_made_is_named() -> None:
    engine = engine_of(Weights(), host="agentrl.testing.scripted_host:nobody")

    async def work() -> None:
        with pytest.raises(EngineError, match="has no attribute 'nobody'"):
            await ask(engine)

    played(engine, work)


def test_weights_that_cannot_be_written_are_said_and_the_old_ones_stand() -> None:
    weights = Weights(5)
    engine = engine_of(weights)

    async def work() -> None:
        weights.full = True
        with pytest.raises(WeightSyncError, match=r"No space left on device.*Free some space"):
            engine.set_version(1)
        assert engine.policy_version == 0
        assert (await ask(engine)).versions == ((0, 0),)

    played(engine, work)
    with pytest.raises(WeightSyncError, match="after the engine had been closed"):
        engine.set_version(2)


def test_closing_ends_the_process_and_what_waits() -> None:
    engine = engine_of(Weights())

    async def work() -> tuple[int, BaseException | Sample]:
        pid = await alive(engine)
        call = asyncio.ensure_future(ask(engine, tokens=10**6))
        await ask(engine)
        await engine.aclose()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        with pytest.raises(EngineError, match="engine is closed"):
            await ask(engine)
        return pid, outcome

    pid, outcome = played(engine, work)
    assert isinstance(outcome, EngineError)
    assert gone(pid)


def test_an_engine_that_was_never_used_can_be_closed() -> None:
    engine = engine_of(Weights())
    asyncio.run(engine.aclose())
    assert not engine._folder.path.exists()


TRAINER = """
import asyncio, sys
from agentrl.core.trajectory import Sampling
from agentrl.engines.process.engine import ProcessEngine, Program
from agentrl.testing.scripted_host import save_number

engine = ProcessEngine(
    Program("agentrl.testing.scripted_host:host"), save=lambda path: save_number(5, path)
)

async def main():
    kind = Sampling(max_tokens=1)
    await engine.sample((1,), sampling=kind, stop_token_ids=(), seed=0, episode_id="a")
    print(engine.pid, engine._folder.path, flush=True)
    longest = 10**9 if sys.argv[1] == "waits" else 1  # answers come in all the time, or none does
    try:
        while True:
            await asyncio.gather(*(
                engine.sample((1,), sampling=Sampling(max_tokens=longest), stop_token_ids=(),
                              seed=0, episode_id=str(number))
                for number in range(20)
            ))
    finally:
        await engine.aclose()

asyncio.run(main())
"""


@pytest.fixture(params=["waits", "is answered"])
def trainer(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process with an engine in another one, which samples without end."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, request.param],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_trainer_that_ends_leaves_no_process_and_no_folder(
    trainer: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert trainer.stdout is not None
    pid, folder = trainer.stdout.readline().split()
    # To the group, as a terminal does it; the engine's process is in another one.
    os.killpg(trainer.pid, number)
    trainer.wait(DEADLINE_S)
    until(lambda: gone(int(pid)))
    until(lambda: not Path(folder).exists())
