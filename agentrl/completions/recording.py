"""What an endpoint answered, kept in a file, and answered from it again: tests without a network.

One JSON object a line: the request (without any key) and the body of its answer. Equal requests are
answered in the order in which they were recorded.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, EngineError
from agentrl.core.task import content_hash

__all__ = ["Recording", "Replay"]


class Recording:
    """Appends every answer to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        line = json.dumps({"request": request, "answer": answer}, ensure_ascii=False)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class Replay:
    """Answers from a recording.

    Raises:
        ConfigError: there is no such file, or a line of it is no record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the recording '{path}': {error}") from None
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                self._answers[content_hash(record["request"])].append(record["answer"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path}, line {number} is no record of a request and its answer ({error})"
                ) from None

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The next answer to this request.

        Raises:
            EngineError: it was not recorded, or not so often.
        """
        with self._lock:
            left = self._answers.get(content_hash(request))
            if not left:
                last = request["messages"][-1]["content"]
                raise EngineError(
                    f"the recording '{self._path}' holds no "
                    f"{'further ' if left is not None else ''}answer to this request (its last "
                    f"message: {str(last)[:200]!r}); record it anew"
                )
            return left.popleft()
