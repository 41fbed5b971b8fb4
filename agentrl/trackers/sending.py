"""Sends a run's numbers to trackers. Whatever a tracker does, the run neither stops nor waits.

Each tracker lives in a thread of its own, from its making to its end: it may block, be slow, or
fail. Then that is told once, and the run goes on without it.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentrl.config import PluginConfig, RunConfig
from agentrl.registry import make, verify

__all__ = ["Tracker", "Trackers", "check_trackers", "open_trackers"]

FOLDER = "trackers"
WAITING_POINTS = 10_000  # a tracker that is further behind is given up
CLOSE_S = 30.0  # all trackers together, to send what is left
SUPPLIED = ("run_dir", "config")


class Tracker(Protocol):
    """A place for numbers. Made, called and closed in one thread; whatever it raises ends it.

    Its class or function takes the options of the run file, and the keyword arguments ``run_dir``
    (a ``Path``) and ``config`` (the run file as a mapping). A class may have a static method
    ``check_installed()`` that raises ``MissingDependencyError``: it is called before the run.
    """

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        """Take in ``metrics`` at ``step`` of ``axis`` (``iteration``, ``stage0/update``, ...).

        The steps of an axis rise, over all resumptions of the run. A metric has always one axis.
        """

    def close(self) -> None:
        """Send what is left."""


def check_trackers(trackers: Sequence[PluginConfig]) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigError: a tracker that is not known, or an option that it does not take.
        MissingDependencyError: its library is not installed.
    """
    for one in trackers:
        check = getattr(verify("tracker", one.name, one.options, SUPPLIED), "check_installed", None)
        if check is not None:
            check()


@dataclass(frozen=True, slots=True)
class Trackers:
    """The trackers of a run; none by default."""

    outlets: Sequence[_Outlet] = ()

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        """Hand ``metrics`` to every tracker; returns at once."""
        for one in self.outlets:
            one.put(metrics, axis, step)


@contextmanager
def open_trackers(
    config: RunConfig,
    warn: Callable[[str], None],
    *,
    close_s: float = CLOSE_S,
) -> Iterator[Trackers]:
    """The trackers that the run file asks for; they are made in the background.

    Args:
        config: The run. Steps that its trackers have seen before a kill are not sent again.
        warn: Told of a tracker that is given up, from its thread.
        close_s: At the end they have this long to send what is left.
    """
    data = config.model_dump(mode="json") if config.trackers else {}
    outlets = [_Outlet(one, config.run_dir, data, warn) for one in config.trackers]
    for outlet in outlets:
        outlet.start()
    try:
        yield Trackers(outlets)
    finally:
        for outlet in outlets:
            outlet.finish()
        deadline = time.monotonic() + close_s
        for outlet in outlets:
            outlet.wait(max(deadline - time.monotonic(), 0.0))


class _Outlet:
    """One tracker and its thread."""

    def __init__(
        self,
        plugin: PluginConfig,
        run_dir: Path,
        config: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self._plugin, self._run_dir, self._config, self._warn = plugin, run_dir, config, warn
        self._waiting: queue.Queue[tuple[Mapping[str, float], str, int] | None] = queue.Queue()
        self._given_up = threading.Lock()  # taken once, by whoever says it
        self._thread = threading.Thread(
            target=self._work, name=f"tracker-{plugin.name}", daemon=True
        )
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", plugin.name)
        self._sent_file = run_dir / FOLDER / f"{plain}.json"

    def start(self) -> None:
        self._thread.start()

    def put(self, metrics: Mapping[str, float], axis: str, step: int) -> None:
        if self._given_up.locked():
            return
        if self._waiting.qsize() >= WAITING_POINTS:
            self._give_up(f"it is {WAITING_POINTS:,} points behind")
        else:
            self._waiting.put((metrics, axis, step))

    def finish(self) -> None:
        """Nothing comes after this."""
        self._waiting.put(None)

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._give_up("it did not end in time; what it had not sent yet is missing there")

    def _work(self) -> None:
        try:
            options = self._plugin.options
            tracker: Tracker = make(
                "tracker", self._plugin.name, options, run_dir=self._run_dir, config=self._config
            )
            sent = self._sent()
            while (point := self._waiting.get()) is not None and not self._given_up.locked():
                metrics, axis, step = point
                if step > sent.get(axis, -1):
                    tracker.log(metrics, axis=axis, step=step)
                    sent[axis] = step
                    self._note(sent)
            tracker.close()
        except BaseException as error:  # foreign code: even sys.exit() must not pass in silence
            self._give_up(f"{type(error).__name__}: {error}".rstrip(". "))

    def _sent(self) -> dict[str, int]:
        """The last step of each axis that was sent, by this process or one before."""
        if not self._sent_file.exists():
            return {}
        return {
            str(axis): int(step)
            for axis, step in json.loads(self._sent_file.read_text(encoding="utf-8")).items()
        }

    def _note(self, sent: Mapping[str, int]) -> None:
        self._sent_file.parent.mkdir(parents=True, exist_ok=True)
        new = self._sent_file.with_suffix(".new")
        new.write_text(json.dumps(sent), encoding="utf-8")
        new.replace(self._sent_file)

    def _give_up(self, reason: str) -> None:
        if self._given_up.acquire(blocking=False):
            self._warn(
                f"the tracker '{self._plugin.name}' is given up, and the run goes on without it: "
                f"{reason}. The run's own store has every number"
            )
