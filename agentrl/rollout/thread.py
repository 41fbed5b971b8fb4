"""The event loop of all episodes lives in a thread of its own; the learner owns the main one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread. ``run`` blocks the caller; exceptions cross over.

    Ctrl-C in the caller cancels what runs in the loop and waits for its teardown.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True)

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the loop and return its result."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self._cancel()
            raise

    def _cancel(self) -> None:
        async def cancel_all() -> None:
            others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
