"""What an audit asks of a store: tokens without the text around them, tasks as they were played.

Written apart from what makes training rows, so that the one can be held against the other.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from agentrl.core.errors import StoreError
from agentrl.core.task import Task, content_hash
from agentrl.store.codec import restored, unpack_ints

__all__ = ["PlayedTask", "TokenStep", "played_tasks", "token_steps"]


class TokenStep(NamedTuple):
    """The tokens of one step; ``logprobs`` counts the log-probabilities on record."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: int
    versions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlayedTask:
    """A task as it was played.

    Attributes:
        task: As the run had it.
        purposes: For what: ``train``, or names of evaluations.
        openings: Hashes of the messages that its episodes began with.
    """

    task: Task
    purposes: frozenset[str]
    openings: frozenset[str]


def token_steps(connection: sqlite3.Connection, trajectory_id: str) -> tuple[TokenStep, ...]:
    """The steps of a trajectory, in order."""
    found = connection.execute(
        "SELECT key FROM trajectories WHERE id = ?", (trajectory_id,)
    ).fetchone()
    if found is None:
        raise StoreError(f"no trajectory '{trajectory_id}' in this store; list them to find its id")
    steps: list[TokenStep] = []
    held: tuple[int, ...] = ()
    for kept, added, token_ids, bytes_of_logprobs, record in connection.execute(
        "SELECT prompt_kept, prompt_added, token_ids, length(logprobs), record FROM steps"
        " WHERE trajectory = ? ORDER BY position",
        found,
    ):
        prompt, sampled = held[:kept] + unpack_ints(added), unpack_ints(token_ids)
        spans = tuple((start, version) for start, version in json.loads(record)["versions"])
        steps.append(TokenStep(prompt, sampled, bytes_of_logprobs // 8, spans))
        held = prompt + sampled
    return tuple(steps)


def played_tasks(connection: sqlite3.Connection) -> list[PlayedTask]:
    """Every task of which anything was recorded, in the order of its first record."""
    purposes: dict[int, set[str]] = defaultdict(set)
    for key, purpose in connection.execute("SELECT DISTINCT task, purpose FROM groups"):
        purposes[key].add(purpose)
    openings: dict[int, set[str]] = defaultdict(set)
    for key, record in connection.execute(
        "SELECT groups.task, steps.record FROM steps"
        " JOIN trajectories ON trajectories.key = steps.trajectory"
        " JOIN groups ON groups.key = trajectories.group_key WHERE position = 0"
    ):
        shown = json.dumps(json.loads(record)["shown"])  # escaped: it may hold lone surrogates
        openings[key].add(content_hash(shown))
    rows = connection.execute("SELECT key, id, env, split, kind, payload FROM tasks ORDER BY key")
    return [
        PlayedTask(
            Task(id, env, split, restored(json.loads(payload)), kind),
            frozenset(purposes[key]),
            frozenset(openings[key]),
        )
        for key, id, env, split, kind, payload in rows
    ]
