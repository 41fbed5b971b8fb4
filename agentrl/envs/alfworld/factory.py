"""The ALFWorld ``EnvFactory``: real games from a data directory, or generated ones."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from agentrl.core.errors import ConfigError, DataError, nearest
from agentrl.core.message import Message
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, derive_seed
from agentrl.envs.alfworld import files
from agentrl.envs.alfworld.difficulty import Difficulty, as_difficulty
from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.env import AlfworldEnv, Wording
from agentrl.envs.alfworld.experts import EXPERTS
from agentrl.envs.alfworld.game import TASK_TYPES, Game
from agentrl.envs.alfworld.generate import SPLITS, Generator
from agentrl.envs.alfworld.generated_tasks import ENV_NAME, GeneratedTasks, TaskStream

GENERATED = "generated"
TASKS_PER_SPLIT = {"train": 4096, "validation": 256, "test": 256}
_GAMES_KEPT = 256


class AlfworldFactory:
    """Lists ALFWorld tasks and makes their episodes.

    Args:
        source: ``generated``, or the path of a data directory: the folder that holds
            ``json_2.1.1``, or that folder itself. It is never written to.
        difficulty: For generated games: ``tiny`` (the default), ``small``, ``full``, or a mapping
            of settings of ``Difficulty``, over the preset it names under ``preset``. A list of
            these grades the tasks: its games take turns, and ``level`` in a task's payload is the
            position in the list, which the strategy ``difficulty`` goes by.
        task_types: Only these of the six task types; ``None``: all of the source.
        tasks_per_split: For generated games: how many tasks ``train``, ``validation`` and
            ``test`` have. A longer list begins with the shorter one.
        seed: For generated games: which sequence of games.
        max_steps: Commands before an episode is truncated.
        action_format: Which answer format the rules in the first full text ask for.
        show_admissible: Whether observations list the possible commands.
        reward_success: Reward of the command that solves the task; every other one gets 0.
        text: ``full``: ALFWorld's text to the letter; ``compact``: short, for tiny models.
        expert: Who demonstrates: ``search`` knows what was shown, ``oracle`` the whole room.

    Raises:
        ConfigError: A setting is unknown, out of range, or of no use with the source.
        DataError: The data directory holds no games.
    """

    def __init__(
        self,
        *,
        source: str | Path = GENERATED,
        difficulty: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
        task_types: Sequence[str] | None = None,
        tasks_per_split: Mapping[str, int] | None = None,
        seed: int = 0,
        max_steps: int = 50,
        action_format: Literal["bare", "tagged"] = "tagged",
        show_admissible: bool = False,
        reward_success: float = 1.0,
        text: Literal["full", "compact"] = "full",
        expert: Literal["search", "oracle"] = "search",
    ) -> None:
        self._wording = Wording(text, action_format, show_admissible)
        self._max_steps = _at_least_one("max_steps", max_steps)
        self._reward_success = float(reward_success)
        self._expert = EXPERTS[_one_of("expert", expert, EXPERTS)]()
        self._games: dict[str, Game] = {}
        self._lock = threading.Lock()
        self._listed: dict[str, Sequence[Task]] = {}
        chosen = None if task_types is None else tuple(task_types)
        for task_type in chosen or ():
            _one_of("task type", task_type, TASK_TYPES)
        self._root: Path | None = None
        if str(source) == GENERATED:
            levels = _levels("tiny" if difficulty is None else difficulty)
            if chosen is not None:
                levels = [replace(one, task_types=chosen) for one in levels]
            generators = [Generator(one, seed) for one in levels]
            self._listed.update(_generated(generators, tasks_per_split))
            return
        if difficulty is not None or tasks_per_split is not None:
            given = "difficulty" if difficulty is not None else "tasks_per_split"
            raise ConfigError(
                f"env 'alfworld': {given} shapes generated games and has no meaning for the games "
                f"in {source}; remove it (null), or set source to '{GENERATED}'"
            )
        self._root = files.find_root(source)
        self._task_types = chosen or tuple(TASK_TYPES)

    @property
    def splits(self) -> Sequence[str]:
        """``train``, ``validation``, ``test``; for real games those of the four on the disk."""
        if self._root is None:
            return SPLITS
        return [split for split in files.SPLITS if (self._root / split).is_dir()]

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split in a fixed order, each content once.

        Raises:
            ConfigError: There is no such split.
            DataError: The split's folder holds no games, or a damaged one.
        """
        _one_of("split", split, self.splits)
        if split not in self._listed and self._root is not None:
            self._listed[split] = self._real_tasks(self._root, split)
        return self._listed[split]

    async def make(self, task: Task, *, seed: int) -> AlfworldEnv:
        """Make the episode; ``seed`` changes nothing, for nothing in a game is random.

        Raises:
            DataError: The task is not of this factory, or its game is missing or damaged.
        """
        return AlfworldEnv(
            self._game(task),
            wording=self._wording,
            max_steps=self._max_steps,
            reward_success=self._reward_success,
        )

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """Play ``task`` with the expert, for at most ``max_steps`` commands.

        Args:
            task: What is played.
            seed: Of the random commands; the expert itself is deterministic.
            noise: Share of commands that are random among the possible ones, not trainable.

        Yields:
            One demonstration per command, until the task is solved, the steps are used up, or
            nothing leads to the goal any more.
        """
        rng = random.Random(derive_seed(seed, task.id))
        world = World(self._game(task))
        observation = self._wording.opening(world)
        for _ in range(self._max_steps):
            if world.won:
                return
            wander = rng.random() < noise
            command = rng.choice(world.admissible) if wander else self._expert.next_command(world)
            if command is None:
                return
            yield Demonstration(observation, Message("assistant", command), not wander)
            observation = self._wording.answer(world, world.step(command))

    def _real_tasks(self, root: Path, split: str) -> tuple[Task, ...]:
        tasks: dict[str, Task] = {}
        for folder in files.list_games(root, split):
            kind = folder.split("/")[1].partition("-")[0]
            if kind in self._task_types:
                task_id = files.game_hash(root, folder)
                tasks.setdefault(task_id, Task(task_id, ENV_NAME, split, {"folder": folder}, kind))
        if not tasks:
            raise DataError(
                f"no games of the task types {', '.join(self._task_types)} in {root / split}; "
                "choose others with task_types, or another split"
            )
        # By content, not by path: the first tasks of a list are then a fair sample of its kinds.
        return tuple(sorted(tasks.values(), key=lambda task: task.id))

    def _game(self, task: Task) -> Game:
        """The game of a task; the last ones are kept, for a group plays one game many times."""
        with self._lock:
            game = self._games.get(task.id)
            if game is None:
                game = self._games[task.id] = self._read(task)
                if len(self._games) > _GAMES_KEPT:
                    del self._games[next(iter(self._games))]
            return game

    def _read(self, task: Task) -> Game:
        if "game" in task.payload:
            return Game.from_data(task.payload["game"])
        if "folder" in task.payload and self._root is not None:
            return files.read_game(self._root, task.payload["folder"])
        raise DataError(
            f"task '{task.id}' of env '{task.env}' cannot be played here: its payload holds "
            f"{', '.join(task.payload) or 'nothing'}, expected a generated game, or the folder of "
            "a real one and a factory whose source is its data directory"
        )


