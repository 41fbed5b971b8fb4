"""Rows of the database back into records."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any

from agentrl.core.errors import StoreError
from agentrl.core.task import Task
from agentrl.core.trajectory import Failure, Group, Step, StepResult, StopReason, Trajectory
from agentrl.store.codec import StepColumns, decode_step, messages_from, restored, unpack_floats
from agentrl.store.records import (
    Range,
    RunEvent,
    StoredTrajectory,
    TrajectoryCredit,
    TrajectoryFilter,
    TrajectorySummary,
)

_JOINED = (
    " FROM trajectories JOIN groups ON groups.key = trajectories.group_key"
    " JOIN tasks ON tasks.key = groups.task"
)
# A purpose matches itself and what lies beneath it; substr, since LIKE has wildcards.
_OF_PURPOSE = "substr(purpose || '/', 1, length(?) + 1) = ? || '/'"
_COLUMNS = {
    "id": "trajectories.id",
    "group_id": "groups.id",
    "task_id": "tasks.id",
    "advantage_low": "(SELECT min(advantage) FROM step_credit WHERE trajectory = trajectories.key)",
    "advantage_high": "(SELECT max(advantage) FROM step_credit"
    " WHERE trajectory = trajectories.key)",
}
_FIELDS = (
    *_COLUMNS,
    *("env", "split", "kind", "purpose", "iteration", "trial", "attempt", "outcome"),
    *("stop_reason", "reward", "steps", "sampled_tokens", "oldest_version", "newest_version"),
    *("takes_part", "record"),
)
_SUMMARY = f"SELECT {', '.join(_COLUMNS.get(name, name) for name in _FIELDS)}{_JOINED}"


def summaries(connection: sqlite3.Connection, wanted: TrajectoryFilter) -> list[TrajectorySummary]:
    """Trajectories that match, in the order they were appended (or the newest first)."""
    where, values = _where(wanted)
    order = " ORDER BY trajectories.key" + (" DESC" if wanted.last else "")
    limit = "" if wanted.limit is None else f" LIMIT {int(wanted.limit)}"
    return [_summary(row) for row in connection.execute(_SUMMARY + where + order + limit, values)]


def count(connection: sqlite3.Connection, wanted: TrajectoryFilter) -> int:
    """How many trajectories match, whatever the limit."""
    where, values = _where(wanted)
    return int(connection.execute("SELECT count(*)" + _JOINED + where, values).fetchone()[0])


def _where(wanted: TrajectoryFilter) -> tuple[str, list[Any]]:
    equal = {
        "tasks.id": wanted.task_id,
        "groups.id": wanted.group_id,
        "kind": wanted.kind,
        "outcome": wanted.outcome,
        "stop_reason": wanted.stop_reason,
        "iteration": wanted.iteration,
    }
    clauses = [f"{column} = ?" for column, value in equal.items() if value is not None]
    values: list[Any] = [value for value in equal.values() if value is not None]
    if wanted.purpose is not None:
        clauses.append(_OF_PURPOSE)
        values += [wanted.purpose, wanted.purpose]
    if wanted.reward is not None:
        clause, bounds = _between("reward", wanted.reward)
        clauses.append(clause)
        values += bounds
    if wanted.advantage is not None:
        clause, bounds = _between("advantage", wanted.advantage)
        clauses.append(
            f"EXISTS (SELECT 1 FROM step_credit WHERE trajectory = trajectories.key AND {clause})"
        )
        values += bounds
    return (" WHERE " + " AND ".join(clauses) if clauses else ""), values


def _between(column: str, bounds: Range) -> tuple[str, list[float]]:
    low, high = bounds
    clauses = [f"{column} IS NOT NULL"]
    clauses += [f"{column} >= ?"] if low is not None else []
    clauses += [f"{column} <= ?"] if high is not None else []
    return " AND ".join(clauses), [bound for bound in bounds if bound is not None]


def _summary(row: tuple[Any, ...]) -> TrajectorySummary:
    fields = dict(zip(_FIELDS, row, strict=True))
    record = json.loads(fields.pop("record"))
    takes_part = fields.pop("takes_part")
    return TrajectorySummary(
        **fields | {"stop_reason": StopReason(fields["stop_reason"])},
        success=record["success"],
        failure=_failure(record, "failure"),
        wall_s=record["wall_s"],
        takes_part=None if takes_part is None else bool(takes_part),
    )


def _failure(record: dict[str, Any], name: str) -> Failure | None:
    return Failure(*record[name]) if name in record else None


def stored_trajectory(connection: sqlite3.Connection, trajectory_id: str) -> StoredTrajectory:
    """One trajectory with its task, line of summary and credit."""
    row = connection.execute(
        "SELECT trajectories.key, groups.key, takes_part" + _JOINED + " WHERE trajectories.id = ?",
        (trajectory_id,),
    ).fetchone()
    if row is None:
        raise StoreError(f"no trajectory '{trajectory_id}' in this store; list them to find its id")
    key, group, takes_part = row
    summary = connection.execute(_SUMMARY + " WHERE trajectories.key = ?", (key,)).fetchone()
    return StoredTrajectory(
        trajectory=_trajectory(connection, key),
        task=_task(connection, group),
        summary=_summary(summary),
        credit=None if takes_part is None else _credit(connection, key, group, bool(takes_part)),
    )


def group(connection: sqlite3.Connection, key: int) -> Group:
    """A group as credit saw it: of every trial the last attempt, in the order of trials."""
    row = connection.execute("SELECT id FROM groups WHERE key = ?", (key,)).fetchone()
    keys = connection.execute(
        "SELECT key, max(attempt) FROM trajectories WHERE group_key = ?"
        " GROUP BY trial ORDER BY trial",
        (key,),
    ).fetchall()
    return Group(
        id=row[0],
        task=_task(connection, key),
        trajectories=tuple(_trajectory(connection, one) for one, _ in keys),
    )


def group_keys(
    connection: sqlite3.Connection, purpose: str | None, iteration: int | None
) -> list[int]:
    """Keys of groups in the order of their first trajectory."""
    where, values = _where(TrajectoryFilter(purpose=purpose, iteration=iteration))
    return [
        key for (key,) in connection.execute(f"SELECT key FROM groups{where} ORDER BY key", values)
    ]


def group_key(connection: sqlite3.Connection, group_id: str) -> int:
    """Key of a group by its id."""
    row = connection.execute("SELECT key FROM groups WHERE id = ?", (group_id,)).fetchone()
    if row is None:
        raise StoreError(f"no group '{group_id}' in this store; list trajectories to find its id")
    return int(row[0])


def has_group(connection: sqlite3.Connection, group_id: str) -> bool:
    """Whether anything of a group was recorded."""
    found = connection.execute("SELECT 1 FROM groups WHERE id = ?", (group_id,)).fetchone()
    return found is not None


def lasting_failures(connection: sqlite3.Connection, purpose: str, retries: int) -> dict[str, int]:
    """By task: episodes that failed for good, after its last and before anyone's last finish."""
    rows = connection.execute(
        "WITH played AS ("
        " SELECT trajectories.key AS number, groups.key AS grouped, tasks.id AS task, trial,"
        " attempt - coalesce(json_extract(record, '$.failure[3]'), 0) AS attempt,"
        " outcome = 'infra' AS failed,"
        " json_extract(record, '$.failure[1]') AS error" + _JOINED + " WHERE purpose = ?),"
        " finished AS (SELECT task, max(number) AS last FROM played WHERE NOT failed GROUP BY task)"
        " SELECT played.task, count(DISTINCT grouped || '/' || trial) FROM played"
        " LEFT JOIN finished ON finished.task = played.task"
        " WHERE failed AND attempt >= ? AND error NOT IN ('AbandonedError', 'PoisonedTaskError')"
        " AND number > coalesce(last, 0) AND number < (SELECT max(last) FROM finished)"
        " GROUP BY played.task",
        (purpose, retries),
    )
    return dict(rows.fetchall())


