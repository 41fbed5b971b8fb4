"""A rollout in which everything breaks, judged by a ledger: the runner and the store for real.

``play_chaos`` plays iterations of groups with the shipped runner into a ``SqliteStore``; the
environments, a third of which break, are played here and in worker processes that are killed; the
engine fails and restarts; now and then the disk is full, which stops the run, and it is resumed.
``docs/reference/faults.md`` is what must hold; ``chaos_judge`` is who says whether it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentrl.agents.flight import Deadlines
from agentrl.agents.loop import Agent, Budgets
from agentrl.core.errors import StoreError
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Batch, Group, Sampling, Trajectory
from agentrl.credit.grpo import GRPO
from agentrl.envs.process.factory import ProcessFactory, Workers, in_processes
from agentrl.learn.rows import batches_from_groups
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.rollout.stats import RolloutStats
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.chaos_env import LONGEST, ChaosFactory, chaos_tasks
from agentrl.testing.chaos_faults import ChaosEngine, ChaosPlan, Dispatcher, full_disk
from agentrl.testing.chaos_judge import Journal, Verdict, bare, judge
from agentrl.testing.chaos_learner import LinearLearner
from agentrl.testing.chaos_ledger import read_ledger
from agentrl.testing.characters import CharacterRenderer

__all__ = ["Chaos", "ChaosFigures", "changed", "play_chaos", "stored", "verdict_on"]

GROUP_SIZE = 4
MAX_STEPS = LONGEST - 1
UPDATES = 2  # of an iteration, where a learner learns
ROOM = 100_000  # bytes that the store's files may reach while the disk is full
DEADLINES = Deadlines(make_s=20.0, reset_s=1.0, step_s=1.0, sample_s=2.0, close_s=1.0, cancel_s=0.1)


@dataclass(frozen=True, slots=True)
class Chaos:
    """How much is played, and what breaks.

    Attributes:
        episodes: So many, rounded up to whole groups.
        plan: What breaks; ``None``: nothing does.
        workers: Worker processes; 0: all is played in this process.
        iteration_groups: Groups of an iteration. full_every: in each so-manieth the disk is full.
        wedged_s: A rollout that has not ended by then is wedged.
        learner: A real one (one linear layer) learns from every iteration, in ``UPDATES`` steps of
            the groups' GRPO advantages, and says itself what it has learnt from.
    """

    episodes: int
    plan: ChaosPlan | None = None
    workers: int = 2
    seed: int = 0
    concurrency: int = 128
    iteration_groups: int = 100
    full_every: int = 4
    wedged_s: float = 120.0
    learner: bool = False

    def requests(self) -> list[GroupRequest]:
        """All groups, in order."""
        tasks = chaos_tasks(-(-self.episodes // GROUP_SIZE), 4 if self.workers else 0)
        return [
            GroupRequest(f"g{number:05}", task, GROUP_SIZE, self.seed)
            for number, task in enumerate(tasks)
        ]

    def iterations(self) -> Iterator[list[GroupRequest]]:
        """The groups of each."""
        asked = self.requests()
        for start in range(0, len(asked), self.iteration_groups):
            yield asked[start : start + self.iteration_groups]


@dataclass(slots=True)
class ChaosFigures:
    """What happened. The figures that must be 0 come first."""

    lost: int = 0
    fabricated: int = 0
    trained_twice: int = 0
    wedged: int = 0
    changed: int = 0
    episodes: int = 0
    finished: int = 0
    failed_for_good: int = 0
    attempts: int = 0
    late: int = 0
    resumed: int = 0
    engine_restarts: int = 0
    outages: int = 0
    updates: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Nothing that must not happen has."""
        bad = (self.lost, self.fabricated, self.trained_twice, self.wedged, self.changed)
        return not any(bad)


@dataclass(slots=True)
class _Run:
    """A run under way: what lives longer than one opening of the store."""

    chaos: Chaos
    directory: Path
    journal: Journal
    dispatcher: Dispatcher
    engine: ChaosEngine
    learner: LinearLearner
    stats: RolloutStats = field(default_factory=RolloutStats)
    wedged: list[str] = field(default_factory=list)
    resumed: int = 0
    appended: int = 0


async def play_chaos(
    chaos: Chaos, directory: Path, learner: type[LinearLearner] = LinearLearner
) -> ChaosFigures:
    """Play it in ``directory`` and judge it. Give an empty directory.

    The figure ``changed`` is left to the caller: it compares two runs. ``learner``: what learns,
    if one is wanted.
    """
    inline = ChaosFactory(str(directory / "ledger"))
    with _workers(chaos, directory) as away:
        journal = Journal(directory / "journal.jsonl")
        run = _Run(
            chaos,
            directory,
            journal,
            Dispatcher(inline, away, chaos.plan),
            ChaosEngine(chaos.plan),
            learner(on_learnt=journal.write_learnt),
        )
        try:
            for number, asked in enumerate(chaos.iterations(), start=1):
                await _iteration(run, number, asked)
            await _settled(run, inline)
        finally:
            if away is not None:
                await away.aclose()
            inline.close()
    if inline.open:
        run.wedged.append(f"{inline.open} environments are still open")
    if run.engine.open:
        run.wedged.append(f"the engine keeps {len(run.engine.open)} episodes")
    if run.stats.in_flight:
        run.wedged.append(f"{run.stats.in_flight} episodes are in flight after the end")
    return _figures(run, verdict_on(chaos, directory))


