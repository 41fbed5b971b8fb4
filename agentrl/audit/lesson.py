"""How an index split over per-worker shuffles leaks, on a small reproduction.

A known way to share out tasks: every worker process shuffles the list of goals with a seed of its
own and takes the first 500 of *its* list as the test split, the rest as the train split. Looked at
in one worker the two are disjoint. Over all workers they are the same: what one worker tests on,
another trains on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agentrl.audit.splits import overlaps
from agentrl.core.task import Task, content_hash, derive_seed

__all__ = ["Lesson", "SharedOut", "by_content", "by_index", "goals", "lesson", "share_out"]

GOALS = 2_000
TEST = 500  # the index at which every worker's list is cut
TRAINERS = tuple(range(16))  # seeds of the workers that train
TESTERS = tuple(range(1_000, 1_128))  # and of those that test

Split = tuple[list[Task], list[Task]]


@dataclass(frozen=True, slots=True)
class SharedOut:
    """How a way of sharing out came out.

    Attributes:
        way: In words.
        trained: Problems that a training worker may play. tested: that a testing worker may play.
        both: In both, as the audit's comparison finds them. by_id: of these, under one id.
        in_one_worker: In both within the first worker.
        test_splits: Different test splits among all workers.
    """

    way: str
    trained: int
    tested: int
    both: int
    by_id: int
    in_one_worker: int
    test_splits: int

    @property
    def leak(self) -> float:
        """Share of the problems tested that are trained on."""
        return self.both / self.tested


@dataclass(frozen=True, slots=True)
class Lesson:
    """Both ways over the same goals and workers.

    Attributes:
        goals: Number of problems. trainers: of workers that train. testers: of those that test.
    """

    goals: int
    trainers: int
    testers: int
    by_index: SharedOut
    by_content: SharedOut


def goals(count: int = GOALS) -> list[Task]:
    """Problems of a little shop: what to buy, and for how much. Their ids are content hashes."""
    payloads = ({"item": one, "price": 5 + derive_seed("price", one) % 95} for one in range(count))
    return [Task(content_hash(payload), "shop", "", payload) for payload in payloads]


def by_index(problems: Sequence[Task], seed: int) -> Split:
    """Train and test tasks of one worker: its own shuffle, cut at ``TEST``; ids are places."""
    mine = list(problems)
    random.Random(seed).shuffle(mine)
    named = [Task(f"goal-{place}", "shop", "", task.payload) for place, task in enumerate(mine)]
    return named[TEST:], named[:TEST]


def by_content(problems: Sequence[Task], seed: int) -> Split:
    """Train and test tasks of one worker: a problem's split follows from its hash alone."""
    mine = list(problems)
    random.Random(seed).shuffle(mine)  # in whatever order a worker finds them
    mine.sort(key=lambda task: task.id)
    split: Split = ([], [])
    for task in mine:
        split[task.id[0] in "0123"].append(task)  # a quarter, as 500 of 2,000
    return split


def lesson(
    *,
    count: int = GOALS,
    trainers: Sequence[int] = TRAINERS,
    testers: Sequence[int] = TESTERS,
) -> Lesson:
    """Share the goals out in both ways, and compare as the audit does.

    Args:
        count: Number of goals.
        trainers: Seeds of the workers that train.
        testers: Seeds of those that test.
    """
    problems = goals(count)
    return Lesson(
        goals=count,
        trainers=len(trainers),
        testers=len(testers),
        by_index=share_out(
            "each worker cuts its own shuffle", by_index, problems, trainers, testers
        ),
        by_content=share_out("by the hash of the content", by_content, problems, trainers, testers),
    )


def share_out(
    way: str,
    split: Callable[[Sequence[Task], int], Split],
    problems: Sequence[Task],
    trainers: Sequence[int],
    testers: Sequence[int],
) -> SharedOut:
    """Let every worker share out ``problems``, and compare what is trained on with what is tested.

    Args:
        way: The name of ``split``, which gives train and test tasks of a worker by its seed.
        problems: All of them.
        trainers: Seeds of the workers that train. testers: of those that test.
    """
    training = [split(problems, seed) for seed in trainers]
    testing = [split(problems, seed) for seed in testers]
    train = _distinct(task for tasks, _ in training for task in tasks)
    test = _distinct(task for _, tasks in testing for task in tasks)
    shared = overlaps({"train": train, "test": test})
    mine, tested = training[0]
    return SharedOut(
        way=way,
        trained=len(train),
        tested=len(test),
        both=len(shared),
        by_id=sum(one.same_id for one in shared),
        in_one_worker=len(overlaps({"train": mine, "test": tested})),
        test_splits=len({_items(tasks) for _, tasks in (*training, *testing)}),
    )


def _distinct(tasks: Iterable[Task]) -> list[Task]:
    """Every problem once, under the id that the first worker gave it."""
    found: dict[int, Task] = {}
    for task in tasks:
        found.setdefault(task.payload["item"], task)
    return list(found.values())


def _items(tasks: Sequence[Task]) -> frozenset[int]:
    return frozenset(task.payload["item"] for task in tasks)
