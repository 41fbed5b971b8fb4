"""Tells an engine that is down from single calls that fail, and has one call at a time try it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Call", "Outage", "Outages"]

Outage = Literal["", "hit", "probe"]
LONGEST_PAUSE_S = 30.0
_LOG = logging.getLogger("agentrl")


@dataclass(slots=True)
class Call:
    """One call of the engine: how many outages were over when it began; whether it tries it."""

    epoch: int
    probe: bool = False


class Outages:
    """What all calls of one engine know of each other. For one event loop.

    The engine is down once calls of two episodes failed and none was answered between. Calls that
    come then wait; after a pause the first of them tries the engine alone, and after a longer
    pause the next. Any answer ends the outage, and all that wait may begin.

    Args:
        pause_s: Before the first of them; it doubles each time, up to ``LONGEST_PAUSE_S``.

    Attributes:
        count: Outages so far.
        down: One is on.
    """

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        self.count = 0
        self.down = False
        self._over = 0
        self._suspect: Hashable = None  # whose call failed, none having been answered since
        self._queue: deque[asyncio.Future[bool]] = deque()
        self._probes = 0
        self._pause: asyncio.TimerHandle | None = None
        self._wanted = False  # the next call that comes is to try the engine

    @property
    def pausing(self) -> bool:
        """Everybody waits, and shall."""
        return self._pause is not None

    @property
    def waiting(self) -> int:
        """Calls that wait for the engine to come back."""
        return sum(not one.done() for one in self._queue)

    async def admit(self) -> Call:
        """Wait until a call may begin: at once, or when the outage is over, or to try the engine.

        Cancelling gives the place in the queue up.
        """
        probe = False
        if self.down and self._wanted:
            self._wanted, probe = False, True
        elif self.down:
            turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                probe = await turn
            except asyncio.CancelledError:
                if not turn.cancelled() and turn.result():
                    self._try()  # let in and cancelled at one moment
                raise
        return Call(self._over, probe)

    def answered(self, call: Call) -> None:
        """The engine has answered: it is up, for all."""
        self._suspect = None
        if not self.down:
            return
        _LOG.warning("the engine answers again")
        self.down, self._wanted = False, False
        self._over += 1
        self._stop_pausing()
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(False)

    def failed(self, call: Call, who: Hashable) -> Outage:
        """The engine has failed a call of the episode ``who``.

        Returns:
            Empty: it may be the episode's own. ``hit``: the engine was down for others too while
            the call lasted. ``probe``: the call tried an engine that was known to be down.
        """
        if self.down:
            if call.probe:
                self._probes += 1
                self._pause_then_try()
            return "probe" if call.probe else "hit"
        if call.epoch < self._over:
            return "hit"  # it began before an outage that is over
        if self._suspect in (None, who):
            self._suspect = who
            return ""
        self.count += 1
        self.down, self._suspect, self._probes = True, None, 0
        _LOG.warning(
            "the engine is down: calls of two episodes failed and none was answered between. "
            "From now on one call at a time tries it, with pauses; the others wait"
        )
        self._pause_then_try()
        return "hit"

    def withdrawn(self, call: Call) -> None:
        """A call was given up by its caller: it says nothing of the engine."""
        if self.down and call.probe:
            self._try()

    def _pause_then_try(self) -> None:
        self._stop_pausing()
        pause = min(self.pause_s * 2.0 ** min(self._probes, 30), LONGEST_PAUSE_S)
        self._pause = asyncio.get_running_loop().call_later(pause, self._try)

    def _stop_pausing(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _try(self) -> None:
        """Let the first that waits try the engine, or else the next that comes."""
        self._stop_pausing()
        if not self.down:
            return
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._wanted = True
