"""Environments without an Env of one's own: problems, tools and a scorer."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, Literal

from agentrl.core.errors import ConfigError, DataError, nearest
from agentrl.core.message import ToolSpec
from agentrl.core.protocols import Demonstration, SandboxProvider, UserSimulator
from agentrl.core.task import Task, derive_seed
from agentrl.envs.tools.env import ToolEnv
from agentrl.envs.tools.expert import Expert, played
from agentrl.envs.tools.problems import Problems, tasks_by_split
from agentrl.envs.tools.situation import Scorer, Situation
from agentrl.registry import resolve
from agentrl.tools.dispatch import DispatchLimits
from agentrl.tools.toolbox import Toolbox

__all__ = ["ToolEnvFactory", "right_answer"]

Instruction = str | Callable[[Task], str]
MakeUser = Callable[[Task, int], UserSimulator]


def right_answer(situation: Situation) -> bool:
    """Whether the answer is the problem's ``answer`` (or one of them): case and spaces aside."""
    right = situation.task.payload["answer"]
    accepted = right if isinstance(right, list | tuple) else [right]
    given = " ".join((situation.answer or "").casefold().split())
    return given in [" ".join(str(one).casefold().split()) for one in accepted]


class ToolEnvFactory:
    """Tasks that are solved with tools. What ends an episode: see ``agentrl.envs.tools.env``.

    Args:
        tasks: Problems as mappings of JSON data, a JSONL file of them, or either by split; see
            ``tasks_by_split``.
        tools: What the policy can call; see ``agentrl.tools.toolbox``.
        score: Says what an episode was worth: of a ``Situation``, a bool, a number or a ``Score``;
            async or not; ``"module:attr"`` in a run file. Default: ``right_answer``.
        instruction: What the policy is told first: a text with the problem's fields in braces
            (``"{question}"``), or a function of the task. With a user, it is the system message,
            and may be empty.
        name: Name of the environment in its tasks.
        user: Makes the simulated user of an episode from (task, seed).
        anchor: Key of the state before an action, for step-level credit. ``"facts"``: what was done
            and learnt so far (``StateKey``): exact, if the tools depend on nothing else. A function
            of the ``Situation``, where the world has a smaller state. ``None``: never compared.
        max_steps: Messages of the policy before the episode is truncated; ``None``: the agent's
            own budget.
        success_at: The reward from which a task counts as solved, if the scorer gives numbers.
        expert: Plays a task, to clone from; see ``agentrl.envs.tools.expert``.
        limits: What tools may use for one message of the policy; in a run file a mapping.
        sandbox: Opens a sandbox for each episode, if a tool asks for one. sandbox_spec: for it.

    Raises:
        ConfigError: tools that cannot be shown to a model, two of one name, a missing scorer.
        DataError: problems that are none, or are in two splits.
    """

    demonstrate: Callable[..., Iterable[Demonstration]]  # present if there is an expert

    def __init__(
        self,
        tasks: Problems,
        tools: Sequence[Any],
        score: Scorer | str | None = None,
        *,
        instruction: Instruction = "{question}",
        name: str = "tools",
        user: MakeUser | None = None,
        anchor: Callable[[Situation], Any] | Literal["facts"] | None = "facts",
        max_steps: int | None = None,
        success_at: float = 1.0,
        expert: Expert | None = None,
        limits: DispatchLimits | dict[str, Any] | None = None,
        sandbox: SandboxProvider | None = None,
        sandbox_spec: Any = None,
    ) -> None:
        self.name = name
        self._tasks = tasks_by_split(tasks, name)
        self._toolbox = Toolbox(
            tools, limits=_limits(limits, name), sandbox=sandbox, sandbox_spec=sandbox_spec
        )
        self._score = self._scorer(score)
        self._instruction = instruction
        self._user = user
        self._anchor = anchor
        self._max_steps = max_steps
        self._success_at = success_at
        self._check(max_steps, anchor)
        if expert is not None:
            self._expert = expert
            self.demonstrate = self._demonstrate

    @property
    def splits(self) -> Sequence[str]:
        return tuple(self._tasks)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What the model is told of the tools; those of a ``ToolProvider`` are not known yet."""
        return self._toolbox.specs

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self._tasks:
            raise ConfigError(
                f"env '{self.name}' has no split '{split}'{nearest(split, self._tasks) or '.'} "
                f"It has: {', '.join(self._tasks)}."
            )
        return self._tasks[split]

    async def make(self, task: Task, *, seed: int) -> ToolEnv:
        """Make the episode. Tools are made in ``reset``."""
        return ToolEnv(
            task,
            self._toolbox,
            self._score,
            seed=seed,
            instruction=self._told(task),
            user=None if self._user is None else self._user(task, derive_seed(seed, "user")),
            anchor=self._anchor,
            max_steps=self._max_steps,
            success_at=self._success_at,
        )

    def fit_to(self, count_tokens: Callable[[str], int], room_tokens: int) -> None:
        """Called once the policy is known: ``room_tokens`` are its budget for prompt and answer."""
        self._toolbox.fit_to(count_tokens, room_tokens)

    def _demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterable[Demonstration]:
        """The expert's episode. ``noise`` changes nothing: nobody knows random calls that fit."""

        async def make() -> ToolEnv:
            return await self.make(task, seed=seed)

        rng = random.Random(derive_seed(seed, task.id))
        # In a thread, because demonstrations are also asked for while an event loop runs.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(played, make, self._expert, task, rng).result()

    def _told(self, task: Task) -> str:
        if callable(self._instruction):
            text = self._instruction(task)
        else:
            try:
                text = self._instruction.format_map(dict(task.payload))
            except (KeyError, IndexError, AttributeError, ValueError) as error:
                raise DataError(
                    f"env '{self.name}': the instruction {self._instruction!r} cannot be filled "
                    f"from task '{task.id}' ({type(error).__name__}: {error}); the problem has the "
                    f"fields {', '.join(map(str, task.payload)) or 'none'}"
                ) from None
        if not text.strip() and self._user is None:
            raise DataError(f"env '{self.name}': the instruction of task '{task.id}' is empty")
        return text

    def _scorer(self, score: Scorer | str | None) -> Scorer:
        if score is None:
            for task in (one for split in self._tasks.values() for one in split):
                if "answer" not in task.payload:
                    raise ConfigError(
                        f"env '{self.name}' has no scorer, and the problem {dict(task.payload)!r} "
                        "has no 'answer' to compare with: give score=, a function of a Situation"
                    )
            return right_answer
        found: Any = resolve("env", score) if isinstance(score, str) else score
        if not callable(found):
            raise ConfigError(f"env '{self.name}': score must be a function, got {found!r}")
        return found  # type: ignore[no-any-return]

    def _check(self, max_steps: Any, anchor: Any) -> None:
        if max_steps is not None and (not isinstance(max_steps, int) or max_steps < 1):
            raise ConfigError(f"env '{self.name}': max_steps must be 1 or more, got {max_steps!r}")
        if anchor is not None and anchor != "facts" and not callable(anchor):
            raise ConfigError(
                f"env '{self.name}': anchor must be 'facts', None or a function of a Situation, "
                f"got {anchor!r}"
            )
        if inspect.iscoroutinefunction(anchor):
            raise ConfigError(f"env '{self.name}': anchor must be a plain function, not async")
        for split in self._tasks.values():
            self._told(split[0])


def _limits(given: DispatchLimits | dict[str, Any] | None, name: str) -> DispatchLimits | None:
    if not isinstance(given, dict):
        return given
    known = [one.name for one in fields(DispatchLimits)]
    for key in given:
        if key not in known:
            raise ConfigError(
                f"env '{name}': unknown limit '{key}'{nearest(key, known) or '.'} There are: "
                f"{', '.join(known)}."
            )
    return DispatchLimits(**given)
