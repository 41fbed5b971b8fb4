"""What environments themselves say was played: a ledger beside the store, to judge it by.

Every answer of an environment is a line in a file before it is given, and is forced to the disk
when the episode ends. So whatever a store holds must be in the ledger, whoever was killed between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentrl.core.errors import DataError

__all__ = ["Answered", "Ledger", "Playing", "read_ledger"]

# Files stay below what ``chaos.full_disk`` leaves room for: the ledger's disk never fills.
LARGEST_FILE = 40_000


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer of an environment: to which action, and what it said."""

    action: str
    reward: float
    over: bool


@dataclass(slots=True)
class Playing:
    """One environment that was made: of which task and seed, and its answers in order.

    ``breaks_at`` is the step from which on nothing it does may be on record, as planned; ``None``:
    it is sound.
    """

    number: int
    task_id: str
    seed: int
    breaks_at: int | None
    answers: list[Answered] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """The environment has ended the episode."""
        return bool(self.answers) and self.answers[-1].over


class Ledger:
    """Appends lines to files of this process in ``directory``; any number of processes may."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = -1
        self._written = 0
        self._files = 0

    def begin(self, playing: Playing) -> None:
        """Note that an environment was made."""
        line = asdict(playing)
        del line["answers"]
        self._write(line)

    def answer(self, number: int, answered: Answered) -> None:
        """Note what the environment of playing ``number`` is about to say."""
        self._write({"number": number, **asdict(answered)})
        if answered.over:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; the next line begins another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line).encode() + b"\n"
        if self._written + len(text) > LARGEST_FILE:
            self.close()
        if self._file < 0:
            path = self._directory / f"{os.getpid()}-{id(self):x}-{self._files:06}.jsonl"
            self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
            self._written, self._files = 0, self._files + 1
        self._written += os.write(self._file, text)


def read_ledger(directory: Path | str) -> dict[int, Playing]:
    """All playings by number.

    Raises:
        DataError: two environments have one number, or an answer belongs to none.
    """
    begun: dict[int, Playing] = {}
    answers: list[tuple[int, Answered]] = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            number = line.pop("number")
            if "task_id" not in line:
                answers.append((number, Answered(**line)))
                continue
            if number in begun:
                raise DataError(f"ledger {path}: playing {number} was begun twice")
            begun[number] = Playing(number, **line)
    # A playing writes to the files of one process; their names sort in the order of writing.
    for number, answered in answers:
        if number not in begun:
            raise DataError(f"ledger {directory}: an answer of playing {number}, never begun")
        begun[number].answers.append(answered)
    return begun
