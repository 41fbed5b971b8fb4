"""Threads for tools that are plain functions: one that never returns keeps no other from running.

Daemon threads, because those of a pool would keep the process from ending. An idle one is used
again, and ends when it has been idle for a while.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

__all__ = ["Threads"]

Work = Callable[[], None]


class Threads:
    """As many threads as there is work at once. ``work`` must not raise.

    Args:
        name: Of the threads.
        idle_s: After so many seconds without work a thread ends.
    """

    def __init__(self, name: str, *, idle_s: float = 5.0) -> None:
        self._name = name
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Work]] = []

    def run(self, work: Work) -> None:
        """Run ``work`` in a thread, at once."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(work)
            return
        inbox = queue.SimpleQueue()
        inbox.put(work)
        threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()

    def _serve(self, inbox: queue.SimpleQueue[Work]) -> None:
        while True:
            try:
                work = inbox.get(timeout=self._idle_s)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                work = inbox.get()  # it was chosen at that very moment
            work()
            del work  # an idle thread holds nothing of the last call
            with self._lock:
                self._idle.append(inbox)
