"""Stages that are played in tests: groups made up, or real ones with a scripted policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.agents.loop import Agent
from agentrl.config import LearnerConfig, ReinforceStage
from agentrl.core.strategy import Strategy
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Batch, CreditResult, Group, Sampling, Trajectory
from agentrl.credit.grpo import GRPO
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.toy import ToyFactory
from agentrl.memory.transcript import Transcript
from agentrl.rollout.limits import GroupRequest, Limits
from agentrl.rollout.runner import Runner
from agentrl.rollout.thread import LoopThread
from agentrl.stages import Iteration, course_of, reinforce_batches
from agentrl.strategies.course import Asked, Course, Learnt, Rollout
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.episodes import episode, failed_episode
from tests.test_stages import CountingLearner, Improvised

FACTORY = ToyFactory(max_rooms=3, max_steps=6)
Reward = float | None


def made_up(asked: Asked, reward: Callable[[Asked, int], Reward]) -> Group:
    """The group of ``asked``, its rewards by trial; ``None``: the episode broke."""
    members = []
    for trial in range(asked.first_trial, asked.first_trial + asked.size):
        value = reward(asked, trial)
        name = f"{asked.id}/{trial}"
        one = failed_episode(name) if value is None else episode(name, ("a", 0.0), ("b", value))
        members.append(replace(one, id=name, group_id=asked.id, task_id=asked.task.id, trial=trial))
    return Group(asked.id, asked.task, tuple(members))


def by_chance(share: Mapping[str, float] | float, seed: int = 0) -> Callable[[Asked, int], Reward]:
    """Rewards 1 with a chance that depends on the task, drawn from its seed and trial."""

    def reward(asked: Asked, trial: int) -> Reward:
        chance = share if isinstance(share, float) else share[asked.task.id]
        return float(derive_seed(seed, asked.seed, asked.task.id, trial) / 2**63 < chance)

    return reward


def compared(groups: Sequence[Group]) -> CreditResult:
    """Rewards less the mean of their group."""
    return GRPO(normaliser="mean").assign(groups) if groups else CreditResult(())


@dataclass(slots=True)
class MadeUp:
    """A stage whose groups are made up; ``stored`` holds every trajectory by its id."""

    strategies: Mapping[str, Strategy]
    tasks: Sequence[Task]
    reward: Callable[[Asked, int], Reward]
    places: int = 4
    group_size: int = 8
    stored: dict[str, Trajectory] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def course(self) -> Course:
        return Course(
            self.strategies,
            tasks=self.tasks,
            seed=7,
            name="s",
            places=self.places,
            group_size=self.group_size,
            recall=self.stored.__getitem__,
        )

    def play(self, course: Course, number: int) -> tuple[Rollout, Learnt]:
        """One iteration."""
        asked = course.plan(number)
        while asked:
            for one in asked:
                self.answer(course, one)
            asked = course.waiting(number)
        rollout = course.settle(number)
        return rollout, course.learn(number, rollout.groups, compared(rollout.groups))

    def answer(self, course: Course, one: Asked) -> Asked | None:
        self.asked.append(one)
        group = made_up(one, self.reward)
        self.stored |= {t.id: t for t in group.trajectories}
        return course.answer(one, group)


@dataclass(slots=True)
class Scripted:
    """An rl stage with a scripted policy, and everything that it recorded.

    ``recorded`` is what a run before had recorded, which is not played again.
    """

    strategies: Sequence[Mapping[str, Any]]
    recorded: Mapping[str, Trajectory] = field(default_factory=dict)
    stored: dict[str, Trajectory] = field(default_factory=dict)
    played: list[str] = field(default_factory=list)
    credited: list[str] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    learnt: list[Learnt] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    factory: Any = FACTORY

    def batches(
        self, loop: LoopThread, *, done: int = 0, state: Any = None, **settings: Any
    ) -> Iterator[Batch]:
        wanted = {"iterations": 4, "tasks_per_iteration": 4, "group_size": 6}
        chosen = {"kind": "rl", "updates_per_iteration": 2, "strategies": self.strategies}
        stage = ReinforceStage.model_validate(chosen | wanted | settings)
        self.stored |= self.recorded
        course = course_of(
            stage,
            tasks=FACTORY.tasks("train"),
            seed=7,
            name="stage0",
            recall=self.stored.__getitem__,
            done=done,
        )
        if state is not None:
            course.load_state_dict(state)
        agent = Agent(
            engine=ScriptedEngine(Improvised()),
            renderer=CharacterRenderer(),
            make_memory=Transcript,
            sampling=Sampling(max_tokens=16),
            action_format="bare",
        )

        def iterate(one: Iteration) -> bool:
            self.iterations.append(one)
            self.states.append(course.state_dict())
            return False

        return reinforce_batches(
            stage,
            runner=Runner(
                self.factory,
                agent,
                limits=self.limits,
                on_trajectory=self._keep,
                recorded=self._recorded,
            ),
            loop=loop,
            tasks=FACTORY.tasks("train"),
            credit=GRPO(invalid_action_penalty=0.1),
            annotators=(),
            learner=CountingLearner(version=done),
            settings=LearnerConfig(),
            seed=7,
            name="stage0",
            on_groups=lambda groups, _: self.credited.extend(
                one.id for group in groups for one in group.trajectories
            ),
            on_iteration=iterate,
            done=done,
            course=course,
            on_learnt=lambda _, one: self.learnt.append(one),
        )

    def _keep(self, request: GroupRequest, trajectory: Trajectory) -> None:
        self.stored[trajectory.id] = trajectory
        self.played.append(trajectory.id)

    def _recorded(self, request: GroupRequest) -> Mapping[int, Trajectory]:
        mine = [one for one in self.recorded.values() if one.group_id == request.id]
        return {one.trial: one for one in mine}
