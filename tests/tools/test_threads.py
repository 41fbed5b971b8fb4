"""Threads for plain functions: used again when idle, never waited for."""

from __future__ import annotations

import threading
import time

from agentrl.tools.threads import Threads


def until(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def alive(name: str) -> int:
    return sum(one.name == name for one in threading.enumerate())


def test_an_idle_thread_is_used_again_and_ends_in_time() -> None:
    threads, seen = Threads("again", idle_s=0.2), list[int]()
    for _ in range(20):
        before = len(seen)
        threads.run(lambda: seen.append(threading.get_ident()))
        until(lambda: len(seen) > before)  # noqa: B023 - called within the round
        time.sleep(0.002)  # it has to become idle first
    assert len(set(seen)) < 20
    until(lambda: alive("again") == 0)
    threads.run(lambda: seen.append(0))  # and begins again
    until(lambda: seen[-1] == 0)


def test_one_that_never_returns_keeps_no_other_from_running() -> None:
    threads, release, done = Threads("stuck", idle_s=0.1), threading.Event(), list[int]()
    for _ in range(5):
        threads.run(release.wait)  # type: ignore[arg-type]
    threads.run(lambda: done.append(1))
    until(lambda: done == [1])
    assert alive("stuck") >= 5
    release.set()
    until(lambda: alive("stuck") == 0)


def test_work_is_never_lost_between_idle_and_end() -> None:
    threads, lock, done = Threads("race", idle_s=0.001), threading.Lock(), list[int]()

    def work() -> None:
        with lock:
            done.append(1)

    for _ in range(300):
        threads.run(work)
        time.sleep(0.001)  # about when a thread gives up
    until(lambda: len(done) == 300)
