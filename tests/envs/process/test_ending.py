"""However a factory or its process ends, nothing is left: no process, descriptor or thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentrl.core.errors import EnvError
from agentrl.core.message import Message
from agentrl.envs.process.factory import ProcessFactory, Workers, in_processes
from tests.envs.process.conftest import BROKEN, Start, children, failure, wait_until

LOOK = Message("assistant", "look")


def present() -> set[object]:
    """Processes, descriptors and threads. What others left may end meanwhile, so compare by set."""
    files = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            files.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {*children(), *files, *threading.enumerate()}


def made(**options: Any) -> ProcessFactory:
    return in_processes(BROKEN, options, Workers(processes=2, grace_s=0.6))


async def begun(factory: ProcessFactory, count: int = 2) -> list[Any]:
    """Episodes that have been reset."""
    task = factory.tasks("train")[0]
    envs = [await factory.make(task, seed=0) for _ in range(count)]
    for env in envs:
        await env.reset()
    return envs


def test_closing_closes_what_is_open_and_leaves_nothing(tmp_path: Path) -> None:
    gc.collect()
    before = present()
    ledger = tmp_path / "ledger"
    factory = made(ledger=str(ledger))

    async def work() -> None:
        envs = await begun(factory, 5)
        await envs[0].aclose()
        assert len(children()) == 2
        await factory.aclose()
        await factory.aclose()
        for env in envs:
            await env.aclose()  # it was closed with its process
        with pytest.raises(EnvError, match="workers are closed; make a new factory"):
            await factory.make(factory.tasks("train")[0], seed=0)
        with pytest.raises(EnvError):
            await envs[1].step(LOOK)

    asyncio.run(work())
    assert "workers are closed" in str(failure(lambda: factory.tasks("test")))
    assert sorted(ledger.read_text().split()) == ["close"] * 5 + ["open"] * 5
    assert present() - before == set()


def test_failed_and_killed_processes_leave_nothing_either(tmp_path: Path) -> None:
    gc.collect()
    before = present()
    failure(lambda: in_processes("no-such-env"))
    failure(lambda: in_processes("toy", {}, Workers(python="false")))
    factory = made(fault="exit", once=str(tmp_path / "once"))

    async def work() -> None:
        first, _ = await begun(factory)
        with pytest.raises(EnvError):
            await first.step(LOOK)
        await factory.aclose()

    asyncio.run(work())
    assert present() - before == set()


@pytest.mark.parametrize("fault", ["block", "stop", "ignore_cancelling"])
def test_what_does_not_end_is_killed(fault: str) -> None:
    factory = made(fault=fault)

    async def work() -> None:
        first, second = await begun(factory)
        stuck = asyncio.create_task(first.step(LOOK))
        await asyncio.sleep(0.05)
        await factory.aclose()
        with pytest.raises(EnvError):
            await stuck
        await second.aclose()

    asyncio.run(work())
    assert children() == []


def test_waiting_calls_are_told_when_the_factory_closes() -> None:
    factory = in_processes(BROKEN, {"fault": "hang"}, Workers(episodes=1, grace_s=0.6))

    async def work() -> None:
        (env,) = await begun(factory, 1)
        stepping = asyncio.create_task(env.step(LOOK))
        waiting = asyncio.create_task(factory.make(factory.tasks("train")[0], seed=0))
        await asyncio.sleep(0.05)
        await factory.aclose()
        for call in (stepping, waiting):
            with pytest.raises(EnvError):
                await call

    asyncio.run(work())


def test_a_forgotten_factory_ends_its_processes() -> None:
    factory = made()
    factory.tasks("train")
    assert len(children()) == 1
    del factory
    gc.collect()
    wait_until(lambda: children() == [])


PROGRAM = """
import asyncio, os, sys
from agentrl.core.message import Message
from agentrl.envs.process.factory import Workers, in_processes

name, fault, ledger, sibling, end = sys.argv[1:]
options = {"fault": fault, "ledger": ledger}
factory = in_processes(name, options, Workers(processes=2, grace_s=0.6))
if sibling and os.fork() == 0:  # shares the trainer's end of the socket, and outlives it
    import time
    time.sleep(60)
    os._exit(0)

async def main():
    task = factory.tasks("train")[0]
    envs = [await factory.make(task, seed=0) for _ in range(2)]
    for env in envs:
        await env.reset()
    if end:
        return envs
    print("playing", flush=True)
    await asyncio.gather(*(env.step(Message("assistant", "look")) for env in envs))
    await asyncio.Event().wait()

asyncio.run(main())
"""


def trainer(tmp_path: Path, *, fault: str = "", sibling: str = "", end: str = "") -> Any:
    """A process of its own that plays two episodes in two workers."""
    command = [sys.executable, "-c", PROGRAM, BROKEN, fault, str(tmp_path / "ledger"), sibling, end]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def closed(tmp_path: Path) -> int:
    ledger = tmp_path / "ledger"
    return ledger.read_text().split().count("close") if ledger.exists() else 0


@pytest.mark.parametrize(
    ("fault", "sibling"), [("hang", ""), ("block", ""), ("stop", ""), ("hang", "sibling")]
)
def test_a_killed_trainer_leaves_no_worker(fault: str, sibling: str, tmp_path: Path) -> None:
    process = trainer(tmp_path, fault=fault, sibling=sibling)
    with process:
        assert process.stdout.readline() == "playing\n"
        family = psutil.Process(process.pid).children(recursive=True)
        workers = [one for one in family if "agentrl.envs.process" in " ".join(one.cmdline())]
        workers = [one for one in workers if one.pid == os.getsid(one.pid)]
        siblings = [one for one in family if one not in workers]
        assert (len(workers), len(siblings)) == (2, 1 if sibling else 0)
        if fault == "stop":
            wait_until(lambda: all(one.status() == psutil.STATUS_STOPPED for one in workers))
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(one.is_running() and not is_dead(one) for one in workers))
        for one in siblings:
            one.kill()
    if fault == "hang":
        assert closed(tmp_path) == 2  # they were closed before their process ended


def is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # its new parent may not have looked yet
    except psutil.NoSuchProcess:
        return True


def test_a_trainer_that_ends_without_closing_ends_quietly(tmp_path: Path) -> None:
    process = trainer(tmp_path, end="end")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "", "")
    wait_until(lambda: closed(tmp_path) == 2)


def test_what_environments_have_started_ends_with_their_process(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tests_starts_servers.py").write_text(
        """
import multiprocessing, subprocess, time
from agentrl.testing.broken import BrokenFactory

class Factory(BrokenFactory):
    async def make(self, task, *, seed):
        # One that has no part in the protocol, and one that holds a copy of its socket.
        subprocess.Popen(["sleep", "1000"])
        context = multiprocessing.get_context("fork")
        context.Process(target=time.sleep, args=(1000,), daemon=True).start()
        return await super().make(task, seed=seed)
"""
    )
    factory = start(name="tests_starts_servers:Factory", options={"fault": "kill"})

    async def work() -> None:
        (env,) = await begun(factory, 1)
        assert len(children()) == 3
        with pytest.raises(EnvError, match="was killed by SIGKILL"):
            await env.step(LOOK)
        await begun(factory, 1)

    asyncio.run(work())
    wait_until(lambda: len(children()) == 3)  # those of the new process alone
