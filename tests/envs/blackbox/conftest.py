"""What agents of somebody else's look like, and how they are played."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Budgets
from agentrl.core.trajectory import Sampling, Trajectory
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.blackbox import BlackBoxFactory, Episode
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer

WIDE, ENOUGH = Budgets(), Sampling(max_tokens=4000)
PROBLEMS = [{"number": number} for number in range(12)]


class Told(Exception):
    """The endpoint refused: status and the text of its error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def post(url: str, body: Any, key: str = "", **headers: str) -> Any:
    """The plainest client there is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Authorization": f"Bearer {key}", **headers})
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        raise Told(error.code, json.loads(text)["error"]["message"]) from None


def ask(episode: Episode, messages: Sequence[Any], **more: Any) -> dict[str, Any]:
    """The assistant's message."""
    body = {"model": "any", "messages": list(messages), **more}
    answered = post(f"{episode.base_url}/chat/completions", body, episode.api_key)
    message: dict[str, Any] = answered["choices"][0]["message"]
    return message


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def script(*answers: str) -> ScriptedEngine:
    """Every episode is answered so, in this order."""
    return ScriptedEngine([[*map(ord, one)] for one in answers], logprob=-0.5)


Play = Callable[..., list[Trajectory]]


@contextmanager
def opened(*arguments: Any, **options: Any) -> Iterator[BlackBoxFactory]:
    factory = BlackBoxFactory(PROBLEMS, *arguments, **options)
    try:
        yield factory
    finally:
        asyncio.run(factory.aclose())


def played(
    factory: BlackBoxFactory,
    engine: ScriptedEngine,
    *,
    size: int = 1,
    budgets: Budgets = WIDE,
    retries: int = 0,
    sampling: Sampling = ENOUGH,
) -> list[Trajectory]:
    """One group of so many episodes of the first task."""
    agent = Agent(
        engine=engine,
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=sampling,
        action_format="chat",
        budgets=budgets,
    )
    request = GroupRequest("g", factory.tasks("train")[0], size, seed=5)
    recorded: list[Trajectory] = []
    runner = Runner(
        factory,
        agent,
        Limits(retries=retries, quorum=0, backoff_s=0.0),
        lambda _, trajectory: recorded.append(trajectory),
    )

    async def main() -> None:
        async with asyncio.timeout(120), runner.stream([request]) as groups:
            async for _ in groups:
                pass

    try:
        asyncio.run(main())
    except Exception as error:
        if "no episode of any group finished" not in str(error):
            raise
    return recorded


@pytest.fixture
def one() -> Callable[..., Trajectory]:
    """Plays one episode of an agent function or program."""

    def play(agent: Any, engine: ScriptedEngine, **options: Any) -> Trajectory:
        command = options.pop("command", None)
        factory_options = {
            name: options.pop(name) for name in ("anchor", "success_at") if name in options
        }
        with opened(agent, command, **factory_options) as factory:
            (trajectory,) = played(factory, engine, **options)
        return trajectory

    return play


Opened = Callable[..., AbstractContextManager[BlackBoxFactory]]
