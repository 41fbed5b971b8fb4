"""SUMMARY

Check it: agentrl check env MODULE:SkeletonFactory
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import Observation, StepResult

SPLITS = ("train", "validation", "test")
NUMBERS = 20
MAX_STEPS = 20
COMMANDS = ("up", "down")


class SkeletonEnv:
    """One episode: reach the target number. Replace the game by your own.

    The action is an assistant message; whatever the model says must be answered, never raised.
    """

    tools: Sequence[ToolSpec] = ()

    def __init__(self, start: int, target: int) -> None:
        self._number = start
        self._target = target
        self._steps = 0
        self._begun = False
        self._over = False

    async def reset(self) -> Observation:
        """Show the beginning."""
        if self._begun or self._over:
            raise EnvError("reset called twice or after aclose; an Env plays one episode")
        self._begun = True
        return observe(self._number, self._target)

    async def step(self, action: Message) -> StepResult:
        """Answer one action."""
        if not self._begun or self._over:
            raise EnvError("step called before reset, or after the episode was over")
        valid = action.content in COMMANDS
        if valid:
            self._number += 1 if action.content == "up" else -1
        self._steps += 1
        solved = self._number == self._target
        truncated = not solved and self._steps >= MAX_STEPS
        self._over = solved or truncated
        return StepResult(
            observation=observe(self._number, self._target),
            reward=float(solved),
            terminated=solved,
            truncated=truncated,
            action_valid=valid,
            success=solved if self._over else None,
        )

    async def aclose(self) -> None:
        """Free what the episode holds; may be called at any time, and again."""
        self._over = True


class SkeletonFactory:
    """Lists the tasks of each split and makes their episodes. Its arguments are env.options."""

    @property
    def splits(self) -> Sequence[str]:
        return SPLITS

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks in a fixed order. Each problem is in one split, decided by its content."""
        if split not in SPLITS:
            raise ConfigError(f"no split '{split}'; there are: {', '.join(SPLITS)}")
        problems = [
            {"start": start, "target": target}
            for start in range(NUMBERS)
            for target in range(NUMBERS)
            if start != target
        ]
        tasks = []
        for problem in problems:
            task_id = content_hash(problem)
            if SPLITS[int(task_id, 16) % len(SPLITS)] == split:
                tasks.append(Task(task_id, "skeleton", split, problem))
        return tasks

    async def make(self, task: Task, *, seed: int) -> SkeletonEnv:
        """Make the episode; draw all that is random in it from ``seed``."""
        return SkeletonEnv(task.payload["start"], task.payload["target"])

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """An expert to clone from; a share ``noise`` of its commands is random.

        Remove this method if you have none.
        """
        rng = random.Random(derive_seed(seed, task.id, "expert"))
        number, target = task.payload["start"], task.payload["target"]
        for _ in range(MAX_STEPS):
            if number == target:
                return
            stray = rng.random() < noise
            command = rng.choice(COMMANDS) if stray else "up" if number < target else "down"
            yield Demonstration(
                observe(number, target), Message("assistant", command), trainable=not stray
            )
            number += 1 if command == "up" else -1


def observe(number: int, target: int) -> Observation:
    """What the policy sees. The anchor is the key of the state, for step-level credit."""
    text = f"The number is {number}, the target is {target}. Say up or down."
    return Observation((Message("user", text),), anchor=text, admissible=COMMANDS)