async def _settled(run: _Run, inline: ChaosFactory) -> None:
    """Let what is late come, and close: nothing may be open for long after the end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(run.chaos.wedged_s):
            await asyncio.sleep(2 * DEADLINES.cancel_s + 0.3)
            while inline.open or run.engine.open or run.stats.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def verdict_on(chaos: Chaos, directory: Path) -> Verdict:
    """Judge what lies in ``directory`` after a run."""
    plan = chaos.plan
    return judge(
        chaos.requests(),
        stored(directory),
        read_ledger(directory / "ledger"),
        Journal(directory / "journal.jsonl"),
        max_steps=MAX_STEPS,
        can_finish=lambda task: plan is None or not plan.is_doomed(task),
        learner=chaos.learner,
    )


def stored(directory: Path) -> list[Trajectory]:
    """Every record of a run."""
    with SqliteStore(directory / "run", read_only=True) as store:
        store.verify()
        return [store.trajectory(line.id).trajectory for line in store.find()]


def changed(disturbed: Sequence[Trajectory], undisturbed: Sequence[Trajectory]) -> list[str]:
    """Finished episodes that are not what a run in which nothing broke has played."""
    sound = {(one.group_id, one.trial): bare(one) for one in undisturbed if one.failure is None}
    return [
        f"'{one.id}': played otherwise than in the run in which nothing broke"
        for one in disturbed
        if one.failure is None and sound.get((one.group_id, one.trial)) != bare(one)
    ]


@contextmanager
def _workers(chaos: Chaos, directory: Path) -> Iterator[ProcessFactory | None]:
    if not chaos.workers:
        yield None
        return
    yield in_processes(
        "agentrl.testing.chaos_env:ChaosFactory",
        {"ledger": str(directory / "ledger")},
        Workers(processes=chaos.workers, episodes=chaos.concurrency, grace_s=0.3),
    )


async def _iteration(run: _Run, number: int, asked: Sequence[GroupRequest]) -> None:
    """Roll out until it reaches its end, however often the disk is full; then train, once."""
    full_after = None
    if run.chaos.plan is not None and run.chaos.full_every:
        every = run.chaos.full_every
        if number % every == 1 % every:
            full_after = derive_seed(run.chaos.seed, "full", number) % len(asked) * GROUP_SIZE
    taken: list[Group] = []
    try:
        async with asyncio.timeout(run.chaos.wedged_s):
            try:
                taken = await _rollout(run, number, asked, full_after)
            except StoreError:
                run.resumed += 1
                taken = await _rollout(run, number, asked, None)
    except TimeoutError:
        run.wedged.append(f"iteration {number} has not ended after {run.chaos.wedged_s:g} s")
    if run.chaos.learner:
        run.learner.fit(iter(_batches(taken, str(number))), on_update=lambda stats: None)
    run.journal.write("trained", [one for group in taken for one in group.trajectories])


def _batches(groups: Sequence[Group], name: str) -> Sequence[Batch]:
    """What the stages of a run make of an iteration's groups."""
    credit = GRPO().assign(groups)
    return batches_from_groups(
        groups, credit, updates=UPDATES, trajectory_weighting="equal", batch_id=name
    )


async def _rollout(
    run: _Run, number: int, asked: Sequence[GroupRequest], full_after: int | None
) -> list[Group]:
    """Play what is not on record yet; with ``full_after`` the disk is full after so many records.

    Raises:
        StoreError: it was.
    """
    taken: list[Group] = []
    records = 0
    with SqliteStore(run.directory / "run") as store:

        def keep(request: GroupRequest, trajectory: Trajectory) -> None:
            nonlocal records
            records += 1

            def append() -> None:
                store.append(trajectory, task=request.task, iteration=number, purpose="train")

            if full_after is not None and records > full_after:
                with full_disk(ROOM):
                    append()
            else:
                append()
            run.journal.write("acknowledged", [trajectory])

        runner = Runner(
            run.dispatcher,
            _agent(run.engine),
            Limits(
                concurrency=run.chaos.concurrency,
                tokens_in_flight=20_000,
                retries=6,
                backoff_s=0.02,
                give_up_after=1000,
                stall_s=run.chaos.wedged_s / 2,
            ),
            on_trajectory=keep,
            recorded=lambda request: store.played(request.id),
            stats=run.stats,
        )
        async with runner.stream(asked) as groups:
            async for group in groups:
                run.journal.write("took", group.trajectories)
                taken.append(group)
    return taken


def _agent(engine: ChaosEngine) -> Agent:
    return Agent(
        engine=engine,
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=32),
        action_format="bare",
        budgets=Budgets(max_steps=MAX_STEPS),
        deadlines=DEADLINES,
    )


def _figures(run: _Run, verdict: Verdict) -> ChaosFigures:
    records = stored(run.directory)
    outcomes = {(one.group_id, one.trial): one for one in records}
    counts = run.stats.counts()
    return ChaosFigures(
        lost=len(verdict.lost),
        fabricated=len(verdict.fabricated),
        trained_twice=len(verdict.trained_twice),
        wedged=len(run.wedged),
        episodes=len(outcomes),
        finished=sum(one.failure is None for one in outcomes.values()),
        failed_for_good=sum(one.failure is not None for one in outcomes.values()),
        attempts=len(records),
        late=counts.late,
        resumed=run.resumed,
        engine_restarts=run.engine.restarts,
        outages=counts.outages,
        updates=run.learner.updates,
        failures=dict(sorted(counts.failures.items())),
        findings=[*verdict.findings, *run.wedged],
    )
