"""The private folder through which weights pass from the trainer to its engine's process.

A publication is one file, written beside and renamed: it is whole or not there. Files are numbered
by publication, not by policy version, for one version may be published twice (after a checkpoint
was loaded). The newest stays, so that a process that died is started again from it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentrl.core.errors import WeightSyncError

__all__ = ["Publication", "WeightFolder"]

MEMORY = Path("/dev/shm")
ROOM = 4  # as many copies of the weights must fit into memory for its folder to be used


@dataclass(frozen=True, slots=True)
class Publication:
    """Weights on their way: ``number`` counts publications, from 1."""

    number: int
    version: int
    path: Path


class WeightFolder:
    """Owns the folder; ``publish`` is called by one thread at a time, the rest from any.

    Args:
        size: Bytes of the weights: decides whether they pass through memory or the disk.
    """

    def __init__(self, size: int = 0) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="agentrl-engine-", dir=_place(size)))  # mode 0700
        self.newest: Publication | None = None

    def publish(self, version: int, save: Callable[[Path], None]) -> Publication:
        """Write the weights as they are now.

        Args:
            version: Policy version of them.
            save: Writes them to the path it is given.

        Raises:
            WeightSyncError: they could not be written; the last publication stands.
        """
        number = 1 if self.newest is None else self.newest.number + 1
        path = self.path / f"weights-{number:06d}"
        part = path.with_suffix(".part")
        try:
            save(part)
            os.replace(part, path)
        except (OSError, RuntimeError) as error:
            part.unlink(missing_ok=True)
            raise WeightSyncError(
                f"cannot hand version {version} of the weights to the engine's process through "
                f"'{self.path}': {error}. Free some space there (or set TMPDIR to a larger disk), "
                "then resume the run"
            ) from error
        self.newest = Publication(number, version, path)
        return self.newest

    def forget_before(self, number: int) -> None:
        """Delete publications older than ``number``, which the process has taken up."""
        for path in self.path.glob("weights-*[0-9]"):
            if int(path.name.removeprefix("weights-")) < number:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _place(size: int) -> Path | None:
    """Memory where there is room for it, or else the folder for temporary files."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return MEMORY if os.access(MEMORY, os.W_OK) and free > ROOM * size else None
