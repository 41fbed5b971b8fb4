"""A corridor of rooms with a key and a locked door: the smallest text task with a known optimum.

It is for learning tests and as an example of an environment in one file. Everything is shown, so
the best policy needs no memory: walk to the key, take it, walk to the door, open it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from agentrl.core.errors import ConfigError, DataError, EnvError, nearest
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import Observation, StepResult

__all__ = ["Corridor", "CorridorEnv", "ToyFactory", "optimal_steps"]

SPLITS = ("train", "validation", "test")
RULES = "Take the key and open the door."


@dataclass(frozen=True, slots=True)
class Corridor:
    """The state of a game. Rooms are numbered from 1; pure: ``after`` makes the next state."""

    rooms: int
    key: int
    door: int
    room: int
    holding: bool = False
    opened: bool = False

    def admissible(self) -> tuple[str, ...]:
        """Commands that are possible now, in a fixed order."""
        if self.opened:
            return ()
        possible = {
            "go left": self.room > 1,
            "go right": self.room < self.rooms,
            "take key": self.room == self.key and not self.holding,
            "open door": self.room == self.door and self.holding,
        }
        return tuple(command for command, allowed in possible.items() if allowed)

    def after(self, command: str) -> Corridor:
        """The state after an admissible command."""
        move = {"go left": -1, "go right": 1}.get(command, 0)
        return Corridor(
            rooms=self.rooms,
            key=self.key,
            door=self.door,
            room=self.room + move,
            holding=self.holding or command == "take key",
            opened=command == "open door",
        )

    def best(self) -> str:
        """The first command of a shortest solution."""
        goal = self.door if self.holding else self.key
        if self.room != goal:
            return "go left" if self.room > goal else "go right"
        return "open door" if self.holding else "take key"

    def text(self) -> str:
        if self.opened:
            return "The door is open."
        key = "You hold the key." if self.holding else f"The key is in room {self.key}."
        return (
            f"You are in room {self.room} of {self.rooms}. {key} The door is in room {self.door}."
        )


def optimal_steps(task: Task) -> int:
    """Length of a shortest solution: ``|start - key| + 1 + |key - door| + 1``."""
    start = _start(task)
    return abs(start.room - start.key) + abs(start.key - start.door) + 2


class CorridorEnv:
    """One game. Reward 1 for the open door, else 0; truncated after ``max_steps`` commands."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, start: Corridor, *, max_steps: int) -> None:
        self._start = start
        self._max_steps = max_steps
        self._state: Corridor | None = None
        self._steps = 0
        self._over = False

    async def reset(self) -> Observation:
        if self._state is not None or self._over:
            raise EnvError("reset called twice or after aclose; an Env plays one episode: make one")
        self._state = self._start
        return _observe(self._start, f"{RULES} {self._start.text()}")

    async def step(self, action: Message) -> StepResult:
        state = self._state
        if state is None or self._over:
            raise EnvError("step called before reset, or after the episode was over or closed")
        command = " ".join(action.content.split()).lower()
        valid = command in state.admissible()
        after = state.after(command) if valid else state
        text = after.text() if valid else f"You cannot do that. {after.text()}"
        self._state = after
        self._steps += 1
        truncated = not after.opened and self._steps >= self._max_steps
        self._over = after.opened or truncated
        return StepResult(
            observation=_observe(after, text),
            reward=float(after.opened),
            terminated=after.opened,
            truncated=truncated,
            action_valid=valid,
            success=after.opened if self._over else None,
        )

    async def aclose(self) -> None:
        self._over = True


class ToyFactory:
    """All corridors of up to ``max_rooms`` rooms, each in one split by its content hash.

    About 6 of 10 corridors are in ``train``, 2 in ``validation``, 2 in ``test``.

    Args:
        max_rooms: Longest corridor (the shortest has 2 rooms); from 3 to 20.
        max_steps: Commands before an episode is truncated; at least ``2 * max_rooms``, which the
            longest shortest solution needs.

    Raises:
        ConfigError: an argument is out of range, or a split unknown (``tasks``).
    """

    def __init__(self, *, max_rooms: int = 6, max_steps: int = 30) -> None:
        if not 3 <= max_rooms <= 20:
            raise ConfigError(f"env 'toy': max_rooms must be from 3 to 20, got {max_rooms!r}")
        if max_steps < 2 * max_rooms:
            raise ConfigError(
                f"env 'toy': max_steps must be at least 2 * max_rooms = {2 * max_rooms}, so that "
                f"every corridor can be solved; got {max_steps!r}"
            )
        self._max_rooms = max_rooms
        self._max_steps = max_steps

    @property
    def splits(self) -> Sequence[str]:
        return SPLITS

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in SPLITS:
            raise ConfigError(
                f"env 'toy' has no split '{split}'{nearest(split, SPLITS) or '.'} It has: "
                f"{', '.join(SPLITS)}."
            )
        return self._tasks[split]

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        """Make the episode; ``seed`` changes nothing, for nothing is random here."""
        return CorridorEnv(_start(task), max_steps=self._max_steps)

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """A shortest solution; a share ``noise`` of the commands is random and not trainable."""
        rng = random.Random(derive_seed(seed, task.id))
        state = _start(task)
        text = f"{RULES} {state.text()}"
        for _ in range(self._max_steps):
            wander = rng.random() < noise
            command = rng.choice(state.admissible()) if wander else state.best()
            yield Demonstration(_observe(state, text), Message("assistant", command), not wander)
            state = state.after(command)
            text = state.text()
            if state.opened:
                return

    @cached_property
    def _tasks(self) -> dict[str, tuple[Task, ...]]:
        tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
        for rooms in range(2, self._max_rooms + 1):
            for start, key, door in product(range(1, rooms + 1), repeat=3):
                payload = {"rooms": rooms, "start": start, "key": key, "door": door}
                task_id = content_hash({"env": "toy", **payload})
                tenth = int(task_id, 16) % 10
                split = "train" if tenth < 6 else "validation" if tenth < 8 else "test"
                tasks[split].append(Task(task_id, "toy", split, payload))
        return {split: tuple(found) for split, found in tasks.items()}


def _observe(state: Corridor, text: str) -> Observation:
    return Observation((Message("user", text),), anchor=state.text(), admissible=state.admissible())


def _start(task: Task) -> Corridor:
    payload: Any = task.payload
    try:
        return Corridor(payload["rooms"], payload["key"], payload["door"], payload["start"])
    except KeyError as error:
        raise DataError(
            f"task '{task.id}' of env '{task.env}' has no {error}; the toy environment plays only "
            "the tasks that ToyFactory.tasks lists"
        ) from None
