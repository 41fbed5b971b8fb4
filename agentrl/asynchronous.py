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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
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
from agentrl.rollout.taken import Taken
from agentrl.rollout.thread import LoopThread
from agentrl.stages import Iteration
from agentrl.strategies.cursor import TaskCursor

__all__ = ["LateGroups", "Ledger", "asynchronous_batches", "iteration_of"]

LateGroups = Literal["wait", "drop"]


@dataclass(slots=True)
class Ledger:
    """Which groups of a stage are settled, by their positions in its order.

    Groups are settled out of order: those before ``first`` are, and some behind it.

    Args:
        first: The first position that is not settled.
        beyond: Settled positions behind it.
    """

    first: int = 0
    beyond: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Groups that are settled."""
        return self.first + len(self.beyond)

    def settle(self, positions: Iterable[int]) -> None:
        self.beyond.update(positions)
        while self.first in self.beyond:
            self.beyond.remove(self.first)
            self.first += 1


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What an iteration gets under ``version``, and what was too old for it."""

    version: int
    chosen: Sequence[Settled]
    stale: Sequence[Settled]
    waited_s: float

    @property
    def groups(self) -> list[Group]:
        return [one.group for one in self.chosen if not one.discarded]

    def described(self, overlap: float | None, *, ahead: int) -> Asynchrony:
        return Asynchrony(
            version=self.version,
            ages={one.id: aged(one, self.version) for one in self.groups},
            stale={one.group.id: aged(one.group, self.version) for one in self.stale},
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
    known: Mapping[int, Taken]
    on_taken: Callable[[Taken], None]
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

    def take(self, number: int) -> _Outcome:
        """Wait for the groups of iteration ``number``; what it took is on record by then."""
        begun = self.clock()
        known = self.known.get(number)
        if known is None:
            chosen, stale = self._choose(number)
            self.on_taken(_taken(number, chosen, stale))
        else:
            chosen, stale = self._choose_again(known)
        return _Outcome(self.version, chosen, stale, self.clock() - begun)

    def _choose(self, number: int) -> tuple[list[Settled], list[Settled]]:
        stale: list[Settled] = []
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
                return self._settle({one.position for one in chosen}), stale
            self._refresh(wait=True)

    def _choose_again(self, known: Taken) -> tuple[list[Settled], list[Settled]]:
        """What the iteration took before a kill; all of it is in the store."""
        stale = self._await(known.stale)
        if stale:
            self.allow(known.number)
        chosen = self._await({**known.trained, **known.discarded})
        names = known.discarded
        return [replace(x, discarded=x.discarded or x.group.id in names) for x in chosen], stale

    def _await(self, wanted: Mapping[str, int]) -> list[Settled]:
        while set(wanted.values()) - {one.position for one in self.waiting}:
            self._refresh(wait=True)
        return self._settle(set(wanted.values()))

    def _refresh(self, *, wait: bool) -> None:
        taking = self.supply.take(wait=wait)
        complete, self.under_way = self.loop.run(taking, on_given_up=self.runner.blame)
        self.waiting += complete

    def _settle(self, positions: Set[int]) -> list[Settled]:
        """Take groups out, in the order in which they became complete."""
        taken = [one for one in self.waiting if one.position in positions]
        self.waiting = [one for one in self.waiting if one.position not in positions]
        self.ledger.settle(positions)
        return taken

    def _drop_the_old(self, number: int) -> list[Settled]:
        """Take out what is too old; as many other groups may begin instead."""
        old = {
            one.position
            for one in self.waiting
            if aged(one.group, self.version) > self.bound and not one.discarded
        }
        taken = self._settle(old)
        if taken:
            self.allow(number)
        return taken


def _taken(number: int, chosen: Sequence[Settled], stale: Sequence[Settled]) -> Taken:
    return Taken(
        number,
        {one.group.id: one.position for one in chosen if not one.discarded},
        {one.group.id: one.position for one in stale},
        {one.group.id: one.position for one in chosen if one.discarded},
    )


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
    known: Sequence[Taken] = (),
    on_taken: Callable[[Taken], None] = lambda taken: None,
    on_carried_over: Callable[[Mapping[str, int]], None] = lambda positions: None,
    on_groups: Callable[[Sequence[Group], CreditResult], None],
    on_iteration: Callable[[Iteration], bool],
    done: int = 0,
    spent_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[Batch, None, None]:
    """Take complete groups, assign credit, yield the updates' batches, publish, repeat.

    Arguments as for ``agentrl.stages.reinforce_batches``, and:

    Args:
        max_staleness: Versions that the oldest sample of a group may be behind the weights that
            its updates begin with; 0: episodes never go on across a publication.
        late_groups: What becomes of a group that is still being played when it would be too old
            for the next iteration: the learner waits for it, or it is dropped when it comes.
            Dropping loses slow episodes more often than quick ones.
        version: Of the weights at the start.
        known: What iterations of a run before a kill had taken. Those that are not ``done`` take
            the same again, so that nothing is learnt from before the weights that sampled it.
        on_taken: Called with what an iteration takes, before it is learnt from; not if ``known``.
        on_carried_over: Called at an early end with the groups begun and not settled, and their
            positions.
    """
    started = clock() - spent_s
    ledger = Ledger()
    for one in known:
        if one.number < done:
            ledger.settle(one.positions.values())
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
        known={one.number: one for one in known},
        on_taken=on_taken,
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
                played=[*groups, *(one.group for one in taken.stale)],
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
    settled = frozenset(ledger.beyond)
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


def iteration_of(request: GroupRequest, name: str) -> int:
    """The iteration, from 0, in which the synchronous stage ``name`` would play a group."""
    return int(request.id.removeprefix(f"{name}-").partition("-")[0])


def _overlap(meter: Meter, since: Mark) -> float | None:
    """Share of the seconds since then in which the engine computed."""
    return meter.since(since).engine_utilisation


def _over(max_seconds: float | None, seconds: float) -> bool:
    return max_seconds is not None and seconds >= max_seconds
