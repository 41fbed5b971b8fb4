"""``tensorboard``: event files that TensorBoard reads, written by its own library."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentrl.core.errors import MissingDependencyError

__all__ = ["TensorBoard"]


class TensorBoard:
    """Scalars in event files under ``run_dir/trackers/tensorboard``.

    A resumed run adds a file to the same folder; TensorBoard shows one curve.

    Args:
        run_dir: The run's directory.
        config: The run file; not written, it lies beside the events.
        folder: Where to write instead, for a folder that TensorBoard watches already.
        clock: Seconds since 1970, which TensorBoard shows as time of day.

    Raises:
        MissingDependencyError: TensorBoard is not installed.
        OSError: the folder cannot be written.
    """

    def __init__(
        self,
        *,
        run_dir: Path,
        config: Mapping[str, Any],
        folder: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.check_installed()
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._clock = Event, Summary, clock
        target = Path(folder) / run_dir.resolve().name if folder else None
        self._writer = EventFileWriter(str(target or run_dir / "trackers" / "tensorboard"))

    @staticmethod
    def check_installed() -> None:
        """Raise ``MissingDependencyError`` where the library is not there; imports nothing."""
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingDependencyError.for_extra(
                "tensorboard", "tensorboard", "The tracker 'tensorboard'"
            )

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        """Write ``metrics`` at ``step`` through to the disk; each has its own axis anyway."""
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()
        ]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=self._clock(), step=step, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
