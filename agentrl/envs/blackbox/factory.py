"""Episodes of agents that were written for an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentrl.core.errors import ConfigError, DataError, nearest
from agentrl.core.message import Message
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, derive_seed
from agentrl.envs.blackbox.endpoint import LOOPBACK, Endpoint
from agentrl.envs.blackbox.env import Anchor, BlackBoxEnv
from agentrl.envs.blackbox.running import Episode, Function, Offered, Program, Runs
from agentrl.envs.tools.problems import Problems, tasks_by_split
from agentrl.registry import resolve

__all__ = ["BlackBoxFactory"]

Expert = Callable[[Sequence[Message], Task, random.Random, float], str | Message]


class BlackBoxFactory:
    """Tasks that an agent of somebody else's plays, with our policy as its model.

    The policy must answer as it is (``agent.action_format: chat``); what is done with the answer is
    the agent's business. The endpoint listens from the first episode on, until ``aclose``.

    Args:
        tasks: Problems as mappings of JSON data, a JSONL file of them, or either by split; see
            ``tasks_by_split``.
        agent: A function of an ``Episode``, async or not, or its ``"module:attr"``. It plays the
            episode and returns the reward: a number, a bool, or ``{"reward", "success"}``. What it
            raises is an infra failure, never a reward: where the policy may be at fault (an answer
            that cannot be read), it should catch that and return what it is worth.
        command: A program instead of a function, as a list of arguments; see ``Program``.
            Neither of the two: episodes are offered at the endpoint (``agentrl serve``).
        name: Name of the environment in its tasks.
        host: Address to listen at. port: 0 for a free one.
        anchor: Key of the state before a step, for step-level credit: the ``new`` messages, the
            whole ``conversation``, or ``None``.
        success_at: The reward from which a task counts as solved, where only a reward is returned.
        expert: Answers in the policy's place, to clone from: a function of the conversation, the
            task, a ``random.Random`` and the noise (which share of its answers to draw at random;
            with 0 it solves the task), or its ``"module:attr"``.

    Raises:
        ConfigError: both an agent and a command, or a value that is none of those allowed.
        DataError: problems that are none, or are in two splits.
    """

    action_format = "chat"
    demonstrate: Callable[..., Iterable[Demonstration]]  # present if there is an expert

    def __init__(
        self,
        tasks: Problems,
        agent: Callable[[Episode], Any] | str | None = None,
        command: Sequence[str] | None = None,
        *,
        name: str = "blackbox",
        host: str = LOOPBACK[0],
        port: int = 0,
        anchor: Anchor = "new",
        success_at: float = 1.0,
        expert: Expert | str | None = None,
    ) -> None:
        self.name = name
        self._tasks = tasks_by_split(tasks, name)
        self._agent = self._function(agent, "agent")
        self._command = self._arguments(command)
        if anchor not in ("new", "conversation", None):
            raise ConfigError(
                f"env '{name}': anchor must be 'new', 'conversation' or null, got {anchor!r}"
            )
        self._address = (host, port)
        self._anchor: Anchor = anchor
        self._success_at = success_at
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        if expert is not None:
            self._expert: Expert = self._function(expert, "expert")
            self.demonstrate = self._demonstrate

    @property
    def splits(self) -> Sequence[str]:
        return tuple(self._tasks)

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self._tasks:
            raise ConfigError(
                f"env '{self.name}' has no split '{split}'{nearest(split, self._tasks) or '.'} "
                f"It has: {', '.join(self._tasks)}."
            )
        return self._tasks[split]

    @property
    def offers(self) -> bool:
        """Whether episodes wait at the endpoint for somebody to play them."""
        return self._agent is None and self._command is None

    def endpoint(self) -> Endpoint:
        """The server; it is started by the first who asks."""
        with self._lock:
            if self._endpoint is None:
                self._endpoint = Endpoint(*self._address)
                weakref.finalize(self, self._endpoint.leave)  # if nobody closes it
            return self._endpoint

    async def make(self, task: Task, *, seed: int) -> BlackBoxEnv:
        """Make the episode. Its agent is started by ``reset``."""
        endpoint = self.endpoint()
        exchange = endpoint.open(task, seed, offered=self.offers)
        return BlackBoxEnv(
            exchange,
            endpoint,
            self._runs(),
            anchor=self._anchor,
            success_at=self._success_at,
        )

    async def aclose(self) -> None:
        """Stop listening."""
        with self._lock:
            endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await asyncio.to_thread(endpoint.close)

    def _runs(self) -> Runs:
        if self._agent is not None:
            return Function(self._agent)
        return Offered() if self._command is None else Program(self._command)

    def _demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """The agent's episode with the expert as its model: all of it may be cloned."""
        # In a thread, because demonstrations are also asked for while an event loop runs.
        with ThreadPoolExecutor(1) as pool:
            yield from pool.submit(asyncio.run, self._demonstrated(task, seed, noise)).result()

    async def _demonstrated(self, task: Task, seed: int, noise: float) -> list[Demonstration]:
        rng = random.Random(derive_seed(seed, task.id))
        env = await self.make(task, seed=seed)
        steps: list[Demonstration] = []
        conversation: list[Message] = []
        try:
            shown = await env.reset()
            while True:
                conversation = [] if shown.fresh else conversation
                conversation += shown.messages
                said = self._expert(tuple(conversation), task, rng, noise)
                action = Message("assistant", said) if isinstance(said, str) else said
                if not isinstance(action, Message) or action.role != "assistant":
                    raise DataError(
                        f"the expert of env '{self.name}' answered {said!r}; expected a text or "
                        "an assistant Message"
                    )
                conversation.append(action)
                steps.append(Demonstration(shown, action, trainable=True))
                result = await env.step(action)
                if result.terminated:
                    return steps
                shown = result.observation
        finally:
            await env.aclose()

    def _function(self, given: Any, what: str) -> Any:
        found = resolve("env", given) if isinstance(given, str) else given
        if found is not None and not callable(found):
            raise ConfigError(f"env '{self.name}': {what} must be a function, got {found!r}")
        return found

    def _arguments(self, command: Any) -> list[str] | None:
        if command is None:
            return None
        if self._agent is not None:
            raise ConfigError(f"env '{self.name}': give agent or command, not both")
        if (
            isinstance(command, str)
            or not command
            or not all(isinstance(one, str) for one in command)
        ):
            raise ConfigError(
                f"env '{self.name}': command must be a list of texts, like [python, agent.py], "
                f"got {command!r}"
            )
        return list(command)
