"""Training an agent that knows nothing of agentrl: ``python examples/blackbox_agent.py``.

``find_card`` is an ordinary agent: it speaks to its model through the official ``openai`` client,
looks for a card where the model tells it to, and asks which card it was. ``play`` is all that is
new: it says where the model is, and returns what the episode was worth. ``blackbox_agent.yaml`` is
the run. Needs: pip install -e '.[serve,openai]'
"""

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.envs.blackbox import BlackBoxFactory, Episode

WHO = ("Ann", "Bob", "Eve", "Joe", "Kim", "Liz", "Max", "Sam")
PLACES = ("desk", "rug", "shelf", "sofa")
CARDS = ("ace", "king", "queen", "jack", "ten", "nine", "eight", "seven")


def find_card(client: Any, model: str, who: str, place: str, card: str) -> str:
    """The agent: two questions to its model, and what it finds in between."""
    asked = f"{who} left a card at the {place}. Where do you look?"
    conversation: list[Any] = [{"role": "user", "content": asked}]

    def ask() -> str:
        reply = client.chat.completions.create(model=model, messages=conversation)
        conversation.append(reply.choices[0].message)
        return (reply.choices[0].message.content or "").strip()

    found = card if ask() == place else "nothing"
    conversation.append({"role": "user", "content": f"You find: {found}. Which card was it?"})
    return ask()


def play(episode: Episode) -> float:
    """What agentrl calls: one episode, and what it was worth."""
    problem = episode.problem
    answer = find_card(client().with_options(**episode.client), episode.model, **problem)
    return float(answer == problem["card"])


def clumsy(conversation: Sequence[Message], task: Task, rng: random.Random, noise: float) -> str:
    """An expert to clone from. The run file lets it hardly listen: it mostly looks anywhere."""
    if len(conversation) == 1:
        return str(rng.choice(PLACES) if rng.random() < noise else task.payload["place"])
    found = conversation[-1].content.removeprefix("You find: ").partition(".")[0]
    return rng.choice(CARDS) if found == "nothing" else found


def cards() -> BlackBoxFactory:
    problems = [{"who": w, "place": p, "card": c} for w in WHO for p in PLACES for c in CARDS]
    return BlackBoxFactory(problems, play, expert=clumsy)


def client(made: list[Any] = []) -> Any:  # noqa: B006 - one for all episodes: it keeps connections
    if not made:
        from openai import OpenAI

        made.append(OpenAI(base_url="http://127.0.0.1", api_key="of the episode", timeout=60))
    return made[0]


if __name__ == "__main__":
    from agentrl.cli import main

    run_dir = tempfile.mkdtemp(prefix="blackbox-") + "/run"  # kept: look at it with agentrl view
    run_file = str(Path(__file__).with_suffix(".yaml"))
    sys.argv = ["agentrl", "train", run_file, f"run_dir={run_dir}", *sys.argv[1:]]
    main()
