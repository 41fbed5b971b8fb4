"""Compares what a store holds, and what a trainer took, with what the environments say.

Four figures must be 0 whatever broke:

- lost: episodes that should be on record as finished and trained, and are not;
- fabricated: records of what no environment ever said, or of what was planned never to be said;
- trained twice: episodes that count more than once, or of which a token was learnt twice;
- wedged: rollouts that did not end, and what was left open (counted by the run itself).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import StopReason, Timings, Trajectory
from agentrl.rollout.limits import GroupRequest
from agentrl.testing.chaos_learner import LearntRow
from agentrl.testing.chaos_ledger import Playing

__all__ = ["Journal", "Verdict", "bare", "digest", "judge"]

Key = tuple[str, int]  # group id, trial


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, one line for each episode or record, in words."""

    lost: tuple[str, ...]
    fabricated: tuple[str, ...]
    trained_twice: tuple[str, ...]

    @property
    def findings(self) -> tuple[str, ...]:
        """All of it."""
        return (*self.lost, *self.fabricated, *self.trained_twice)


class Journal:
    """What the trainer was given, in files of its own: ``took`` at once, ``trained`` for good.

    What was taken in an iteration that did not reach its end is given again after a resume; it
    must be the same then, and only what was trained on counts. A learner adds what it says itself
    that it has learnt from, token by token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, kind: str, trajectories: Iterable[Trajectory]) -> None:
        """``kind``: ``acknowledged``, ``took`` or ``trained``."""
        with self._path.open("a") as file:
            for one in trajectories:
                line = [kind, one.group_id, one.trial, one.id, digest(one)]
                file.write(json.dumps(line) + "\n")

    def read(self, kind: str) -> list[tuple[Key, str, str]]:
        """``((group id, trial), trajectory id, digest)`` in the order of writing."""
        return [((line[1], line[2]), line[3], line[4]) for line in self._lines(kind)]

    def write_learnt(self, rows: Sequence[LearntRow]) -> None:
        """Note the rows of one step of the learner."""
        with self._path.open("a") as file:
            for one in rows:
                file.write(json.dumps(["learnt", one.trajectory_id, one.tokens]) + "\n")

    def read_learnt(self) -> list[LearntRow]:
        """All rows of all steps."""
        return [
            LearntRow(name, tuple((place, token) for place, token in tokens))
            for _, name, tokens in self._lines("learnt")
        ]

    def _lines(self, kind: str) -> Iterator[list[Any]]:
        if self._path.exists():
            lines = map(json.loads, self._path.read_text().splitlines())
            yield from (line for line in lines if line[0] == kind)


def bare(trajectory: Trajectory) -> Trajectory:
    """Without what may differ between two runs: times, attempts, the number of the playing."""
    steps = tuple(
        replace(
            step,
            timings=Timings(),
            result=step.result and replace(step.result, metrics={}),
        )
        for step in trajectory.steps
    )
    return replace(trajectory, id="", attempt=0, steps=steps, wall_s=0.0, close_failure=None)


def digest(trajectory: Trajectory) -> str:
    """Hash of all that is on record."""
    return hashlib.sha256(repr(trajectory).encode()).hexdigest()[:16]


def judge(
    asked: Sequence[GroupRequest],
    stored: Sequence[Trajectory],
    ledger: Mapping[int, Playing],
    journal: Journal,
    *,
    max_steps: int,
    can_finish: Callable[[Task], bool] = lambda task: True,
    learner: bool = False,
) -> Verdict:
    """Judge a run that has ended.

    Args:
        asked: All groups.
        stored: Every record of the store, failed attempts too.
        ledger: By number of the playing, which every step has as its metric ``playing``.
        journal: What the trainer took and trained on.
        max_steps: Budget of an episode.
        can_finish: Whether episodes of a task were ever going to finish.
        learner: One learnt from what was trained on; so all that it sampled must be learnt, once.
    """
    episodes = dict(_episodes(asked))
    learnt = _Learnt.of(stored, journal) if learner else _Learnt()
    return Verdict(
        (*_lost(episodes, stored, journal, can_finish), *learnt.lost),
        (*_fabricated(episodes, stored, ledger, journal, max_steps), *learnt.fabricated),
        (*_twice(stored, journal), *learnt.twice),
    )


@dataclass(frozen=True, slots=True)
class _Learnt:
    """What is wrong with what a learner says that it has learnt from."""

    lost: Sequence[str] = ()
    fabricated: Sequence[str] = ()
    twice: Sequence[str] = ()

    @classmethod
    def of(cls, stored: Sequence[Trajectory], journal: Journal) -> _Learnt:
        given = {name for _, name, _ in journal.read("trained")}
        finished = [one for one in stored if one.failure is None and one.id in given]
        sampled = {one.id: _sampled(one) for one in finished}
        learnt: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        for row in journal.read_learnt():
            learnt[row.trajectory_id].update(row.tokens)
        nothing: Counter[tuple[int, int]] = Counter()
        unknown = [
            f"'{name}': learnt, and no finished episode that was given to it"
            for name in learnt
            if name not in sampled
        ]
        found = [(name, learnt.get(name, nothing), own) for name, own in sampled.items()]
        return cls(
            [f"'{name}': nothing or not all was learnt" for name, one, own in found if own - one],
            [
                *(
                    f"'{name}': learnt, and no finished episode that was given to it"
                    for name in unknown
                ),
                *(
                    f"'{name}': tokens were learnt that it did not sample"
                    for name, one, own in found
                    if set(one) - set(own)
                ),
            ],
            [
                f"'{name}': {sum(one.values())} tokens learnt of {sum(own.values())} sampled"
                for name, one, own in found
                if any(one[token] > times for token, times in own.items())
            ],
        )


def _sampled(trajectory: Trajectory) -> Counter[tuple[int, int]]:
    """The tokens it sampled: (position in its row, id), each once for every row it stands in."""
    found: Counter[tuple[int, int]] = Counter()
    for segment in trajectory.segments():
        for start, end in segment.spans:
            found.update((place, segment.token_ids[place]) for place in range(start, end))
    return found


def _episodes(asked: Sequence[GroupRequest]) -> Iterator[tuple[Key, tuple[Task, int]]]:
    for request in asked:
        for trial in range(request.first_trial, request.first_trial + request.size):
            seed = derive_seed(request.seed, request.task.id, trial)
            yield (request.id, trial), (request.task, seed)


def _key(trajectory: Trajectory) -> Key:
    return trajectory.group_id, trajectory.trial


def _lost(
    episodes: Mapping[Key, tuple[Task, int]],
    stored: Sequence[Trajectory],
    journal: Journal,
    can_finish: Callable[[Task], bool],
) -> Iterator[str]:
    records, finished = {_key(one) for one in stored}, _finished(stored)
    trained = {key for key, _, _ in journal.read("trained")}
    for key, (task, _) in episodes.items():
        if key not in records:
            yield f"{key}: nothing on record"
        elif key not in finished and can_finish(task):
            yield f"{key}: never finished"
        elif key not in trained:
            yield f"{key}: on record and not given to the trainer"
    known = {one.id: digest(one) for one in stored}
    for key, name, content in journal.read("acknowledged"):
        if known.get(name) != content:
            now = "changed" if name in known else "gone"
            yield f"{key}: '{name}' was acknowledged, and is {now}"


def _finished(stored: Sequence[Trajectory]) -> dict[Key, list[Trajectory]]:
    found: dict[Key, list[Trajectory]] = defaultdict(list)
    for one in stored:
        if one.failure is None:
            found[_key(one)].append(one)
    return found


def _fabricated(
    episodes: Mapping[Key, tuple[Task, int]],
    stored: Sequence[Trajectory],
    ledger: Mapping[int, Playing],
    journal: Journal,
    max_steps: int,
) -> Iterator[str]:
    for one in stored:
        task, seed = episodes.get(_key(one), (None, None))
        if task is None or (task.id, seed) != (one.task_id, one.seed):
            yield f"'{one.id}': nobody asked for this episode"
        else:
            why = _untrue(one, ledger, max_steps)
            if why:
                yield f"'{one.id}': {why}"
    known = {one.id: digest(one) for one in stored}
    for kind in ("took", "trained"):
        for key, name, content in journal.read(kind):
            if known.get(name) != content:
                yield f"{key}: what the trainer {kind} as '{name}' is not what is on record"


def _untrue(one: Trajectory, ledger: Mapping[int, Playing], max_steps: int) -> str:
    """What the ledger contradicts in a record; empty if nothing."""
    if one.failure is not None and (one.success is not None or one.reward is not None):
        return "a failure with a reward or a success"
    if not one.steps:
        return "" if one.failure else "finished without a step"
    numbers = {step.result.metrics.get("playing") for step in one.steps if step.result}
    playing = ledger.get(int(number)) if len(numbers) == 1 and (number := numbers.pop()) else None
    if playing is None or (playing.task_id, playing.seed) != (one.task_id, one.seed):
        return "no playing of this task and seed is in the ledger"
    said = [(step.action.content, step.reward) for step in one.steps]
    if said != [(answer.action, answer.reward) for answer in playing.answers[: len(said)]]:
        return "its steps are not those of the ledger"
    if playing.breaks_at is not None and len(said) > playing.breaks_at:
        return f"step {playing.breaks_at} of playing {playing.number} broke, and is on record"
    if one.failure is not None:
        return ""
    over = playing.answers[len(said) - 1].over
    ended = StopReason.TERMINATED if over else StopReason.MAX_STEPS
    if one.stop_reason is not ended or (not over and len(said) != max_steps):
        return f"it ended by '{one.stop_reason}' after {len(said)} steps, by the ledger it did not"
    return ""


def _twice(stored: Sequence[Trajectory], journal: Journal) -> Iterator[str]:
    for key, times in Counter(key for key, _, _ in journal.read("trained")).items():
        for _ in range(times - 1):
            yield f"{key}: given to the trainer again"
    for key, records in _finished(stored).items():
        for one in records[1:]:
            yield f"{key}: finished again as '{one.id}'"
    playings: dict[float, str] = {}
    for one in stored:
        for number in {step.result.metrics["playing"] for step in one.steps if step.result}:
            other = playings.setdefault(number, one.id)
            if other != one.id:
                yield f"'{one.id}': made of playing {number:g}, as '{other}' was"
