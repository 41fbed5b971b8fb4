"""A tool of your own, and a tiny agent that learns to use it: ``python examples/custom_tool.py``.

Somebody left a card in one of four places, and the task says where. The tool looks there. The
expert that is cloned hardly listens: it looks here and there until it finds the card. The agent may
look only once, so it has to learn to look where it is told. ``custom_tool.yaml`` is the run.
"""

import random
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from agentrl.core.message import ToolCall
from agentrl.core.task import Task
from agentrl.envs.tools import ToolEnvFactory

WHO = ("Ann", "Bob", "Eve", "Joe", "Kim", "Liz", "Max", "Sam")
PLACES = ("desk", "rug", "shelf", "sofa")
CARDS = ("ace", "king", "queen", "jack", "ten", "nine", "eight", "seven")


class Look:
    """Look somewhere in the room.

    Args:
        place: Where to look.
    """

    def __init__(self, task: Task) -> None:  # made for each episode
        self.problem = task.payload

    async def __call__(self, place: Literal["desk", "rug", "shelf", "sofa"]) -> str:
        return self.problem["answer"] if place == self.problem["place"] else "nothing"


def expert(task: Task, rng: random.Random) -> Generator[ToolCall | str, str, None]:
    listens = rng.random() < 0.4
    places = [*rng.sample(PLACES, 4), *([task.payload["place"]] if listens else [])]
    found = "nothing"
    while found == "nothing":
        found = yield ToolCall("", "look", {"place": places.pop()})
    yield found  # the answer; right if it is the problem's "answer"


def cards() -> ToolEnvFactory:
    problems = [{"who": w, "place": p, "answer": c} for w in WHO for p in PLACES for c in CARDS]
    asked = "{who} left a card at the {place}. Which is it?"
    return ToolEnvFactory(problems, [Look], instruction=asked, expert=expert)


if __name__ == "__main__":
    from agentrl.cli import main

    run_dir = tempfile.mkdtemp(prefix="custom-tool-") + "/run"  # kept: look at it with agentrl view
    run_file = str(Path(__file__).with_suffix(".yaml"))
    sys.argv = ["agentrl", "train", run_file, f"run_dir={run_dir}", *sys.argv[1:]]
    main()
