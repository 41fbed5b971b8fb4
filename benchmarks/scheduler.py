"""How busy the runner keeps the engine, against schedules that wait for each other.

    python benchmarks/scheduler.py [--json] [--episodes N]

The shipped runner plays with a fake engine of so many places and fake environments, whose latencies
are constant, uniform or heavy-tailed (Pareto), in simulated time: the same latencies for everybody,
drawn from the seed of episode and step. Only the competitors are simulated, with the same engine
and as many episodes in flight:

- lock-step: a batch of episodes takes turns together; all sample, then all step, and those that are
  over wait for the longest;
- barrier: as lock-step, but an episode that is over is replaced before the next turn;
- batch: no turns, but the next batch of episodes begins once all of the last one are over;
- group-atomic: no turns, but the places of a group are free once all of it is over.

``utilisation`` is the least over the latencies of (time that the work itself needs) / (time taken).
The work needs the longer of: all sampling divided by the engine's places; the longest episode.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from agentrl.agents.loop import Agent
from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import Observation, Sample, Sampling, StepResult
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.simulated_time import run_simulated

TARGET_UTILISATION, TARGET_LOCKSTEP = 0.95, 2.0
ENGINE_PLACES, IN_FLIGHT, GROUP_SIZE = 16, 64, 8
LONGEST_S, TAIL = 30.0, 1.5
LEAST_STEPS, MOST_STEPS = 2, 8

Latency = Callable[..., float]
Turns = tuple[tuple[float, float], ...]  # of one episode: seconds of sampling, of the environment


def drawn(*parts: int | str) -> float:
    """In [0, 1), from names and numbers."""
    return derive_seed(*parts) / 2**63


def constant(*parts: int | str) -> float:
    """One second."""
    return 1.0


def uniform(*parts: int | str) -> float:
    """Between 0 and 2 seconds."""
    return 2.0 * drawn(*parts)


def pareto(*parts: int | str) -> float:
    """``x_m (1 - u)**(-1/a)`` with mean 1 before it is cut at ``LONGEST_S``, as by a deadline."""
    return min((1 - 1 / TAIL) * float((1 - drawn(*parts)) ** (-1 / TAIL)), LONGEST_S)


def steps_of(seed: int) -> int:
    """Length of an episode."""
    return LEAST_STEPS + derive_seed(seed, "steps") % (MOST_STEPS - LEAST_STEPS + 1)


# The shipped runner


class SlowEngine:
    """So many places; a request waits for one in the order of arrival, then for its latency."""

    def __init__(self, latency: Latency) -> None:
        self._latency = latency
        self._places = asyncio.Semaphore(ENGINE_PLACES)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        async with self._places:
            await asyncio.sleep(self._latency(seed))
        return Sample((97, *stop_token_ids[:1]), (0.0, 0.0), ((0, 0),), "stop")

    def release(self, episode_id: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class SlowEnv:
    """Takes its time at each step."""

    seed: int
    latency: Latency
    taken: int = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def reset(self) -> Observation:
        return Observation((Message("user", "s"),))

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(self.latency(self.seed, "env", self.taken))
        self.taken += 1
        over = self.taken == steps_of(self.seed)
        return StepResult(Observation((Message("user", "s"),)), float(over), terminated=over)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class SlowFactory:
    latency: Latency
    splits: Sequence[str] = ("train",)

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    async def make(self, task: Task, *, seed: int) -> SlowEnv:
        return SlowEnv(seed, self.latency)


def shipped(asked: Sequence[GroupRequest], latency: Latency) -> float:
    """Simulated seconds that the runner takes."""

    async def play() -> float:
        loop = asyncio.get_running_loop()
        engine = SlowEngine(latency)
        agent = Agent(engine, CharacterRenderer(), Transcript, Sampling(max_tokens=4), "bare")
        limits = Limits(concurrency=IN_FLIGHT)
        runner = Runner(SlowFactory(latency), agent, limits, clock=loop.time)
        groups = await runner.run(asked)
        played = [one for group in groups for one in group.trajectories]
        assert len(played) == sum(one.size for one in asked)
        assert all(one.failure is None for one in played)
        assert all(len(one.steps) == steps_of(one.seed) for one in played)
        return loop.time()

    return run_simulated(play())


# The competitors


def turns_of(asked: Sequence[GroupRequest], latency: Latency) -> list[list[Turns]]:
    """The latencies of each episode, by group: those that the runner meets."""
    return [
        [_turns(derive_seed(one.seed, one.task.id, trial), latency) for trial in range(one.size)]
        for one in asked
    ]


def _turns(seed: int, latency: Latency) -> Turns:
    return tuple(
        (latency(derive_seed(seed, step)), latency(seed, "env", step))
        for step in range(steps_of(seed))
    )


def in_turns(episodes: Sequence[Turns], *, refill: bool) -> float:
    """Seconds of taking turns together; ``refill``: who is over is replaced before the next."""
    live: list[tuple[Turns, int]] = []
    begun, seconds = 0, 0.0
    while live or begun < len(episodes):
        if refill or not live:
            end = begun + IN_FLIGHT - len(live)
            live += [(turns, 0) for turns in episodes[begun:end]]
            begun = min(end, len(episodes))
        places = [0.0] * ENGINE_PLACES
        for turns, step in live:
            heapq.heapreplace(places, places[0] + turns[step][0])
        seconds += max(places) + max(turns[step][1] for turns, step in live)
        live = [(turns, step + 1) for turns, step in live if step + 1 < len(turns)]
    return seconds


def atomic(groups: Sequence[Sequence[Turns]]) -> float:
    """Seconds when a group begins once places for all of it are free, and holds them to its end."""
    number = count()
    # (when it wants to sample, order, group, turns, which of them)
    events: list[tuple[float, int, int, Turns, int]] = []
    left = [len(group) for group in groups]
    places = [0.0] * ENGINE_PLACES
    begun = held = 0
    now = 0.0
    while True:
        while begun < len(groups) and held + len(groups[begun]) <= IN_FLIGHT:
            held += len(groups[begun])
            for turns in groups[begun]:
                heapq.heappush(events, (now, next(number), begun, turns, 0))
            begun += 1
        if not events:
            return now
        now, _, group, turns, step = heapq.heappop(events)
        if step == len(turns):
            left[group] -= 1
            if not left[group]:
                held -= len(groups[group])
            continue
        free = max(places[0], now)
        heapq.heapreplace(places, free + turns[step][0])
        done = free + turns[step][0] + turns[step][1]
        heapq.heappush(events, (done, next(number), group, turns, step + 1))


def compare(asked: Sequence[GroupRequest], latency: Latency) -> dict[str, float]:
    """The runner and its competitors under one kind of latency."""
    groups = turns_of(asked, latency)
    episodes = [turns for group in groups for turns in group]
    sampling = sum(sample for turns in episodes for sample, _ in turns)
    longest = max(sum(map(sum, turns)) for turns in episodes)
    batches = [episodes[at : at + IN_FLIGHT] for at in range(0, len(episodes), IN_FLIGHT)]
    taken = shipped(asked, latency)
    return {
        "utilisation": max(sampling / ENGINE_PLACES, longest) / taken,
        "engine_busy": sampling / ENGINE_PLACES / taken,
        "seconds": taken,
        "vs_lockstep": in_turns(episodes, refill=False) / taken,
        "vs_barrier": in_turns(episodes, refill=True) / taken,
        "vs_batch": atomic(batches) / taken,
        "vs_group_atomic": atomic(groups) / taken,
    }


def requests(episodes: int) -> list[GroupRequest]:
    """Whole groups of so many episodes."""
    tasks = [
        Task(content_hash({"number": number}), "slow", "train")
        for number in range(episodes // GROUP_SIZE)
    ]
    return [
        GroupRequest(f"g{number}", task, GROUP_SIZE, seed=0) for number, task in enumerate(tasks)
    ]


def measure(episodes: int) -> dict[str, Any]:
    """All latencies; the least utilisation, and the competitors under the heavy tail."""
    asked = requests(episodes)
    found = {one.__name__: compare(asked, one) for one in (constant, uniform, pareto)}
    least = min(one["utilisation"] for one in found.values())
    tail = found["pareto"]
    names = ("vs_lockstep", "vs_barrier", "vs_batch", "vs_group_atomic")
    return {
        "utilisation": round(least, 4),
        **{name: round(tail[name], 3) for name in names},
        "by_latency": {
            kind: {name: round(value, 4) for name, value in one.items()}
            for kind, one in found.items()
        },
        "episodes": len(asked) * GROUP_SIZE,
        "ok": least >= TARGET_UTILISATION and tail["vs_lockstep"] >= TARGET_LOCKSTEP,
    }


def main() -> int:
    """Print the figures, or one line of JSON last; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4096)
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    found = measure(arguments.episodes)
    for kind, figures in found["by_latency"].items():
        print(kind, *(f"{name} {value:g}" for name, value in figures.items()), sep="  ")
    if arguments.json:
        print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