def blocking_tasks(connection: sqlite3.Connection, purpose: str) -> list[str]:
    """Ids of tasks, an episode of which failed with ``BlockedError``."""
    rows = connection.execute(
        "SELECT DISTINCT tasks.id" + _JOINED + " WHERE purpose = ? AND outcome = 'infra'"
        " AND json_extract(record, '$.failure[1]') = 'BlockedError' ORDER BY tasks.id",
        (purpose,),
    )
    return [task for (task,) in rows]


def last_event(connection: sqlite3.Connection) -> int:
    """Number of the newest event; 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(sequence), 0) FROM events").fetchone()[0])


def _task(connection: sqlite3.Connection, group_key: int) -> Task:
    id, env, split, kind, payload = connection.execute(
        "SELECT tasks.id, env, split, kind, payload FROM tasks JOIN groups ON task = tasks.key"
        " WHERE groups.key = ?",
        (group_key,),
    ).fetchone()
    return Task(id, env, split, restored(json.loads(payload)), kind)


def _trajectory(connection: sqlite3.Connection, key: int) -> Trajectory:
    id, group_id, task_id, trial, attempt, seed, stop_reason, record_text = connection.execute(
        "SELECT trajectories.id, groups.id, tasks.id, trial, attempt, seed, stop_reason, record"
        + _JOINED
        + " WHERE trajectories.key = ?",
        (key,),
    ).fetchone()
    record = json.loads(record_text)
    steps = _steps(connection, key)
    last = steps[-1].result if steps else None
    if "final_shown" in record:
        final_shown = messages_from(record["final_shown"])
    else:
        final_shown = last.observation.messages if last is not None else ()
    return Trajectory(
        id=id,
        group_id=group_id,
        task_id=task_id,
        trial=trial,
        attempt=attempt,
        seed=seed,
        steps=steps,
        stop_reason=StopReason(stop_reason),
        failure=_failure(record, "failure"),
        close_failure=_failure(record, "close_failure"),
        success=record["success"],
        final_shown=final_shown,
        wall_s=record["wall_s"],
    )


def _steps(connection: sqlite3.Connection, key: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    held: tuple[int, ...] = ()
    before: StepResult | None = None
    for row in connection.execute(
        f"SELECT {', '.join(StepColumns._fields)} FROM steps WHERE trajectory = ?"
        " ORDER BY position",
        (key,),
    ):
        step = decode_step(StepColumns(*row), held, before)
        held = step.prompt_ids + step.sample.token_ids
        before = step.result
        steps.append(step)
    return tuple(steps)


def _credit(
    connection: sqlite3.Connection, key: int, group: int, takes_part: bool
) -> TrajectoryCredit:
    if not takes_part:
        return TrajectoryCredit(step_advantages=None)
    rows = connection.execute(
        "SELECT record, token_advantages FROM step_credit WHERE trajectory = ? ORDER BY position",
        (key,),
    ).fetchall()
    records = [json.loads(text) for text, _ in rows]
    tokens = [packed for _, packed in rows]
    by_token = None if None in tokens else tuple(unpack_floats(packed) for packed in tokens)
    labels = _by_name(records, "groups")
    sizes = _label_sizes(connection, group) if labels else Counter()
    return TrajectoryCredit(
        step_advantages=tuple(record["advantage"] for record in records),
        token_advantages=by_token if tokens else None,
        parts=_by_name(records, "parts"),
        groups=labels,
        group_sizes={
            name: tuple(1 if label < 0 else sizes[name, label] for label in values)
            for name, values in labels.items()
        },
    )


def _by_name(records: list[dict[str, Any]], field: str) -> dict[str, tuple[Any, ...]]:
    names = records[0][field] if records else ()
    return {name: tuple(record[field][name] for record in records) for name in names}


def _label_sizes(connection: sqlite3.Connection, group: int) -> Counter[tuple[str, int]]:
    sizes: Counter[tuple[str, int]] = Counter()
    for (text,) in connection.execute(
        "SELECT step_credit.record FROM step_credit"
        " JOIN trajectories ON trajectories.key = trajectory WHERE group_key = ?",
        (group,),
    ):
        sizes.update(json.loads(text)["groups"].items())
    return sizes


def events(
    connection: sqlite3.Connection, kind: str | None, iteration: int | None
) -> list[RunEvent]:
    """Events in the order they were recorded."""
    return [
        RunEvent(sequence, one_kind, one_iteration, restored(json.loads(data)))
        for sequence, one_kind, one_iteration, data in connection.execute(
            "SELECT sequence, kind, iteration, data FROM events WHERE (?1 IS NULL OR kind = ?1)"
            " AND (?2 IS NULL OR iteration = ?2) ORDER BY sequence",
            (kind, iteration),
        )
    ]
