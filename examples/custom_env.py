"""An environment of your own, and a tiny agent that learns it: ``python examples/custom_env.py``.

Cups stand in a row, a coin lies under one of them. Lifting a cup tells on which side the coin is,
so five lifts of the middle one are enough for 31 cups. The expert that is cloned does not know
that: it lifts the first, the middle or the last cup that is left, as it likes. The agent finds out.
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, StepResult

LIFTS = 5
COMMANDS = ("first", "middle", "last")


class Cups:
    """One episode: find the coin in five lifts."""

    tools = ()

    def __init__(self, cups: int, coin: int) -> None:
        self.low, self.high, self.coin, self.lifts = 1, cups, coin, -1

    async def reset(self) -> Observation:
        if self.lifts != -1:
            raise EnvError("this episode was begun before; make another one")
        self.lifts = 0
        return show(self.low, self.high)

    async def step(self, action: Message) -> StepResult:
        if not 0 <= self.lifts < LIFTS:
            raise EnvError("this episode was not begun, or is over")
        valid = action.content in COMMANDS
        cup = chosen(action.content, self.low, self.high) if valid else None
        if cup is not None:
            self.low, self.high = left_over(cup, self.coin, self.low, self.high)
        found = cup == self.coin
        self.lifts = LIFTS if found else self.lifts + 1
        return StepResult(
            show(self.low, self.high),
            reward=float(found),
            terminated=found,
            truncated=self.lifts == LIFTS and not found,
            action_valid=valid,
            success=found,
        )

    async def aclose(self) -> None:
        self.lifts = LIFTS


class CupsFactory:
    """Every row of 8 to 31 cups with every place of the coin, each in one of three splits."""

    splits = ("train", "validation", "test")

    def tasks(self, split: str) -> list[Task]:
        if split not in self.splits:
            raise ConfigError(f"no split '{split}'; there are {', '.join(self.splits)}")
        rows = [{"cups": n, "coin": coin} for n in range(8, 32) for coin in range(1, n + 1)]
        tasks = [Task(content_hash(row), "cups", split, row) for row in rows]
        return [task for task in tasks if self.splits[int(task.id, 16) % 3] == split]

    async def make(self, task: Task, *, seed: int) -> Cups:
        return Cups(**task.payload)

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """The first of the clumsy expert's attempts that finds the coin in time."""
        rng, coin = random.Random(seed), task.payload["coin"]
        while True:
            low, high, steps = 1, task.payload["cups"], list[Demonstration]()
            for _ in range(LIFTS):
                command = rng.choice(COMMANDS)
                steps.append(Demonstration(show(low, high), Message("assistant", command), True))
                cup = chosen(command, low, high)
                if cup == coin:
                    yield from steps
                    return
                low, high = left_over(cup, coin, low, high)


def chosen(command: str, low: int, high: int) -> int:
    return {"first": low, "middle": (low + high) // 2, "last": high}[command]


def left_over(cup: int, coin: int, low: int, high: int) -> tuple[int, int]:
    if cup == coin:
        return cup, cup
    return (low, cup - 1) if coin < cup else (cup + 1, high)


def show(low: int, high: int) -> Observation:
    text = f"cups {low} to {high}: first, middle or last?"
    return Observation((Message("user", text),), anchor=text, admissible=COMMANDS)


RUN = {
    "seed": 0,
    "threads": 1,
    "model": {"create": {"hidden_size": 64, "layers": 2, "vocab_size": 320, "context_tokens": 64}},
    "env": {"name": "custom_env:CupsFactory"},
    "agent": {
        "renderer": {"name": "plain"},
        "action_format": "bare",
        "max_steps": LIFTS,
        "max_tokens": 64,
    },
    "engine": {"name": "hf", "options": {"context_tokens": 64}},
    "sampling": {"max_tokens": 3},
    "learner": {"learning_rate": 1e-3, "epsilon_high": 0.28, "micro_batch_tokens": 4096},
    "stages": [
        {
            "kind": "clone",
            "updates": 60,
            "episodes_per_update": 32,
            "learner": {"learning_rate": 3e-3, "warmup_updates": 10, "schedule": "cosine"},
        },
        {
            "kind": "rl",
            "iterations": 12,
            "tasks_per_iteration": 16,
            "group_size": 8,
            "updates_per_iteration": 4,
            "credit": {"name": "gigpo"},
        },
    ],
    "evaluation": {"tasks": 128, "every": 0, "trials": 2, "greedy": False},
}


def main(*overrides: str) -> tuple[float, float]:
    """Train the agent; returns its success on unseen rows of cups before and after."""
    from rich.console import Console

    from agentrl.config import load_config
    from agentrl.train import train

    folder = Path(tempfile.mkdtemp(prefix="custom-env-"))  # kept: look at it with agentrl view
    run = load_config({**RUN, "run_dir": str(folder / "run")}, overrides)
    report = train(run, console=Console())
    before, after = report.before.sampled.success, report.after.sampled.success
    print(f"finds the coin: {before:.0%} as cloned from the clumsy expert, {after:.0%} after RL")
    return before, after


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
