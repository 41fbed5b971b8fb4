"""What the endpoint for agents of somebody else's adds to a call of the engine.

    python benchmarks/endpoint.py [--json] [--calls N] [--episodes N]

The shipped runner plays the same script twice in one run, with an engine that answers at once: as
an environment in the process, and as an agent that speaks HTTP to the endpoint, with the plainest
client (a kept connection of ``http.client``) and with the official one. Milliseconds a call, one
episode at a time and many at once. The clients' own cost is in these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import time
from collections.abc import Callable
from typing import Any

from agentrl.agents.loop import Agent, Budgets
from agentrl.core.message import Message
from agentrl.core.protocols import EnvFactory
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, Sampling, StepResult
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.blackbox import BlackBoxFactory, Episode
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory

TARGET_MS = 5.0
SAID = "The room is empty but for a chair and a lamp on a small table. What do you do?"


def plain(calls: int) -> Callable[[Episode], bool]:
    """An agent with a kept connection and no library."""

    def play(episode: Episode) -> bool:
        address = episode.base_url.removeprefix("http://").removesuffix("/v1")
        connection = http.client.HTTPConnection(address)
        headers = {"Authorization": f"Bearer {episode.api_key}"}
        messages = []
        for _ in range(calls):
            messages.append({"role": "user", "content": SAID})
            body = json.dumps({"messages": messages})
            connection.request("POST", "/v1/chat/completions", body, headers)
            messages.append(json.load(connection.getresponse())["choices"][0]["message"])
        connection.close()
        return True

    return play


def official(calls: int) -> Callable[[Episode], bool]:
    from openai import OpenAI

    shared = OpenAI(base_url="http://127.0.0.1", api_key="none")

    def play(episode: Episode) -> bool:
        client = shared.with_options(**episode.client)
        messages: list[Any] = []
        for _ in range(calls):
            messages.append({"role": "user", "content": SAID})
            reply = client.chat.completions.create(model="m", messages=messages)
            messages.append(reply.choices[0].message)
        return True

    return play


def in_process(calls: int) -> ScriptedFactory:
    shown = (Message("user", SAID),)
    more = StepResult(Observation(shown), 0.0, terminated=False)
    end = StepResult(Observation(()), 1.0, terminated=True, success=True)

    def script(_task: Task, _attempt: int) -> ScriptedEnv:
        return ScriptedEnv(Observation(shown), [*[more] * (calls - 1), end])

    return ScriptedFactory(script)


def ms_a_call(factory: EnvFactory, calls: int, episodes: int, at_once: int) -> float:
    """Milliseconds of wall time a call, over all episodes."""
    agent = Agent(
        engine=ScriptedEngine(lambda prompt, index: [*b"look around"]),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=64),
        action_format="chat",
        budgets=Budgets(max_steps=calls, max_tokens=10**6),
    )
    task = factory.tasks(factory.splits[0])[0]
    runner = Runner(factory, agent, Limits(concurrency=at_once))
    requests = [GroupRequest("g", task, episodes, seed=1)]
    started = time.perf_counter()
    (group,) = asyncio.run(runner.run(requests))
    seconds = time.perf_counter() - started
    assert all(one.success for one in group.trajectories), group.trajectories[0].failure
    return 1000 * seconds / (calls * episodes)


def measure(calls: int, episodes: int) -> dict[str, float]:
    ways = {"plain": plain, "official": official}
    found: dict[str, float] = {}
    for at_once in (1, episodes):
        name = "alone" if at_once == 1 else "at_once"
        base = ms_a_call(in_process(calls), calls, episodes, at_once)
        found[f"in_process_{name}_ms"] = base
        for way, make in ways.items():
            factory = BlackBoxFactory([{"number": number} for number in range(9)], make(calls))
            try:
                ms_a_call(factory, calls, 2, at_once)  # the server is up, the client is loaded
                spent = ms_a_call(factory, calls, episodes, at_once)
            finally:
                asyncio.run(factory.aclose())
            found[f"{way}_{name}_adds_ms"] = spent - base
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=20, help="calls an episode")
    parser.add_argument("--episodes", type=int, default=32)
    arguments = parser.parse_args()
    found = measure(arguments.calls, arguments.episodes)
    for name, value in found.items():
        print(f"{name:28} {value:7.3f}")
    met = found["plain_alone_adds_ms"] < TARGET_MS
    print(f"the endpoint adds below {TARGET_MS:g} ms a call: {'yes' if met else 'NO'}")
    if arguments.json:
        print(json.dumps({**found, "target_ms": TARGET_MS, "met": met}))


if __name__ == "__main__":
    main()
