"""Tasks that keep failing while others finish are set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from agentrl.core.task import Task

__all__ = ["Poison"]


class Poison:
    """Counts episodes that failed for good, by task.

    A task is set aside once ``after`` of its episodes failed for good (all attempts spent) with
    none of it finished between. A failure counts only when an episode of another task has finished
    since: while nothing finishes the machine is at fault, not the task. An episode of the task that
    finishes wipes its count out.

    Args:
        after: Episodes; 0: no task is ever set aside.
        known: Counts from before this process (``SqliteStore.lasting_failures``).
        on_poisoned: Told of each task that is set aside, with its count.
    """

    def __init__(
        self,
        after: int = 0,
        known: Mapping[str, int] | None = None,
        on_poisoned: Callable[[Task, int], None] = lambda task, failures: None,
    ) -> None:
        self.after = after
        self._counts: Counter[str] = Counter(known or {})
        self._suspected: dict[str, tuple[Task, int]] = {}
        self._on_poisoned = on_poisoned

    def __contains__(self, task: Task) -> bool:
        return bool(self.after) and self._counts[task.id] >= self.after

    def __len__(self) -> int:
        """Tasks that are set aside."""
        return sum(self.after and one >= self.after for one in self._counts.values())

    def failures(self, task: Task) -> int:
        """Episodes of ``task`` that count against it."""
        return self._counts[task.id]

    def failed(self, task: Task) -> None:
        """An episode of ``task`` has failed for good."""
        _, before = self._suspected.get(task.id, (task, 0))
        self._suspected[task.id] = task, before + 1

    def finished(self, task: Task) -> None:
        """An episode of ``task`` has finished: so the machine is well, and so is the task."""
        self._suspected.pop(task.id, None)
        self._counts.pop(task.id, None)
        suspected, self._suspected = self._suspected, {}
        for other, failures in suspected.values():
            was = other in self
            self._counts[other.id] += failures
            if other in self and not was:
                self._on_poisoned(other, self._counts[other.id])