def _levels(
    difficulty: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
) -> list[Difficulty]:
    """The difficulties of the generated games, the easiest first."""
    if isinstance(difficulty, str | Mapping):
        return [as_difficulty(difficulty)]
    if not isinstance(difficulty, Sequence) or not difficulty:
        raise ConfigError(
            "env 'alfworld': difficulty must be a preset's name, a mapping of settings, or a list "
            f"of these, the easiest first; got {difficulty!r}"
        )
    return [as_difficulty(one) for one in difficulty]


def _generated(
    generators: Sequence[Generator], tasks_per_split: Mapping[str, int] | None
) -> dict[str, GeneratedTasks]:
    counts = dict(TASKS_PER_SPLIT)
    for split, number in (tasks_per_split or {}).items():
        counts[_one_of("split in tasks_per_split", split, SPLITS)] = _at_least_one(
            f"tasks_per_split.{split}", number
        )
    stream = TaskStream(*generators)
    return {split: GeneratedTasks(stream, split, counts[split]) for split in SPLITS}


def _one_of(what: str, name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    if name not in known:
        raise ConfigError(
            f"env 'alfworld': unknown {what} {name!r}{nearest(str(name), known) or '.'} "
            f"It may be: {', '.join(known)}."
        )
    return name


def _at_least_one(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"env 'alfworld': {name} must be a whole number of at least 1, got {value!r}"
        )
    return value
