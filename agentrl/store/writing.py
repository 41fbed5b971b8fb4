"""Rows into the database. Every function runs inside a transaction of its caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from agentrl.core.errors import DataError, StoreError
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import CreditResult, Group, StepResult, Trajectory
from agentrl.store.codec import (
    encode_step,
    message_data,
    pack_floats,
    plain,
    same_messages,
    to_text,
)
from agentrl.store.records import outcome_of


def insert_trajectory(
    connection: sqlite3.Connection,
    trajectory: Trajectory,
    task: Task,
    iteration: int,
    purpose: str,
) -> None:
    """Write one trajectory with its steps, its group and task if they are new."""
    if trajectory.task_id != task.id:
        raise StoreError(
            f"trajectory '{trajectory.id}' is of task '{trajectory.task_id}', but was appended "
            f"with task '{task.id}'; append it with its own task"
        )
    group = _group_key(connection, trajectory.group_id, task, iteration, purpose)
    versions = [version for step in trajectory.steps for _, version in step.sample.versions]
    try:
        cursor = connection.execute(
            "INSERT INTO trajectories (id, group_key, trial, attempt, seed, stop_reason, outcome,"
            " reward, steps, sampled_tokens, oldest_version, newest_version, record)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                trajectory.id,
                group,
                trajectory.trial,
                trajectory.attempt,
                trajectory.seed,
                trajectory.stop_reason,
                outcome_of(trajectory),
                trajectory.reward,
                len(trajectory.steps),
                trajectory.sampled_tokens,
                min(versions, default=0),
                max(versions, default=0),
                _trajectory_record(trajectory),
            ),
        )
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            raise
        raise StoreError(
            f"trajectory '{trajectory.id}' is in the store already; a trajectory counts once. "
            "A resumed run takes it from the store (played) and does not play it again"
        ) from None
    assert cursor.lastrowid is not None
    _insert_steps(connection, cursor.lastrowid, trajectory)


def _group_key(
    connection: sqlite3.Connection, group_id: str, task: Task, iteration: int, purpose: str
) -> int:
    row = connection.execute(
        "SELECT groups.key, tasks.id, purpose, iteration FROM groups"
        " JOIN tasks ON tasks.key = task WHERE groups.id = ?",
        (group_id,),
    ).fetchone()
    if row is not None:
        if row[1:] != (task.id, purpose, iteration):
            raise StoreError(
                f"group '{group_id}' is of task '{row[1]}', purpose '{row[2]}', iteration {row[3]};"
                f" got a trajectory of task '{task.id}', purpose '{purpose}', iteration "
                f"{iteration}. Group ids must be unique in a run"
            )
        return int(row[0])
    cursor = connection.execute(
        "INSERT INTO groups (id, task, purpose, iteration) VALUES (?,?,?,?)",
        (group_id, _task_key(connection, task), purpose, iteration),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _task_key(connection: sqlite3.Connection, task: Task) -> int:
    payload = to_text(plain(task.payload))
    content = content_hash([task.id, task.env, task.split, task.kind, payload])
    row = connection.execute("SELECT key FROM tasks WHERE content = ?", (content,)).fetchone()
    if row is not None:
        return int(row[0])
    cursor = connection.execute(
        "INSERT INTO tasks (id, content, env, split, kind, payload) VALUES (?,?,?,?,?,?)",
        (task.id, content, task.env, task.split, task.kind, payload),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _trajectory_record(trajectory: Trajectory) -> str:
    record: dict[str, Any] = {"success": trajectory.success, "wall_s": trajectory.wall_s}
    failures = {"failure": trajectory.failure, "close_failure": trajectory.close_failure}
    for name, failure in failures.items():
        if failure is not None:
            record[name] = [failure.boundary, failure.error, failure.message]
            record[name] += [failure.outages] if failure.outages else []
    last = trajectory.steps[-1].result if trajectory.steps else None
    if last is None or not same_messages(last.observation.messages, trajectory.final_shown):
        record["final_shown"] = [message_data(one) for one in trajectory.final_shown]
    return to_text(record)


def _insert_steps(connection: sqlite3.Connection, key: int, trajectory: Trajectory) -> None:
    rows = []
    held: tuple[int, ...] = ()
    before: StepResult | None = None
    for position, step in enumerate(trajectory.steps):
        try:
            rows.append((key, position, *encode_step(step, held, before)))
        except StoreError as error:
            raise StoreError(f"trajectory '{trajectory.id}', step {position}: {error}") from None
        held = step.prompt_ids + step.sample.token_ids
        before = step.result
    connection.executemany(f"INSERT INTO steps VALUES ({','.join('?' * 11)})", rows)


def insert_credit(
    connection: sqlite3.Connection,
    groups: Sequence[Group],
    credit: CreditResult,
    of_iteration: int | None = None,
) -> None:
    """Write the credit of every trajectory of ``groups`` and the estimator's metrics."""
    trajectories = [one for group in groups for one in group.trajectories]
    named: dict[str, Sequence[Any]] = {"step_advantages": credit.step_advantages}
    named |= {**credit.parts, **credit.groups}
    if credit.token_advantages is not None:
        named["token_advantages"] = credit.token_advantages
    for name, values in named.items():
        if len(values) != len(trajectories):
            raise DataError(
                f"credit '{name}' is for {len(values)} trajectories, but the groups hold "
                f"{len(trajectories)}; they must be aligned"
            )
    iteration = 0
    for place, trajectory in enumerate(trajectories):
        row = connection.execute(
            "SELECT trajectories.key, takes_part, iteration FROM trajectories"
            " JOIN groups ON groups.key = group_key WHERE trajectories.id = ?",
            (trajectory.id,),
        ).fetchone()
        if row is None:
            raise StoreError(f"credit for trajectory '{trajectory.id}', which was never appended")
        if row[1] is not None:
            raise StoreError(f"trajectory '{trajectory.id}' has credit already; it counts once")
        iteration = row[2]
        rows = _credit_rows(row[0], place, trajectory, credit)
        connection.execute(
            "UPDATE trajectories SET takes_part = ? WHERE key = ?", (rows is not None, row[0])
        )
        connection.executemany("INSERT INTO step_credit VALUES (?,?,?,?,?)", rows or ())
    if credit.metrics:
        at = iteration if of_iteration is None else of_iteration
        insert_event(connection, "credit", at, credit.metrics)


