"""No problem is in two of train, validation and test, whatever its id is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from agentrl.audit.findings import Finding, judged
from agentrl.audit.listing import Listing
from agentrl.core.errors import DataError
from agentrl.core.task import Task
from agentrl.store.evidence import PlayedTask

__all__ = ["Overlap", "by_role", "check_splits", "content_of", "overlaps", "role_of"]

CLAIM = "train, validation and test share no problem"
ROLES = {"train": "train", "validation": "validation", "before": "test", "after": "test"}


@dataclass(frozen=True, slots=True)
class Overlap:
    """A problem in two roles.

    Attributes:
        roles: Both. ids: of the task in each.
        same_id: False: only what the environment builds it from is the same.
    """

    roles: tuple[str, str]
    ids: tuple[str, str]
    same_id: bool

    def __str__(self) -> str:
        if self.same_id:
            return f"task '{self.ids[0]}' is a {self.roles[0]} task and a {self.roles[1]} task"
        return (
            f"the {self.roles[1]} task '{self.ids[1]}' is the {self.roles[0]} task "
            f"'{self.ids[0]}' under another id: their payloads are equal"
        )


def role_of(purpose: str) -> str | None:
    """The role in which a task was played: ``train``, ``validation``, ``test``."""
    return ROLES.get(purpose.split("/")[0])


def by_role(played: Sequence[PlayedTask]) -> dict[str, list[PlayedTask]]:
    """What was played, by role; a task played in two roles is in both."""
    found: dict[str, list[PlayedTask]] = {}
    for one in played:
        for role in sorted({role_of(purpose) or "" for purpose in one.purposes} - {""}):
            found.setdefault(role, []).append(one)
    return found


def content_of(task: Task) -> str | None:
    """Hash of what the environment builds the problem from; ``None`` if it is told nothing.

    The split is no part of it: a problem is the same in both.

    Raises:
        DataError: the payload is not JSON-like.
    """
    if not task.payload:
        return None
    try:
        text = json.dumps([task.env, task.kind, dict(task.payload)], sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the payload of task '{task.id}' of env '{task.env}' is not JSON-like ({error}), so "
            "nobody can tell whether it is in two splits; keep plain data in it"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()


def overlaps(tasks: Mapping[str, Sequence[Task]]) -> list[Overlap]:
    """Problems that are in two roles, each named once for every pair of roles.

    Args:
        tasks: By role.
    """
    contents = {
        role: {(task.id, content_of(task)): task for task in some} for role, some in tasks.items()
    }
    found = []
    for one, other in combinations(tasks, 2):
        ids = {id for id, _ in contents[one]}
        known = {content: task for (_, content), task in contents[one].items() if content}
        for id, content in contents[other]:
            if id in ids:
                found.append(Overlap((one, other), (id, id), same_id=True))
            elif content in known:
                found.append(Overlap((one, other), (known[content].id, id), same_id=False))
    return found


def check_splits(listing: Listing, played: Sequence[PlayedTask]) -> Finding:
    """Of all tasks that the environment lists, and all that a run has on record.

    Args:
        listing: Of the environment.
        played: By a run; empty for a run file.
    """
    recorded = by_role(played)
    tasks = {
        role: [*listing.tasks.get(role, ()), *(one.task for one in recorded.get(role, ()))]
        for role in ("train", "validation", "test")
        if role in listing.tasks or role in recorded
    }
    shared = overlaps(tasks)
    sizes = {role: len({task.id for task in some}) for role, some in tasks.items()}
    counts = {f"{role} tasks": size for role, size in sizes.items()}
    counts |= {"played tasks": len(played), "shared": len(shared)}
    found = (
        ", ".join(f"{size:,} {role}" for role, size in sizes.items()) + " tasks, compared by id "
    )
    found += f"and payload; {len(shared):,} are in two of them"
    notes = [*_notes(tasks), *_alike(recorded, counts)]
    found = "; ".join([found, *notes])
    return judged(
        "splits", CLAIM, found, [str(one) for one in shared], counts, missing=listing.missing
    )


def _notes(tasks: Mapping[str, Sequence[Task]]) -> Iterator[str]:
    bare = sum(not task.payload for some in tasks.values() for task in some)
    if bare:
        yield f"{bare:,} have no payload, so that their id alone could be compared"


def _alike(recorded: Mapping[str, Sequence[PlayedTask]], counts: dict[str, int]) -> Iterator[str]:
    """Different tasks that begin with the very same words: a hint, for more may differ."""
    words = {text for one in recorded.get("train", ()) for text in one.openings}
    alike = [
        one.task.id
        for role in ("validation", "test")
        for one in recorded.get(role, ())
        if one.openings & words and "train" not in {role_of(name) for name in one.purposes}
    ]
    counts["begin alike"] = len(alike)
    if alike:
        yield (
            f"{len(alike):,} that were tested begin with the very words of a task that was trained "
            f"on (such as '{alike[0]}'): compare them with agentrl view"
        )
