"""An asynchronous stage with scripted parts, in simulated time: nothing is real but the schedule.

An environment's step, an answer and an update take as long as a seeded draw says. The engine
samples token by token, and the learner's publications reach it in the middle of answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.agents.loop import Agent, Budgets
from agentrl.asynchronous import asynchronous_batches
from agentrl.config import LearnerConfig, ReinforceStage
from agentrl.core.errors import EngineError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Scores
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import (
    Batch,
    CreditResult,
    Group,
    Observation,
    Row,
    Sample,
    Sampling,
    StepResult,
    Trajectory,
    UpdateStats,
)
from agentrl.credit.grpo import GRPO
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.rollout.taken import Taken
from agentrl.stages import Iteration
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.simulated_time import SimulatedThread


@dataclass(slots=True)
class TokenEngine:
    """Samples ``a``s; each token takes a second, and bears the version at that moment.

    The log-probability of a token is ``-1 - version``, so that what is recorded can be checked.
    A call fails in its middle where ``fails`` says so.
    """

    version: int = 0
    fails: Callable[[str, int], bool] = field(default=lambda episode, call: False)
    calls: int = 0

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        self.calls += 1
        call, rng = self.calls, random.Random(seed)
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[tuple[int, int]] = []
        length = rng.randint(1, sampling.max_tokens)
        while len(ids) < length:
            await asyncio.sleep(1.0)
            if len(ids) == 1 and self.fails(episode_id, call):
                raise EngineError("the connection broke in the middle of an answer")
            if not versions or versions[-1][1] != self.version:
                versions.append((len(ids), self.version))
            ids.append(ord("a"))
            logprobs.append(-1.0 - self.version)
        return Sample(tuple(ids), tuple(logprobs), tuple(versions), "length")

    def release(self, episode_id: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class WaitingEnv:
    """Ends after a drawn number of steps, each of which takes a drawn time with a heavy tail."""

    rng: random.Random
    longest: int
    breaks: float
    left: int = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def reset(self) -> Observation:
        self.left = self.rng.randint(1, self.longest)
        return Observation((Message("user", "go"),), "start")

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(min(self.rng.paretovariate(1.1), 60.0))
        if self.rng.random() < self.breaks:
            raise RuntimeError("the machine of this episode broke")
        self.left -= 1
        over = self.left == 0
        won = over and self.rng.random() < 0.5
        seen = Observation((Message("user", "go on"),), self.left)
        return StepResult(seen, float(won), over, success=won if over else None)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class WaitingFactory:
    """``count`` tasks; an attempt draws anew, so that a retry may go well."""

    count: int = 12
    longest: int = 2
    breaks: float = 0.0
    reverse: bool = False
    splits: Sequence[str] = ("train",)
    made: int = 0

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = [
            Task(content_hash(number), "waiting", split, {"number": number})
            for number in range(self.count)
        ]
        return sorted(tasks, key=lambda one: one.id)

    async def make(self, task: Task, *, seed: int) -> WaitingEnv:
        self.made += 1
        return WaitingEnv(random.Random(seed + 7919 * self.made), self.longest, self.breaks)


@dataclass(slots=True)
class TimedLearner:
    """Every update takes time, in which the event loop turns; publishing reaches the engine."""

    thread: SimulatedThread
    engine: TokenEngine
    update_s: float = 10.0
    version: int = 0
    updates: int = 0
    on_batch: Callable[[Batch], None] = field(default=lambda batch: None)

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        for batch in batches:
            self.on_batch(batch)
            self.thread.run(asyncio.sleep(self.update_s))
            self.updates += 1
            on_update(UpdateStats(self.updates, self.version, {}))

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        return Scores([[-1.0 - self.version] * len(row.token_ids) for row in rows])

    def publish(self) -> int:
        self.version += 1
        self.engine.version = self.version
        return self.version

    def save(self, path: Path) -> None:
        raise AssertionError("stages do not save")

    def load(self, path: Path) -> None:
        raise AssertionError("stages do not load")


@dataclass(slots=True)
class Played:
    """A stage, and all that it said."""

    bound: int = 1
    late: Any = "wait"
    iterations: int = 20
    places: int = 3
    group_size: int = 2
    updates: int = 1
    factory: WaitingFactory = field(default_factory=WaitingFactory)
    limits: Limits = field(default_factory=lambda: Limits(concurrency=12, retries=4))
    fails: Callable[[str, int], bool] = field(default=lambda episode, call: False)
    update_s: float = 10.0
    recorded: Mapping[str, Mapping[int, Trajectory]] = field(default_factory=dict)
    done: int = 0
    version: int = 0
    known: Sequence[Taken] = ()
    stops_after: int | None = None
    loss: Any = "decoupled"

    made: list[Iteration] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    carried: dict[str, int] = field(default_factory=dict)
    begun: dict[str, GroupRequest] = field(default_factory=dict)
    stored: dict[str, Trajectory] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def stale(self) -> dict[str, int]:
        """Ages of the groups that were too old, by id."""
        return {
            name: age
            for one in self.made
            if one.asynchrony
            for name, age in one.asynchrony.stale.items()
        }

    @property
    def discarded(self) -> list[str]:
        return [name for one in self.made if one.asynchrony for name in one.asynchrony.discarded]

    def run(self) -> Played:
        with SimulatedThread() as thread:
            engine = TokenEngine(self.version, self.fails)
            learner = TimedLearner(thread, engine, self.update_s, self.version)
            learner.on_batch = self._learnt
            with closing(self._batches(thread, engine, learner)) as batches:
                learner.fit(batches, on_update=lambda stats: None)
            self.seconds = thread.now_s
        return self

    def _batches(self, thread: SimulatedThread, engine: TokenEngine, learner: TimedLearner) -> Any:
        agent = Agent(
            engine=engine,
            renderer=CharacterRenderer(),
            make_memory=Transcript,
            sampling=Sampling(max_tokens=6),
            action_format="bare",
            budgets=Budgets(max_steps=9),
        )
        runner = Runner(
            self.factory,
            agent,
            self.limits,
            on_trajectory=self._store,
            recorded=self._recorded,
            clock=lambda: thread.now_s,
        )
        stage = ReinforceStage(
            kind="rl",
            iterations=self.iterations,
            tasks_per_iteration=self.places,
            group_size=self.group_size,
            updates_per_iteration=self.updates,
        )
        return asynchronous_batches(
            stage,
            runner=runner,
            loop=thread,
            tasks=self.factory.tasks("train"),
            credit=GRPO(),
            annotators=(),
            learner=learner,
            settings=LearnerConfig(loss=self.loss),
            seed=7,
            name="stage0",
            max_staleness=self.bound,
            late_groups=self.late,
            version=self.version,
            known=self.known,
            on_taken=self.taken.append,
            on_groups=self._credited,
            on_iteration=self._iterated,
            on_carried_over=self.carried.update,
            done=self.done,
            clock=lambda: thread.now_s,
        )

    def _store(self, request: GroupRequest, trajectory: Trajectory) -> None:
        self.begun[request.id] = request
        self.stored[trajectory.id] = trajectory

    def _recorded(self, request: GroupRequest) -> Mapping[int, Trajectory]:
        self.begun.setdefault(request.id, request)
        return self.recorded.get(request.id, {})

    def _credited(self, groups: Sequence[Group], credit: CreditResult) -> None:
        self.trained += [one.id for one in groups]

    def _learnt(self, batch: Batch) -> None:
        self.batches.append(batch)

    def _iterated(self, done: Iteration) -> bool:
        self.made.append(done)
        return self.stops_after is not None and len(self.made) >= self.stops_after


def expected_ids(places: int, count: int, factory: WaitingFactory) -> list[str]:
    """Ids of the first groups of the synchronous stage, in its order."""
    tasks = factory.tasks("train")
    ids = []
    for position in range(count):
        epoch, offset = divmod(position, len(tasks))
        order = list(range(len(tasks)))
        random.Random(derive_seed(7, "epoch", epoch)).shuffle(order)
        iteration, place = divmod(position, places)
        ids.append(f"stage0-{iteration}-{place}-{tasks[order[offset]].id}")
    return ids


def recorded_by(played: Played) -> dict[str, dict[int, Trajectory]]:
    """What a store holds of a run: of each trial the last attempt."""
    found: dict[str, dict[int, Trajectory]] = {}
    for one in sorted(played.stored.values(), key=lambda each: each.attempt):
        found.setdefault(one.group_id, {})[one.trial] = one
    return found
