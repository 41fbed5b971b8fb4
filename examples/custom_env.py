"""An environment of your own in forty lines, and a tiny agent that learns it. Run: python FILE

Cups stand in a row, a coin lies under one. The agent lifts cups; it hears "left" or "right".
"""

import random

from agentrl.core.message import Message
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, StepResult


class Cups:
    tools = ()

    def __init__(self, cups: int, coin: int) -> None:
        self.cups, self.coin, self.lifted = cups, coin, 0

    async def reset(self) -> Observation:
        return show(f"there are {self.cups} cups")

    async def step(self, action: Message) -> StepResult:
        cup = int(action.content) if action.content in map(str, range(1, self.cups + 1)) else None
        self.lifted += 1
        found = cup == self.coin
        hint = (
            "what" if cup is None else "here" if found else "left" if self.coin < cup else "right"
        )
        return StepResult(
            show(f"{action.content} {hint}"),
            reward=float(found),
            terminated=found,
            truncated=not found and self.lifted == 4,
            action_valid=cup is not None,
            success=found,
        )

    async def aclose(self) -> None: ...


class CupsFactory:
    splits = ("train", "validation", "test")

    def tasks(self, split: str) -> list[Task]:
        rows = [
            {"cups": cups, "coin": coin} for cups in range(8, 16) for coin in range(1, cups + 1)
        ]
        tasks = [Task(content_hash(row), "cups", split, row) for row in rows]
        return [task for task in tasks if self.splits[int(task.id, 16) % 3] == split]

    async def make(self, task: Task, *, seed: int) -> Cups:
        return Cups(**task.payload)

    def demonstrate(self, task: Task, *, seed: int, noise: float):  # type: ignore[no-untyped-def]
        """A clumsy expert: any cup that the hints have left over. Learning must do better."""
        rng, low, high = random.Random(seed), 1, task.payload["cups"]
        shown = show(f"there are {high} cups")
        while True:
            cup = rng.randint(low, high)
            yield Demonstration(shown, Message("assistant", str(cup)), trainable=True)
            if cup == task.payload["coin"]:
                return
            left = task.payload["coin"] < cup
            low, high = (low, cup - 1) if left else (cup + 1, high)
            shown = show(f"{cup} {'left' if left else 'right'}")


def show(text: str) -> Observation:
    return Observation((Message("user", text),), anchor=text)
