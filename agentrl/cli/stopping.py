"""Being told to stop: SIGTERM ends a command as Ctrl-C does, so that it cleans up and says how to
go on.

Batch systems, containers and ``kill`` send SIGTERM; Python alone would end without a word.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["INTERRUPTED", "TERMINATED", "Terminated", "terminable"]

# What shells report of a program that a signal ended.
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def terminable() -> Iterator[None]:
    """Within it SIGTERM raises ``Terminated`` in the main thread.

    Whoever handles or ignores the signal already goes on doing so.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Terminated
