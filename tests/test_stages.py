"""Stages as iterators of batches: what is pulled when, in which order, with which weights."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Budgets
from agentrl.config import CloneStage, LearnerConfig, ReinforceStage
from agentrl.core.protocols import EnvFactory, Scores
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import (
    Batch,
    CreditResult,
    Group,
    Row,
    Sampling,
    UpdateStats,
)
from agentrl.credit.grpo import GRPO
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.toy import ToyFactory
from agentrl.learn.rows import TrajectoryWeighting
from agentrl.memory.transcript import Transcript
from agentrl.memory.window import Window
from agentrl.rollout.runner import Limits, Runner
from agentrl.rollout.thread import LoopThread
from agentrl.stages import Iteration, TaskCursor, clone_batches, reinforce_batches
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.faults import Fault, FaultyFactory

FACTORY = ToyFactory(max_rooms=3, max_steps=6)
COMMANDS = ("go left", "go right", "take key", "open door")


@dataclass(slots=True)
class CountingLearner:
    """Makes no step; counts publications; scores every token by the version."""

    version: int = 0
    scored: list[int] = field(default_factory=list)

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        raise AssertionError("the test pulls the batches itself")

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        assert actions_only
        self.scored.append(len(rows))
        return Scores([[-1.0 - self.version] * len(row.token_ids) for row in rows])

    def publish(self) -> int:
        self.version += 1
        return self.version

    def save(self, path: Path) -> None:
        raise AssertionError("stages do not save")

    def load(self, path: Path) -> None:
        raise AssertionError("stages do not load")


class Improvised(Mapping[str, list[list[int]]]):
    """A script for any episode: commands drawn from a stream of its own."""

    def __getitem__(self, episode_id: str) -> list[list[int]]:
        rng = random.Random(derive_seed(0, episode_id))
        return [[ord(one) for one in rng.choice(COMMANDS)] for _ in range(6)]

    def __contains__(self, episode_id: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(slots=True)
class Stage:
    """An rl stage with a scripted policy, and what it called back."""

    stored: list[str] = field(default_factory=list)
    credited: list[str] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    learner: CountingLearner = field(default_factory=CountingLearner)
    settings: LearnerConfig = field(default_factory=LearnerConfig)
    penalty: float = 0.1
    factory: EnvFactory = FACTORY
    limits: Limits = field(default_factory=Limits)
    seconds: float = 0.0

    def batches(self, loop: LoopThread, *, done: int = 0, **settings: Any) -> Iterator[Batch]:
        stage = ReinforceStage(
            kind="rl",
            **{
                "iterations": 3,
                "tasks_per_iteration": 4,
                "group_size": 3,
                "updates_per_iteration": 2,
            }
            | settings,
        )

        runner = Runner(
            self.factory,
            Agent(
                engine=ScriptedEngine(Improvised()),
                renderer=CharacterRenderer(),
                make_memory=Transcript,
                sampling=Sampling(max_tokens=16),
                action_format="bare",
            ),
            limits=self.limits,
            on_trajectory=lambda _, one: self.stored.append(one.id),
        )
        return reinforce_batches(
            stage,
            runner=runner,
            loop=loop,
            tasks=FACTORY.tasks("train"),
            credit=GRPO(invalid_action_penalty=self.penalty),
            annotators=(),
            learner=self.learner,
            settings=self.settings,
            seed=7,
            name="stage0",
            on_groups=self._credit,
            on_iteration=self._iterate,
            done=done,
            clock=self._clock,
        )

    def _credit(self, groups: Sequence[Group], credit: CreditResult) -> None:
        self.credited += [one.id for group in groups for one in group.trajectories]

    def _iterate(self, done: Iteration) -> bool:
        self.iterations.append(done)
        return False

    def _clock(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as thread:
        yield thread


def test_the_cursor_goes_through_every_task_once_an_epoch() -> None:
    tasks = FACTORY.tasks("train")
    cursor = TaskCursor(tasks, seed=3)
    taken = cursor.take(2 * len(tasks))
    for epoch in range(2):
        mine = [task.id for task, number in taken if number == epoch]
        assert sorted(mine) == sorted(task.id for task in tasks)
    first, second = taken[: len(tasks)], taken[len(tasks) :]
    assert [task for task, _ in first] != [task for task, _ in second]


@pytest.mark.parametrize("position", [0, 7, 20, 50])
def test_a_cursor_goes_on_where_another_stopped(position: int) -> None:
    tasks = FACTORY.tasks("train")
    whole = TaskCursor(tasks, seed=3).take(position + 10)
    assert TaskCursor(tasks, seed=3, position=position).take(10) == whole[position:]


def test_what_is_trained_was_stored_and_credited_before_and_none_twice(loop: LoopThread) -> None:
    stage = Stage()
    trained: list[str] = []
    for batch in stage.batches(loop):
        mine = {row.trajectory_id for row in batch.rows}
        assert mine <= set(stage.stored)
        assert mine <= set(stage.credited)
        assert not mine & set(trained)
        trained += mine
    assert len(trained) > 12
    assert len(set(stage.stored)) == len(stage.stored) == 3 * 4 * 3


def test_the_weights_are_published_after_the_updates_of_an_iteration(loop: LoopThread) -> None:
    stage = Stage()
    published = [
        (batch.id.rpartition("/")[0], stage.learner.version) for batch in stage.batches(loop)
    ]
    for name, version in published:
        assert name == f"stage0-{version}"
    assert [one.policy_version for one in stage.iterations] == [1, 2, 3]


def test_a_batch_without_signal_is_the_learners_to_judge(loop: LoopThread) -> None:
    # Without the penalty nearly all these random episodes fail alike. With a KL term even such a
    # batch has a gradient, and without one it moves the schedule on.
    batches = list(Stage(penalty=0.0).batches(loop, iterations=5))
    assert len(batches) == 5 * 2
    assert any(not any(any(row.advantages) for row in batch.rows) for batch in batches)


def test_the_decoupled_loss_knows_the_policy_that_the_updates_began_with(loop: LoopThread) -> None:
    stage = Stage(settings=LearnerConfig(loss="decoupled"))
    batches = list(stage.batches(loop, iterations=2))
    assert len(stage.learner.scored) == 2  # once an iteration, for all batches but the first
    first = [batch for batch in batches if batch.id.endswith("/0")]
    assert all(row.proximal_logprobs is None for batch in first for row in batch.rows)
    later = [batch for batch in batches if not batch.id.endswith("/0")]
    for version, batch in enumerate(later):
        for row in batch.rows:
            if any(row.advantages):
                assert row.proximal_logprobs == (-1.0 - version,) * len(row.token_ids)
    assert not list(Stage().batches(loop))[1].rows[0].proximal_logprobs


def test_a_stage_goes_on_as_if_it_had_never_stopped(loop: LoopThread) -> None:
    whole, rest = Stage(), Stage()
    all_batches = list(whole.batches(loop))
    left = list(rest.batches(loop, done=2))
    assert left
    assert left == all_batches[-len(left) :]
    assert [one.number for one in rest.iterations] == [2]


def test_a_stage_ends_when_its_time_is_over(loop: LoopThread) -> None:
    # The clock moves on by one second whenever it is looked at: four times an iteration.
    stage = Stage()
    assert len(list(stage.batches(loop, iterations=50, max_seconds=9.0))) <= 6
    assert len(stage.iterations) == 3


def test_an_iteration_whose_groups_were_all_discarded_trains_nothing_and_the_stage_goes_on(
    loop: LoopThread,
) -> None:
    # Of each group of three the last trial fails for good; the quorum is three.
    def last(task: Task, seed: int) -> bool:
        return seed in {derive_seed(7, task.id, trial) for trial in (2, 5, 8)}

    faulty = FaultyFactory(FACTORY, Fault("raise", "reset", chooses=last))
    stage = Stage(factory=faulty, limits=Limits(retries=0, quorum=3))
    assert list(stage.batches(loop)) == []
    assert [len(one.groups) for one in stage.iterations] == [0, 0, 0]
    load = stage.iterations[-1].load
    assert load is not None
    counts = load.counts
    assert (counts.requested, counts.finished, counts.failed, counts.discarded) == (12, 8, 4, 4)
    assert stage.credited == []


def cloned(loop: LoopThread, weighting: TrajectoryWeighting, **settings: Any) -> list[Batch]:
    agent = Agent(
        engine=ScriptedEngine([]),
        renderer=CharacterRenderer(),
        make_memory=settings.pop("memory", Transcript),
        sampling=Sampling(max_tokens=16),
        action_format="bare",
        budgets=Budgets(max_steps=6, max_tokens=2048),
    )
    done = settings.pop("done", 0)
    stage = CloneStage(kind="clone", updates=3, episodes_per_update=4, **settings)
    return list(
        clone_batches(
            stage,
            factory=FACTORY,
            agent=agent,
            loop=loop,
            tasks=FACTORY.tasks("train"),
            settings=LearnerConfig(trajectory_weighting=weighting),
            seed=5,
            done=done,
        )
    )


def sums(batch: Batch) -> list[float]:
    return [row.weight * sum(row.action_mask) for row in batch.rows]


def test_an_expert_episode_counts_once_or_by_its_tokens(loop: LoopThread) -> None:
    for batch in cloned(loop, "tokens"):
        assert {row.weight for row in batch.rows} == {1.0}
    for batch in cloned(loop, "equal"):
        tokens = sum(sum(row.action_mask) for row in batch.rows)
        assert sums(batch) == pytest.approx([tokens / 4] * 4)
    short = cloned(loop, "tokens")[0].rows
    assert len({sum(row.action_mask) for row in short}) > 1  # else the two would be the same


def test_an_expert_episode_in_many_rows_counts_once(loop: LoopThread) -> None:
    # A window of one step shows each step anew: one row a step, and still one episode.
    def memory() -> Window:
        return Window(steps=1)

    pairs = zip(cloned(loop, "equal", memory=memory), cloned(loop, "equal"), strict=True)
    for batch, whole in pairs:
        assert len(batch.rows) > len(whole.rows) == 4
        tokens = sum(sum(row.action_mask) for row in batch.rows)
        rows = iter(batch.rows)
        for episode_row in whole.rows:
            left, share = sum(episode_row.action_mask), 0.0
            while left:
                row = next(rows)
                left -= sum(row.action_mask)
                share += row.weight * sum(row.action_mask)
            assert share == pytest.approx(tokens / 4)


def test_cloning_goes_on_as_if_it_had_never_stopped(loop: LoopThread) -> None:
    whole = cloned(loop, "equal", noise=0.3)
    assert cloned(loop, "equal", noise=0.3, done=1) == whole[1:]
