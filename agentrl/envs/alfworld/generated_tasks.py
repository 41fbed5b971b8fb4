"""Tasks of generated games, made when they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, overload

from agentrl.core.errors import ConfigError
from agentrl.core.task import Task, content_hash
from agentrl.envs.alfworld.generate import SPLITS, Generator, split_of

ENV_NAME = "alfworld"
#: So many games in a row without a new one mean that there are no more.
_PATIENCE = 2_000


class TaskStream:
    """The different games of generators in their fixed order, dealt to splits by content.

    Game number k of a split is the same however many are asked for, in whatever order. Several
    generators take turns, and a task says which it is from: ``level`` in its payload, from 0. A
    game that two of them make has the level of the first.
    """

    def __init__(self, *generators: Generator) -> None:
        self._generators = generators
        self._indices = count()
        self._ids: set[str] = set()
        self._lock = threading.Lock()
        self._tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}

    def task(self, split: str, index: int) -> Task:
        """Task number ``index`` of a split, which holds its whole game.

        Raises:
            ConfigError: These settings do not allow for so many different games.
        """
        tasks = self._tasks[split]
        with self._lock:
            futile = 0
            while len(tasks) <= index:
                futile = 0 if self._add_next() else futile + 1
                if futile == _PATIENCE:
                    raise ConfigError(
                        f"env 'alfworld': the difficulty allows for only {len(tasks)} different "
                        f"games in split '{split}', but number {index} was asked for; ask for "
                        "fewer tasks, or widen the ranges and vocabulary of the difficulty"
                    )
        return tasks[index]

    def _add_next(self) -> bool:
        index, level = divmod(next(self._indices), len(self._generators))
        game = self._generators[level].game(index)
        data = game.to_data()
        game_id = content_hash(data)
        if game_id in self._ids:
            return False
        self._ids.add(game_id)
        split = split_of(game_id)
        payload: dict[str, Any] = {"game": data}
        if len(self._generators) > 1:
            payload["level"] = level
        task = Task(game_id, ENV_NAME, split, payload, game.goal.task_type)
        self._tasks[split].append(task)
        return True


class GeneratedTasks(Sequence[Task]):
    """The first ``length`` tasks of a split, generated on access."""

    def __init__(self, stream: TaskStream, split: str, length: int) -> None:
        self._stream = stream
        self._split = split
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(self._length)))
        number = index + self._length if index < 0 else index
        if not 0 <= number < self._length:
            raise IndexError(f"task {index} of {self._length} in split '{self._split}'")
        return self._stream.task(self._split, number)

    def __iter__(self) -> Iterator[Task]:
        return (self[number] for number in range(self._length))
