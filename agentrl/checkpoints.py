"""Checkpoints of a run: what it goes on from after it was stopped or killed.

``checkpoints/000042/`` in the run directory holds ``run.json`` (where the run stood; size and
checksum of every file) and ``learner/`` (weights, optimiser, schedule, random states). A folder is
made beside and renamed, so it is complete or not there. What was played since is in the store and
is not played again.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentrl.config import CheckpointsConfig
from agentrl.core.errors import DataError, SchemaVersionError, StoreError
from agentrl.core.protocols import Learner

__all__ = ["CHECKPOINTS", "Checkpoint", "Checkpoints", "RunState"]

CHECKPOINTS = "checkpoints"
STATE_FILE = "run.json"
LEARNER = "learner"
SCHEMA_VERSION = 1
_NEW = ".new"
_PIECE = 2**22


@dataclass(slots=True)
class RunState:
    """Where a run stands; the start is all zeros.

    Attributes:
        stage: Number of the stage under way; the number of stages when all are done.
        step: Steps of it that are done: updates of a clone stage, iterations of an rl stage.
        iteration: rl iterations done in all stages.
        policy_version: Version of the weights.
        episodes: Training episodes so far. tokens: sampled in them.
        stage_s: Seconds that the stage has taken. wall_s: and the whole run.
        event: Number of the store's last event.
        measured: Evaluations that are done.
        course: State of the strategies of the rl stage under way; empty before its first step.
    """

    stage: int = 0
    step: int = 0
    iteration: int = 0
    policy_version: int = 0
    episodes: int = 0
    tokens: int = 0
    stage_s: float = 0.0
    wall_s: float = 0.0
    event: int = 0
    measured: list[str] = field(default_factory=list)
    course: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on the disk and what its ``run.json`` says."""

    path: Path
    state: RunState

    @property
    def learner(self) -> Path:
        """Folder for ``Learner.load``."""
        return self.path / LEARNER

    @property
    def model(self) -> Path:
        """Folder of the model and its tokenizer."""
        return self.learner / "model"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of the run in ``run_dir``."""

    run_dir: Path
    settings: CheckpointsConfig

    def save(self, state: RunState, learner: Learner) -> Path:
        """Write a checkpoint, then delete the oldest beyond ``keep``.

        Raises:
            StoreError: the disk refused; the checkpoints that were there are as they were.
        """
        folder = self.run_dir / CHECKPOINTS
        numbers = [int(one.name) for one in folder.glob("[0-9]*")]
        path = folder / f"{max(numbers, default=0) + 1:06d}"
        new = folder / _NEW
        with self._writing(path):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            learner.save(new / LEARNER)
            data = {
                "schema_version": SCHEMA_VERSION,
                "state": asdict(state),
                "files": _fingerprints(new),
            }
            (new / STATE_FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")
            _force_to_disk(new / STATE_FILE)
            _force_to_disk(new)
            new.rename(path)
            _force_to_disk(folder)
        self._prune()
        return path

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, all of whose files are as they were written; ``None`` at first.

        Raises:
            DataError: a file of it is damaged; the message says what to do.
            SchemaVersionError: a release with another form of it wrote it.
        """
        complete = self._complete()
        if not complete:
            return None
        path = complete[-1]
        try:
            data = json.loads((path / STATE_FILE).read_text(encoding="utf-8"))
            version = data["schema_version"]
            if version != SCHEMA_VERSION:
                raise SchemaVersionError(
                    f"the checkpoint '{path}' has schema version {version}, this program reads "
                    f"{SCHEMA_VERSION}; resume with the release that wrote it"
                )
            state, files = RunState(**data["state"]), dict(data["files"])
            found = _fingerprints(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(self._damaged(path, f"{STATE_FILE}: {error!r}")) from None
        wrong = sorted(name for name in files if files[name] != found.get(name))
        if wrong:
            why = f"{wrong[0]} {'was changed' if wrong[0] in found else 'is missing'}"
            raise DataError(self._damaged(path, why))
        return Checkpoint(path, state)

    def _damaged(self, path: Path, why: str) -> str:
        earlier = [one for one in self._complete() if int(one.name) < int(path.name)]
        instead = f"from '{earlier[-1]}'" if earlier else "from the start of the run"
        return (
            f"the checkpoint '{path}' is damaged: {why}. Remove that folder, then "
            f"'agentrl train --resume {self.run_dir}' goes on {instead}; played episodes are kept"
        )

    def _complete(self) -> list[Path]:
        folder = self.run_dir / CHECKPOINTS
        complete = (one.parent for one in folder.glob(f"[0-9]*/{STATE_FILE}"))
        return sorted(complete, key=lambda one: int(one.name))

    def _prune(self) -> None:
        for path in self._complete()[: -self.settings.keep]:
            (path / STATE_FILE).unlink()  # first: half a folder is no checkpoint
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreError) as error:
            shutil.rmtree(path.parent / _NEW, ignore_errors=True)
            complete = self._complete()
            last = f"the last one, '{complete[-1]}', is intact" if complete else "there is none yet"
            raise StoreError(
                f"cannot write the checkpoint '{path}': {error}; {last}. Mend the cause (a full "
                f"disk?) and go on: agentrl train --resume {self.run_dir}"
            ) from error


def _fingerprints(folder: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of every file beneath ``folder``, but for ``run.json``."""
    files = sorted(one for one in folder.rglob("*") if one.is_file() and one.name != STATE_FILE)
    return {str(one.relative_to(folder)): _fingerprint(one) for one in files}


def _fingerprint(file: Path) -> list[int]:
    size = checksum = 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
    return [size, checksum]


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
