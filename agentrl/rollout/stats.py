"""What a runner has done so far: written in the event loop's thread, read from any."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from agentrl.agents.flight import Flight, Place, Pulse
from agentrl.core.trajectory import Failure, Trajectory
from agentrl.rollout.limits import GroupRequest

__all__ = ["RolloutCounts", "RolloutStats", "Waiting"]


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """What happened, in numbers; ``since`` an earlier moment, or from the start.

    Attributes:
        requested: Episodes asked for. recorded: taken from a record, not played.
        finished: Played to their end. failed: failed for good, all attempts spent.
        abandoned: Given up as stragglers. poisoned: not played, their task being set aside.
            ``requested == recorded + finished + failed + abandoned + poisoned + those under way``.
        retried: Attempts that were followed by another. outages: of these, failed because the
            engine was down for others too, and no use of the episode's own attempts.
        groups: Delivered. discarded: below their quorum.
        late: Calls that returned after their attempt was given up; what they returned was dropped.
        steps, prompt_tokens, sampled_tokens: Of all attempts that ended.
        forks: Segments that began because a prompt did not go on from the tokens held: a memory or
            a chat template had rewritten history. Each is one training row more.
        failures: Failed attempts by ``boundary/error``.
        seconds: Waited for, by place of the call (``sample``, ``step``, ...) and ``wait`` (for
            tokens), summed over episodes.
        timings: ``Timings`` of all those steps, summed by field.
    """

    requested: int = 0
    recorded: int = 0
    finished: int = 0
    failed: int = 0
    abandoned: int = 0
    poisoned: int = 0
    retried: int = 0
    outages: int = 0
    groups: int = 0
    discarded: int = 0
    late: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    forks: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def under_way(self) -> int:
        """Episodes that are played or wait to be."""
        ended = self.recorded + self.finished + self.failed + self.abandoned + self.poisoned
        return self.requested - ended

    def since(self, earlier: Self) -> Self:
        """What happened after ``earlier``."""
        changes: dict[str, Any] = {}
        for one in fields(self):
            now, then = getattr(self, one.name), getattr(earlier, one.name)
            if isinstance(now, Mapping):
                left = {key: value - then.get(key, 0) for key, value in now.items()}
                changes[one.name] = {key: value for key, value in left.items() if value}
            else:
                changes[one.name] = now - then
        return type(self)(**changes)

    def to_data(self) -> dict[str, Any]:
        """Plain data for the store and for metrics."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one episode in flight waits for, and since when (seconds of ``time.monotonic``)."""

    episode: str
    env: str
    place: str
    since_s: float
    steps: int


class RolloutStats:
    """Counters of a runner, and its episodes in flight.

    Reading is cheap and needs no lock: ``counts`` copies a few numbers, ``waiting`` one line for
    each episode in flight.
    """

    def __init__(self) -> None:
        self.pulse = Pulse()
        self._numbers: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._timings: defaultdict[str, float] = defaultdict(float)
        self._flights: dict[str, tuple[Flight, GroupRequest]] = {}

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    def counts(self) -> RolloutCounts:
        return RolloutCounts(
            **dict(self._numbers),
            failures=dict(self._failures),
            seconds=dict(self._seconds),
            timings=dict(self._timings),
        )

    def waiting(self) -> Sequence[Waiting]:
        """What each episode in flight waits for, the longest first."""
        flights = [flight for flight, _ in list(self._flights.values())]
        flights.sort(key=lambda one: one.since_s)
        return [
            Waiting(one.episode.id, one.episode.env, one.waiting_for, one.since_s, len(one.steps))
            for one in flights
        ]

    # Written by the stream

    def add(self, name: str, count: int = 1) -> None:
        """``name``: a field of ``RolloutCounts``."""
        self._numbers[name] += count

    def called(self, place: Place, seconds: float) -> None:
        self._seconds[place] += seconds

    def late(self, place: Place) -> None:
        self._numbers["late"] += 1

    def took_off(self, flight: Flight, request: GroupRequest) -> None:
        self._flights[flight.name] = flight, request

    def landed(self, flight: Flight) -> bool:
        """False: this attempt was taken off the list before, so what it brings is late."""
        found = self._flights.get(flight.name)
        if found is None or found[0] is not flight:
            return False
        del self._flights[flight.name]
        return True

    def flight(self, task_name: str) -> tuple[Flight, GroupRequest] | None:
        """The episode in flight whose code runs in a task of that name."""
        return self._flights.get(task_name)

    def ended(self, trajectory: Trajectory) -> None:
        """An attempt has ended, however it did."""
        steps = trajectory.steps
        self._numbers["steps"] += len(steps)
        self._numbers["prompt_tokens"] += sum(len(step.prompt_ids) for step in steps)
        self._numbers["sampled_tokens"] += trajectory.sampled_tokens
        self._numbers["forks"] += max(len(trajectory.segments()) - 1, 0)
        self._seconds["wait"] += sum(step.timings.wait_s for step in steps)
        for step in steps:
            for name, seconds in asdict(step.timings).items():
                self._timings[name] += seconds
        for failure in (trajectory.failure, trajectory.close_failure):
            if failure is not None:
                self._failures[cause(failure)] += 1


def cause(failure: Failure) -> str:
    """``boundary/error``, by which failures are counted."""
    return f"{failure.boundary}/{failure.error}"