def _credit_rows(
    key: int, place: int, trajectory: Trajectory, credit: CreditResult
) -> list[tuple[Any, ...]] | None:
    advantages = credit.step_advantages[place]
    if advantages is None:
        return None
    parts = _present(credit.parts, place)
    labels = _present(credit.groups, place)
    tokens = None if credit.token_advantages is None else credit.token_advantages[place]
    for name, values in {"step_advantages": advantages, **parts, **labels}.items():
        if len(values) != len(trajectory.steps):
            raise DataError(
                f"credit '{name}' of trajectory '{trajectory.id}' has {len(values)} values for "
                f"{len(trajectory.steps)} steps"
            )
    rows = []
    for position, step in enumerate(trajectory.steps):
        by_token = None if tokens is None else tokens[position]
        if by_token is not None and len(by_token) != len(step.sample.token_ids):
            raise DataError(
                f"token advantages of trajectory '{trajectory.id}', step {position}: "
                f"{len(by_token)} values for {len(step.sample.token_ids)} sampled tokens"
            )
        advantage = float(advantages[position])
        record = {
            "advantage": advantage,
            "parts": {name: float(values[position]) for name, values in parts.items()},
            "groups": {name: int(values[position]) for name, values in labels.items()},
        }
        packed = None if by_token is None else pack_floats(by_token)
        rows.append((key, position, advantage, packed, to_text(record)))
    return rows


def _present(named: Any, place: int) -> dict[str, Any]:
    return {name: values[place] for name, values in named.items() if values[place] is not None}


def insert_event(connection: sqlite3.Connection, kind: str, iteration: int, data: Any) -> None:
    """Write one event of the run."""
    connection.execute(
        "INSERT INTO events (kind, iteration, data) VALUES (?,?,?)",
        (kind, iteration, to_text(plain(data))),
    )


def delete_credit_after(
    connection: sqlite3.Connection,
    iteration: int,
    *,
    again: Iterable[str] = (),
    kept: Iterable[str] = (),
) -> None:
    """Remove the credit of later iterations; their trajectories stay, without any.

    Of the groups in ``again`` it is removed as well, and of those in ``kept`` it stays.
    """
    later = (
        "SELECT trajectories.key FROM trajectories JOIN groups ON groups.key = group_key"
        " WHERE takes_part IS NOT NULL AND (groups.id IN (SELECT value FROM json_each(?))"
        " OR iteration > ? AND groups.id NOT IN (SELECT value FROM json_each(?)))"
    )
    values = (to_text(list(again)), iteration, to_text(list(kept)))
    connection.execute(f"DELETE FROM step_credit WHERE trajectory IN ({later})", values)
    connection.execute(f"UPDATE trajectories SET takes_part = NULL WHERE key IN ({later})", values)


def delete_events_after(connection: sqlite3.Connection, sequence: int) -> None:
    """Remove the events behind number ``sequence``, save those about resuming and the machine.

    What an iteration took out of complete groups stays too: it takes the same again.
    """
    connection.execute(
        "DELETE FROM events WHERE sequence > ? AND kind NOT IN ('resume', 'poisoned', 'taken')",
        (sequence,),
    )
