"""Groups being played: slots, retries, quorums, delivery.

No task drives a stream. Whatever changes something (an episode ended, a pause is over, a group was
taken) looks for what can begin now; so a slot is refilled in the turn of the event loop in which it
became free.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter, deque
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from agentrl.agents.flight import Flight
from agentrl.agents.gate import EngineGate
from agentrl.agents.loop import play
from agentrl.core.errors import DataError, EpisodeError
from agentrl.core.trajectory import Failure, Group, Trajectory
from agentrl.rollout.health import Health, stalled
from agentrl.rollout.limits import GroupRequest, pause_before
from agentrl.rollout.turns import GroupInPlay, Turn, check_same, given_up

if TYPE_CHECKING:
    from agentrl.rollout.runner import Runner

__all__ = ["Stream"]

# Recorded with one of these, an episode is not played again by a resumed run.
SETTLED = ("AbandonedError", "BlockedError", "PoisonedTaskError")


class Stream:
    """Plays what is asked for; iterate over it for the groups, in the order they are complete.

    The end of the iteration is the end of the requests. Whatever stopped the play is raised.
    Enter it as a context: leaving cancels what is in flight and waits until all is closed.

    Args:
        runner: What plays, within which limits.
        requests: An iterable is read at once. An async iterable is asked for the next request when
            a slot is free and nothing waits; it may take its time, and need not end.
        ahead: Groups that may be under way or wait to be taken; ``None``: any number.
    """

    def __init__(
        self,
        runner: Runner,
        requests: Iterable[GroupRequest] | AsyncIterable[GroupRequest],
        ahead: int | None = None,
    ) -> None:
        self._runner = runner
        self._limits = runner.limits
        self._stats = runner.stats
        self._gate = runner.gate or EngineGate.of(
            runner.limits.tokens_in_flight, runner.limits.backoff_s
        )
        self._ahead = ahead
        self._source = aiter(requests) if isinstance(requests, AsyncIterable) else None
        self._given = () if isinstance(requests, AsyncIterable) else requests
        self._asking: asyncio.Task[None] | None = None
        self._queues: dict[str, list[Turn]] = {}
        self._open: Counter[str] = Counter()
        self._turns: dict[tuple[str, int], Turn] = {}  # of every episode not settled
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: deque[Group] = deque()
        self._ids: set[str] = set()
        self._held = 0  # groups begun and not taken
        self._unsettled = 0  # groups that are not complete
        self._recorded_one_finished = False
        self._error: BaseException | None = None
        self._closed = False
        self._health = Health(runner.limits.give_up_after, runner.limits.retries + 1)
        self._delivered = self._finished = 0
        self._watch: asyncio.TimerHandle | None = None

    # The consumer's side

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._move()
        requests = list(self._given)
        known = [self._runner.recorded(one) for one in requests]
        self._see(one for recorded in known for one in recorded.values())
        try:
            for request, recorded in zip(requests, known, strict=True):
                self._admit(request, recorded)
        except BaseException:
            self._close()
            raise
        self._watch_progress()
        self._fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._asking is not None:
            await asyncio.wait((self._asking,))
        close = getattr(self._source, "aclose", None)  # a generator's own cleaning up
        if close is not None:
            await close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Group:
        while True:
            if self._error is not None:
                raise self._error
            if self._ready:
                self._held -= 1
                group = self._ready.popleft()
                self._fill()
                return group
            if not self._unsettled and self._source is None:
                self._refuse_if_nothing_finished()
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    # What is asked for

    def _see(self, recorded: Iterable[Trajectory]) -> None:
        """Where nothing recorded finished the machine was at fault: failures are not final."""
        if not self._recorded_one_finished:
            self._recorded_one_finished = any(one.failure is None for one in recorded)

    def _admit(self, request: GroupRequest, recorded: Mapping[int, Trajectory]) -> None:
        if request.id in self._ids:
            raise DataError(f"group '{request.id}' is asked for twice; group ids are unique")
        self._ids.add(request.id)
        self._stats.add("requested", request.size)
        group = GroupInPlay(len(self._ids), request, [None] * request.size, left=request.size)
        self._unsettled += 1
        if not request.size:
            self._deliver(group)
        retries, spared = self._limits.retries, self._limits.outages
        for member in range(request.size):
            turn = Turn(group.number, member, group, 0, retries, spared)
            self._turns[request.id, member] = turn
            known = recorded.get(turn.episode.trial)
            if known is None:
                self._enqueue(turn)
                continue
            check_same(known, turn.episode)
            if self._is_final(known):
                self._stats.add("recorded")
                self._settle(turn, known)
                continue
            turn.attempt = known.attempt + 1
            assert known.failure is not None
            turn.outages = known.failure.outages
            if self._recorded_one_finished:
                turn.left -= turn.attempt - turn.outages
                turn.spared = max(spared - turn.outages, 0)
            self._enqueue(turn)

    def _is_final(self, known: Trajectory) -> bool:
        if known.failure is None:
            return True
        used = known.attempt - known.failure.outages
        spent = used >= self._limits.retries or known.failure.error in SETTLED
        return spent and self._recorded_one_finished

    def _enqueue(self, turn: Turn) -> None:
        heapq.heappush(self._queues.setdefault(turn.group.request.task.env, []), turn)

    def _ask(self) -> None:
        """Ask for another request, if there is room and nothing else to begin."""
        if self._source is None or self._asking is not None or self._closed:
            return
        most = self._limits.concurrency
        room = self._ahead is None or self._held < self._ahead
        if room and len(self._tasks) < most and sum(map(len, self._queues.values())) < most:
            self._asking = self._loop.create_task(self._take_request(), name="next request")

    async def _take_request(self) -> None:
        assert self._source is not None
        try:
            request = await anext(self._source)
            recorded = self._runner.recorded(request)
            self._see(recorded.values())
            self._admit(request, recorded)
        except StopAsyncIteration:
            self._source = None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._stop(error)
        self._asking = None
        self._fill()
        self._wake.set()

    # Slots

    def _fill(self) -> None:
        """Begin whatever can begin now."""
        try:
            while not self._closed and len(self._tasks) < self._limits.concurrency:
                turn = self._next()
                if turn is None:
                    break
                self._begin(turn)
            self._ask()
        except Exception as error:
            self._stop(error)

    def _next(self) -> Turn | None:
        """The first turn, in the order of groups, whose environment has room."""
        limit = self._limits.env_concurrency
        best: list[Turn] | None = None
        for env, queue in self._queues.items():
            while queue and queue[0].group.cut:
                heapq.heappop(queue)
            if not queue or (limit and self._open[env] >= limit) or not self._may_begin(queue[0]):
                continue
            if best is None or queue[0] < best[0]:
                best = queue
        return None if best is None else heapq.heappop(best)

    def _may_begin(self, turn: Turn) -> bool:
        return turn.group.begun or self._ahead is None or self._held < self._ahead

    def _hold(self, group: GroupInPlay) -> None:
        if not group.begun:
            group.begun = True
            self._held += 1

    def _begin(self, turn: Turn) -> None:
        self._hold(turn.group)
        task = turn.group.request.task
        if task in self._runner.poison:
            failures = self._runner.poison.failures(task)
            self._give_up(turn, "PoisonedTaskError", _POISONED.format(count=failures))
            return
        agent, stats = self._runner.agent, self._stats
        turn.flight = Flight(
            turn.episode,
            agent.deadlines,
            pulse=stats.pulse,
            on_call=stats.called,
            on_late=stats.late,
        )
        stats.took_off(turn.flight, turn.group.request)
        self._move()
        self._open[task.env] += 1
        turn.task = self._loop.create_task(self._fly(turn, turn.flight))
        self._tasks.add(turn.task)
        turn.task.add_done_callback(partial(self._free, turn.flight))

    async def _fly(self, turn: Turn, flight: Flight) -> None:
        request, runner = turn.group.request, self._runner
        seed = flight.episode.seed
        try:
            trajectory = await play(
                runner.agent,
                lambda: runner.factory.make(request.task, seed=seed),
                flight.episode,
                flight=flight,
                gate=self._gate,
                clock=runner.clock,
            )
            if self._stats.landed(flight):
                self._land(turn, trajectory)
            else:
                self._stats.add("late")
        except Exception as error:
            self._stop(error)

    def _free(self, flight: Flight, task: asyncio.Task[None]) -> None:
        self._stats.landed(flight)
        self._tasks.discard(task)
        self._open[flight.episode.env] -= 1
        self._fill()

    # What becomes of an attempt

    def _land(self, turn: Turn, trajectory: Trajectory) -> None:
        """Record an attempt that ended, then settle its episode or queue the next attempt."""
        self._move()
        group, failure, poison = turn.group, trajectory.failure, self._runner.poison
        outage, before = turn.flight.outage if turn.flight else "", turn.outages
        again = failure is not None and turn.failed(outage != "")
        if failure is not None and turn.outages:
            failure = replace(failure, outages=turn.outages)
            trajectory = replace(trajectory, failure=failure)
            self._stats.add("outages", turn.outages - before)
        self._runner.on_trajectory(group.request, trajectory)
        self._stats.ended(trajectory)
        if failure is None:
            self._stats.add("finished")
            self._health.finished()
            poison.finished(group.request.task)
            self._settle(turn, trajectory)
        elif failure.error == "AbandonedError":
            self._stats.add("abandoned")
            self._settle(turn, trajectory)
        else:
            if outage != "hit" or not again:  # one outage is one failure, however many it takes
                self._health.failed(failure, group.request.task)
            if again and not group.cut:
                turn.behind += outage == "probe"
                self._retry(turn)
                return
            self._stats.add("failed")
            poison.failed(group.request.task)
            self._settle(turn, trajectory)

    def _retry(self, turn: Turn) -> None:
        self._stats.add("retried")
        turn.attempt += 1
        turn.flight = turn.task = None
        own = max(turn.attempt - turn.outages, 1)  # an outage makes nobody wait by itself
        pause = pause_before(own, turn.episode.seed, self._limits.backoff_s)
        if pause:
            self._loop.call_later(pause, self._return_to_queue, turn)
        else:
            self._enqueue(turn)

    def _return_to_queue(self, turn: Turn) -> None:
        if not self._closed and not turn.group.cut:
            self._move()
            self._enqueue(turn)
            self._fill()

    def _settle(self, turn: Turn, trajectory: Trajectory) -> None:
        """Take what the episode came to; deliver its group if it was the last."""
        group, limits = turn.group, self._limits
        del self._turns[group.request.id, turn.member]
        group.results[turn.member] = trajectory
        group.left -= 1
        group.finished += trajectory.failure is None
        self._finished += trajectory.failure is None
        if not group.left:
            self._deliver(group)
            return
        waits = limits.straggler_s is not None and group.cutter is None
        if waits and group.finished >= self._quorum(group):
            assert limits.straggler_s is not None
            group.cutter = self._loop.call_later(limits.straggler_s, self._cut, group)

    def _quorum(self, group: GroupInPlay) -> int:
        return min(self._limits.quorum, group.request.size)

    def _cut(self, group: GroupInPlay) -> None:
        """Abandon what is left of a group whose quorum has been reached."""
        if self._closed:
            return
        group.cut = True
        why = (
            f"{group.finished} of {group.request.size} episodes of its group had finished, and "
            f"{self._limits.straggler_s:g} s later this one had not"
        )
        try:
            for member in range(group.request.size):
                turn = self._turns.get((group.request.id, member))
                if turn is None:
                    continue
                if turn.flight is None:
                    self._give_up(turn, "AbandonedError", why)
                else:
                    turn.flight.end(Failure("episode", "AbandonedError", why))
            self._fill()
        except Exception as error:
            self._stop(error)

    def _give_up(self, turn: Turn, error: str, why: str) -> None:
        """Record an episode that is not played."""
        trajectory = given_up(turn.episode, Failure("episode", error, why))
        self._runner.on_trajectory(turn.group.request, trajectory)
        self._stats.ended(trajectory)
        self._stats.add("poisoned" if error == "PoisonedTaskError" else "abandoned")
        self._settle(turn, trajectory)

    def _deliver(self, group: GroupInPlay) -> None:
        self._hold(group)
        self._unsettled -= 1
        if group.cutter is not None:
            group.cutter.cancel()
        request = group.request
        whole = Group(request.id, request.task, tuple(one for one in group.results if one))
        if group.finished < self._quorum(group):
            self._stats.add("discarded")
            self._held -= 1
            self._runner.on_discarded(request, whole)
        else:
            self._stats.add("groups")
            self._delivered += 1
            self._ready.append(whole)
        self._wake.set()

    # What stops everything

    def _refuse_if_nothing_finished(self) -> None:
        first = self._health.first_cause
        if first and not self._finished and not self._delivered:
            raise EpisodeError(f"no episode of any group finished; stopping. First cause: {first}")

    def _move(self) -> None:
        self._stats.pulse.last_s = self._loop.time()

    def _watch_progress(self) -> None:
        """Look now and then whether anything moves."""
        stall_s = self._limits.stall_s
        if stall_s == math.inf or self._closed:
            return
        if self._gate.outages.pausing:
            self._move()  # it waits for the engine, and knows for how long
        still_s = self._loop.time() - self._stats.pulse.last_s
        if self._tasks and still_s > stall_s:
            self._stop(stalled(self._stats, self._loop.time(), still_s))
            return
        self._watch = self._loop.call_later(stall_s / 4, self._watch_progress)

    def _stop(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._close()
        self._wake.set()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        for turn in self._turns.values():
            if turn.group.cutter is not None:
                turn.group.cutter.cancel()
        for task in (*self._tasks, *([] if self._asking is None else [self._asking])):
            if task is not asyncio.current_task():
                task.cancel()


_POISONED = (
    "not played: {count} episodes of this task failed for good while others finished, so it was "
    "set aside. Look at their causes; rollout.poison_after says after how many"
)
