"""An rl stage whose rollouts go on while the learner works: the learner's side.

``reinforce_batches`` of ``agentrl.stages`` plays, learns, plays. Here episodes are played all the
time, up to ``max_staleness`` policy versions ahead, and an iteration learns from whatever groups
are complete. What an episode has begun with one version goes on with the next. Tasks and seeds are
those of the synchronous stage; which groups meet in an iteration depends on who was quick.

Every group ends as exactly one of: trained, stale (too old, and another task is played in its
place), discarded (below its quorum), or carried over to the run that resumes this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from agentrl.config import LearnerConfig, ReinforceStage
from agentrl.core.protocols import Annotator, CreditEstimator, Learner
from agentrl.core.task import Task
from agentrl.core.trajectory import Batch, CreditResult, Group
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.learn.proximal import with_proximal_logprobs
from agentrl.learn.rows import batches_from_groups
from agentrl.rollout.admission import Supply
from agentrl.rollout.load import Mark, Meter
from agentrl.rollout.runner import GroupRequest, Runner, refuse_if_nothing_finished
from agentrl.rollout.staleness import Asynchrony, Settled, aged, choose, groups_admitted
from agentrl.rollout.thread import LoopThread
from agentrl.stages import Iteration
from agentrl.strategies.cursor import TaskCursor

__all__ = ["LateGroups", "Ledger", "asynchronous_batches"]

LateGroups = Literal["wait", "drop"]


@dataclass(slots=True)
class Ledger:
    """Which groups of a stage are settled, by their positions in its order.

    Groups are settled out of order: those before ``first`` are, and some behind it.

    Args:
        per_iteration: Groups that the synchronous stage would play in one iteration.
        first: The first position that is not settled.
        settled: Id -> position of those settled since the start of the iteration of ``first``.
    """

    per_iteration: int
    first: int = 0
    settled: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        """Iterations, in the order of the synchronous stage, all of whose groups are settled."""
        return self.first // self.per_iteration

    @property
    def count(self) -> int:
        """Groups that are settled."""
        return self.whole * self.per_iteration + len(self.settled)

    def settle(self, one: Settled) -> None:
        self.settled[one.group.id] = one.position
        known = set(self.settled.values())
        while self.first in known:
            self.first += 1
        start = self.whole * self.per_iteration
        self.settled = {name: at for name, at in self.settled.items() if at >= start}


@dataclass(frozen=True, slots=True)
class _Taken:
    """What an iteration gets under ``version``, and what was too old for it."""

    version: int
    chosen: tuple[Settled, ...]
    stale: tuple[Group, ...]
    waited_s: float

    @property
    def groups(self) -> list[Group]:
        return [one.group for one in self.chosen if not one.discarded]

    def described(self, overlap: float | None, *, ahead: int) -> Asynchrony:
        return Asynchrony(
            version=self.version,
            ages={one.id: aged(one, self.version) for one in self.groups},
            stale={one.id: aged(one, self.version) for one in self.stale},
            discarded=[one.group.id for one in self.chosen if one.discarded],
            waited_s=self.waited_s,
            overlap=overlap,
            ahead=ahead,
        )


@dataclass(slots=True)
class _Stage:
    """An asynchronous stage under way; ``asynchronous_batches`` says what the fields are.

    Attributes:
        waiting: Groups that are complete and not taken, in the order of being complete.
        under_way: Of those that are not complete the version each was admitted under.
    """

    config: ReinforceStage
    supply: Supply
    loop: LoopThread
    runner: Runner
    ledger: Ledger
    bound: int
    late: LateGroups
    version: int
    clock: Callable[[], float]
    on_stale: Callable[[Group, int], None]
    on_discarded: Callable[[Group], None]
    waiting: list[Settled] = field(default_factory=list)
    under_way: Sequence[int] = ()

    @property
    def ahead(self) -> int:
        return len(self.waiting) + len(self.supply.admission.under_way)

    def allow(self, iteration: int) -> None:
        """Let groups begin as far as they may while ``iteration`` is the next to be learnt."""
        groups = groups_admitted(
            iteration,
            bound=self.bound,
            per_iteration=self.config.tasks_per_iteration,
            iterations=self.config.iterations,
            stale=self.stale_so_far(iteration),
        )
        self.loop.run(self.supply.allow(groups, self.version))

    def stale_so_far(self, iteration: int) -> int:
        """Groups that were settled without being of any iteration before ``iteration``."""
        return self.ledger.count - iteration * self.config.tasks_per_iteration

    def take(self, number: int) -> _Taken:
        """Wait for the groups of iteration ``number``."""
        begun = self.clock()
        stale: list[Group] = []
        self._refresh(wait=False)
        while True:
            stale += self._drop_the_old(number)
            chosen = choose(
                self.waiting,
                self.under_way,
                version=self.version,
                bound=self.bound,
                count=self.config.tasks_per_iteration,
                wait=self.late == "wait",
            )
            if chosen is not None:
                break
            self._refresh(wait=True)
        self._settle(chosen)
        for one in chosen:
            if one.discarded:
                self.on_discarded(one.group)
        return _Taken(self.version, chosen, tuple(stale), self.clock() - begun)

    def _refresh(self, *, wait: bool) -> None:
        taking = self.supply.take(wait=wait)
        complete, self.under_way = self.loop.run(taking, on_given_up=self.runner.blame)
        self.waiting += complete

    def _settle(self, gone: Sequence[Settled]) -> None:
        for one in gone:
            self.ledger.settle(one)
        positions = {one.position for one in gone}
        self.waiting = [one for one in self.waiting if one.position not in positions]

    def _drop_the_old(self, number: int) -> list[Group]:
        """Take out what is too old; as many other groups may begin instead."""
        ages = {one.position: aged(one.group, self.version) for one in self.waiting}
        old = [one for one in self.waiting if ages[one.position] > self.bound]
        old = [one for one in old if not one.discarded]
        if old:
            self._settle(old)
            for one in old:
                self.on_stale(one.group, ages[one.position])
            self.allow(number)
        return [one.group for one in old]


def asynchronous_batches(
    stage: ReinforceStage,
    *,
    runner: Runner,
    loop: LoopThread,
    tasks: Sequence[Task],
    credit: CreditEstimator,
    annotators: Sequence[Annotator],
    learner: Learner,
    settings: LearnerConfig,
    seed: int,
    name: str,
    max_staleness: int,
    late_groups: LateGroups = "wait",
    version: int = 0,
    ledger: Ledger | None = None,
    on_groups: Callable[[Sequence[Group], CreditResult], None],
    on_iteration: Callable[[Iteration], bool],
    on_stale: Callable[[Group, int], None] = lambda group, age: None,
    on_discarded: Callable[[Group], None] = lambda group: None,
    on_carried_over: Callable[[Mapping[str, int]], None] = lambda positions: None,
    done: int = 0,
    spent_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Batch]:
    """Take complete groups, assign credit, yield the updates' batches, publish, repeat.

    Arguments as for ``agentrl.stages.reinforce_batches``, and:

    Args:
        max_staleness: Versions that the oldest sample of a group may be behind the weights that
            its updates begin with; 0: episodes never go on across a publication.
        late_groups: What becomes of a group that is still being played when it would be too old
            for the next iteration: the learner waits for it, or it is dropped when it comes.
            Dropping loses slow episodes more often than quick ones.
        version: Of the weights at the start.
        ledger: Which groups a run before a kill has settled, ``done`` iterations having been made
            of them; is kept up to date.
        on_stale: Called with each group that was too old, and its age.
        on_discarded: Called with each group below its quorum.
        on_carried_over: Called at an early end with the groups begun and not settled, and their
            positions.
    """
    started = clock() - spent_s
    size = stage.tasks_per_iteration
    ledger = Ledger(size) if ledger is None else ledger
    supply = Supply(
        runner,
        _requests(stage, tasks, seed, name, ledger),
        given=ledger.count,
        version=version,
    )
    work = _Stage(
        stage,
        supply,
        loop,
        runner,
        ledger,
        bound=max_staleness,
        late=late_groups,
        version=version,
        clock=clock,
        on_stale=on_stale,
        on_discarded=on_discarded,
    )
    meter = Meter(runner.stats, runner.agent.engine, runner.clock)
    with loop.entered(supply):
        work.allow(done)
        mark = meter.mark()
        for number in range(done, stage.iterations):
            if number and _over(stage.max_seconds, clock() - started):
                break
            begun = clock()
            taken = work.take(number)
            refuse_if_nothing_finished([one.group for one in taken.chosen])
            groups: Sequence[Group] = taken.groups
            for annotator in annotators if groups else ():
                groups = annotator.annotate(groups)
            assigned = credit.assign(groups) if groups else CreditResult(())
            assigned = with_diagnostics(groups, assigned)
            on_groups(groups, assigned)
            batches = batches_from_groups(
                groups,
                assigned,
                updates=stage.updates_per_iteration,
                trajectory_weighting=settings.trajectory_weighting,
                batch_id=f"{name}-{number}",
            )
            if settings.loss == "decoupled":
                batches = with_proximal_logprobs(batches, learner)
            learning, rolled_out = meter.mark(), clock()
            yield from batches
            learnt, overlap = clock(), _overlap(meter, learning)
            work.version = learner.publish()
            work.allow(number + 1)
            load, mark = meter.since(mark), meter.mark()
            iteration = Iteration(
                number,
                groups,
                assigned,
                work.version,
                rolled_out - begun,
                learnt - rolled_out,
                load,
                played=[*groups, *taken.stale],
                asynchrony=taken.described(overlap, ahead=work.ahead),
            )
            if on_iteration(iteration):
                break
    left = {one.group.id: one.position for one in work.waiting} | supply.left()
    if left:
        on_carried_over(left)


def _requests(
    stage: ReinforceStage, tasks: Sequence[Task], seed: int, name: str, ledger: Ledger
) -> Iterator[tuple[int, GroupRequest]]:
    """The groups of the stage that are not settled, in order: those of the synchronous stage."""
    cursor = TaskCursor(tasks, seed, position=ledger.first)
    settled = frozenset(ledger.settled.values())
    for position in count(ledger.first):
        ((task, epoch),) = cursor.take(1)
        if position in settled:
            continue
        iteration, place = divmod(position, stage.tasks_per_iteration)
        yield (
            position,
            GroupRequest(
                id=f"{name}-{iteration}-{place}-{task.id}",
                task=task,
                size=stage.group_size,
                seed=seed,
                first_trial=epoch * stage.group_size,
            ),
        )


def _overlap(meter: Meter, since: Mark) -> float | None:
    """Share of the seconds since then in which the engine computed."""
    return meter.since(since).engine_utilisation


def _over(max_seconds: float | None, seconds: float) -> bool:
    return max_seconds is not None and seconds >= max_seconds
