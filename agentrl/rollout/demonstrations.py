"""Expert episodes as token rows, made by the same loop that plays the policy's episodes.

The environment's expert is played back through ``play``: what is cloned is to the token what the
policy will see, whatever the renderer and memory do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentrl.agents.actions import write_action
from agentrl.agents.loop import Agent, Budgets, Episode, play
from agentrl.core.errors import DataError, EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Demonstration, Demonstrator, EnvFactory, Renderer
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Observation, Sample, Sampling, StepResult, Trajectory

__all__ = ["MaskedTokens", "demonstrate"]

MaskedTokens = tuple[tuple[int, ...], tuple[int, ...]]


async def demonstrate(
    factory: Demonstrator,
    agent: Agent,
    task: Task,
    *,
    seed: int,
    noise: float,
    imitate_noise: bool = False,
) -> list[MaskedTokens]:
    """The expert's episode of ``task`` as ``(token ids, mask)`` rows; mask 1 on what it said.

    Random commands (a share ``noise``) are in the rows with mask 0, or with mask 1 under
    ``imitate_noise``. One row per segment.

    Raises:
        DataError: the episode could not be played back.
    """
    episode_seed = derive_seed(seed, task.id, "demonstration")
    demonstrations = tuple(factory.demonstrate(task, seed=episode_seed, noise=noise))
    tools = await _tools(factory, agent, task, episode_seed)
    answers = [
        write_action(one.action, agent.action_format, agent.dialect, tools)
        for one in demonstrations
    ]
    expert = _ExpertEngine(agent.renderer, answers)
    # The expert's episode is shown whole; budgets are the policy's.
    budgets = Budgets(max_steps=len(demonstrations), max_tokens=agent.budgets.max_tokens)
    sampling = Sampling(max_tokens=agent.budgets.max_tokens)
    player = replace(agent, engine=expert, budgets=budgets, sampling=sampling)

    async def make_env() -> _ReplayEnv:
        return _ReplayEnv(demonstrations, tools)

    episode = Episode("demonstration", task.id, 0, 0, episode_seed)
    trajectory = await play(player, make_env, episode)
    if trajectory.failure is not None:
        raise DataError(f"demonstration of task {task.id} failed: {trajectory.failure.message}")
    return list(_rows(trajectory, [one.trainable or imitate_noise for one in demonstrations]))


async def _tools(factory: Demonstrator, agent: Agent, task: Task, seed: int) -> Sequence[ToolSpec]:
    """The tools that the policy will be told of in this task; a prompt without tools needs none."""
    if agent.action_format not in ("tools", "chat") or not isinstance(factory, EnvFactory):
        return ()
    env = await factory.make(task, seed=seed)
    try:
        await env.reset()  # some tools are only known once a server has named them
        return tuple(env.tools)
    finally:
        await env.aclose()


def _rows(trajectory: Trajectory, trainable: Sequence[bool]) -> Iterator[MaskedTokens]:
    for segment in trajectory.segments():
        mask = [0] * len(segment.token_ids)
        for position, (start, end) in zip(segment.steps, segment.spans, strict=True):
            if trainable[position]:
                mask[start:end] = [1] * (end - start)
        if any(mask):
            yield segment.token_ids, tuple(mask)


@dataclass(slots=True)
class _ExpertEngine:
    """An engine that answers with the expert's actions, in order."""

    renderer: Renderer
    answers: list[Message]
    played: int = 0

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        ids = tuple(self.renderer.encode_action(self.answers[self.played]))
        self.played += 1
        return Sample(ids, (0.0,) * len(ids), ((0, 0),), "stop")

    def release(self, episode_id: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class _ReplayEnv:
    """Shows what the expert saw."""

    demonstrations: Sequence[Demonstration]
    tools: Sequence[ToolSpec] = ()
    position: int = 0

    async def reset(self) -> Observation:
        if not self.demonstrations:
            raise EnvError("the expert gave no action; its demonstration is empty")
        return self.demonstrations[0].observation

    async def step(self, action: Message) -> StepResult:
        self.position += 1
        over = self.position == len(self.demonstrations)
        shown = Observation(()) if over else self.demonstrations[self.position].observation
        return StepResult(shown, 0.0, terminated=over)

    async def aclose(self) -> None:
        """Nothing is open."""
