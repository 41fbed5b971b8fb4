"""The store as one SQLite database in the directory of a run."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentrl.core.errors import StoreError
from agentrl.core.task import Task
from agentrl.core.trajectory import Batch, CreditResult, Group, Trajectory, UpdateStats
from agentrl.store import connection as opening
from agentrl.store import evidence, reading, writing
from agentrl.store.records import RunEvent, StoredTrajectory, TrajectoryFilter, TrajectorySummary
from agentrl.store.trained import TRAINED, TrainedBatch, trained_data, trained_from

__all__ = ["SqliteStore"]


class SqliteStore:
    """The append-only database of one run: ``store.sqlite`` in the run's directory.

    What ``append`` returned for survives ``kill -9`` of the process: it is with the operating
    system by then. Against power loss there are two grades. With ``synchronous="normal"`` (the
    default) a power cut or a crash of the kernel may take the appends of the last moments (those
    since SQLite last moved its log into the database, about 4 MB), newest first and each as a
    whole; the database itself stays sound. With ``synchronous="full"`` every append waits for the
    disk and survives that too, at a few milliseconds each.

    One writer per run: a second is refused while the first lives, and a killed one leaves nothing
    to clean up. Any number of readers (``read_only=True``) may look on from any process meanwhile;
    each call sees what was acknowledged before it. An object may be used from several threads, but
    not on both sides of a fork, and nothing but SQLite should open or copy its files while it
    writes (closing such a file handle drops the process's locks).

    Args:
        directory: Directory of the run; made if it is missing, unless ``read_only``.
        read_only: Look, never write.
        synchronous: ``normal`` or ``full``, see above.

    Raises:
        StoreError: no such store, not a database, damaged, held by another writer, disk full.
        SchemaVersionError: written by another version of the schema.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        read_only: bool = False,
        synchronous: opening.Synchronous = "normal",
    ) -> None:
        self.path = Path(directory) / opening.DATABASE
        self._guard = threading.RLock()
        self._lock: sqlite3.Connection | None = None
        if synchronous not in ("normal", "full"):
            raise StoreError(f"synchronous must be normal or full, got {synchronous!r}")
        if read_only:
            self._connection = opening.open_for_reading(self.path)
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the run's directory: {error}") from error
        self._lock = opening.lock_writer(self.path.parent)
        try:
            self._connection = opening.open_for_writing(self.path, synchronous)
        except BaseException:
            self._lock.close()
            raise

    @classmethod
    def create(cls, directory: Path | str, *, synchronous: opening.Synchronous = "normal") -> Self:
        """The store of a new run.

        Raises:
            StoreError: the directory holds the store of a run already.
        """
        path = Path(directory) / opening.DATABASE
        if path.exists():
            raise StoreError(f"{path} exists: choose another run directory, or resume that run")
        return cls(directory, synchronous=synchronous)

    # Writing

    def append(self, trajectory: Trajectory, *, task: Task, iteration: int, purpose: str) -> None:
        """Record a finished trajectory; once this returns it survives ``kill -9``.

        Args:
            trajectory: What was played, failed or not.
            task: Its task.
            iteration: Rollout it belongs to; for an evaluation, the iteration it follows.
            purpose: ``train`` or the name of an evaluation (``before``, ``validation``).

        Raises:
            StoreError: its id is in the store already, its group is of another task, purpose or
                iteration, it holds what is not JSON-like, or the disk refused. Nothing of it is
                kept then and the rest is intact.
        """
        with self._writing(f"appending trajectory '{trajectory.id}'") as connection:
            writing.insert_trajectory(connection, trajectory, task, iteration, purpose)

    def add_credit(
        self, groups: Sequence[Group], credit: CreditResult, *, iteration: int | None = None
    ) -> None:
        """Record the advantages and their parts for trajectories already appended.

        Args:
            groups: What was played.
            credit: Aligned with it.
            iteration: Which learns from it; ``None``: the one that its trajectories belong to.

        Raises:
            StoreError: a trajectory was never appended, or has credit already.
            DataError: ``credit`` is not aligned with ``groups``.
        """
        with self._writing("recording credit") as connection:
            writing.insert_credit(connection, groups, credit, iteration)

    def add_event(self, kind: str, data: Mapping[str, Any], *, iteration: int = 0) -> None:
        """Record what happened in the run (``evaluation``, ...); ``data`` is JSON-like."""
        with self._writing(f"recording event '{kind}'") as connection:
            writing.insert_event(connection, kind, iteration, data)

    def add_update(
        self, stats: UpdateStats, *, iteration: int = 0, batch: Batch | None = None
    ) -> None:
        """Record an optimiser step (event ``update``), and what it learnt from (``trained``).

        Args:
            stats: What the learner said of it.
            iteration: The iteration it belongs to.
            batch: Its rows; ``None``: they are not on record.
        """
        data = {
            "update": stats.update,
            "policy_version": stats.policy_version,
            "metrics": stats.metrics,
        }
        with self._writing(f"recording update {stats.update}") as connection:
            writing.insert_event(connection, "update", iteration, data)
            if batch is not None:
                rows = trained_data(batch, update=stats.update, policy_version=stats.policy_version)
                writing.insert_event(connection, TRAINED, iteration, rows)

    def forget_training(
        self, *, iteration: int, event: int, again: Iterable[str] = (), kept: Iterable[str] = ()
    ) -> None:
        """Drop what a killed run made of its episodes after its last checkpoint.

        Credit of iterations after ``iteration`` and the events behind number ``event`` go: they
        are made again (but not those of kind ``resume``, ``poisoned`` and ``taken``). What was
        played stays: ``played`` finds it, and nothing is played twice.

        Args:
            iteration: The last that is done.
            event: The last that stays.
            again: Groups whose credit goes, whatever iteration they belong to.
            kept: Groups whose credit stays.
        """
        with self._writing(f"going back to iteration {iteration}") as connection:
            writing.delete_credit_after(connection, iteration, again=again, kept=kept)
            writing.delete_events_after(connection, event)

    def flush(self) -> None:
        """Force to the disk all that was acknowledged: from here on it survives a power cut."""
        with self._guard, opening.store_errors(self.path, "flushing"):
            # Passive: the log is synced whatever readers do, and none of them is waited for.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # Reading

    def played(self, group_id: str) -> dict[int, Trajectory]:
        """What of a group was recorded: the last attempt of each trial; empty if nothing was."""
        with self._reading(f"reading group '{group_id}'") as connection:
            if not reading.has_group(connection, group_id):
                return {}
            group = reading.group(connection, reading.group_key(connection, group_id))
        return {one.trial: one for one in group.trajectories}

    def lasting_failures(self, purpose: str, retries: int) -> dict[str, int]:
        """Episodes of each task that failed for good, none of it having finished since.

        Of those before the last episode that finished at all: what failed after it may have been
        the machine's fault. Episodes that were not played or were abandoned do not count.

        Args:
            purpose: As ``append`` got it.
            retries: An attempt of this number, from 0, was an episode's last.
        """
        with self._reading("counting failures") as connection:
            return reading.lasting_failures(connection, purpose, retries)

    def blocking_tasks(self, purpose: str) -> list[str]:
        """Tasks of which an episode blocked the event loop until its run was given up."""
        with self._reading("finding what blocked") as connection:
            return reading.blocking_tasks(connection, purpose)

    def groups(
        self, *, purpose: str | None = None, iteration: int | None = None
    ) -> Iterator[Group]:
        """Groups in the order of their first trajectory.

        A group is as credit saw it: of every trial the last attempt, in the order of trials.
        Attempts that failed and were played again are found by ``find`` and ``trajectory``.

        Args:
            purpose: Matches itself and what lies beneath: ``train`` also finds ``train/stage1``.
            iteration: Only groups of this iteration.
        """
        with self._reading("listing groups") as connection:
            keys = reading.group_keys(connection, purpose, iteration)
        for key in keys:
            with self._reading("reading a group") as connection:
                group = reading.group(connection, key)
            yield group

    def group(self, group_id: str) -> Group:
        """One group, as ``groups`` gives it."""
        with self._reading(f"reading group '{group_id}'") as connection:
            return reading.group(connection, reading.group_key(connection, group_id))

    def find(self, wanted: TrajectoryFilter | None = None) -> list[TrajectorySummary]:
        """One line for each trajectory that matches, in the order they were appended."""
        with self._reading("listing trajectories") as connection:
            return reading.summaries(connection, wanted or TrajectoryFilter())

    def count(self, wanted: TrajectoryFilter | None = None) -> int:
        """How many trajectories match, whatever the filter's limit."""
        with self._reading("counting trajectories") as connection:
            return reading.count(connection, wanted or TrajectoryFilter())

    def trajectory(self, trajectory_id: str) -> StoredTrajectory:
        """One trajectory with its task and its credit.

        Raises:
            StoreError: there is none of that id.
        """
        with self._reading(f"reading trajectory '{trajectory_id}'") as connection:
            return reading.stored_trajectory(connection, trajectory_id)

    def siblings(self, trajectory_id: str) -> list[TrajectorySummary]:
        """The trajectories of its group, itself included, by trial and attempt."""
        group_id = self.trajectory(trajectory_id).trajectory.group_id
        lines = self.find(TrajectoryFilter(group_id=group_id))
        return sorted(lines, key=lambda line: (line.trial, line.attempt))

    def events(self, kind: str | None = None, *, iteration: int | None = None) -> list[RunEvent]:
        """Events of the run in the order they were recorded."""
        with self._reading("reading events") as connection:
            return reading.events(connection, kind, iteration)

    def last_event(self) -> int:
        """Number of the newest event; 0 if there is none."""
        with self._reading("reading events") as connection:
            return reading.last_event(connection)

    def updates(self) -> list[UpdateStats]:
        """The optimiser steps that were recorded."""
        return [UpdateStats(**event.data) for event in self.events("update")]

    def trained(self) -> list[TrainedBatch]:
        """What the recorded optimiser steps learnt from; those recorded without are left out."""
        with self._reading("reading what was trained on") as connection:
            return [trained_from(one) for one in reading.events(connection, TRAINED, None)]

    def token_steps(self, trajectory_id: str) -> tuple[evidence.TokenStep, ...]:
        """The tokens of a trajectory step by step, without the text around them."""
        with self._reading(f"reading the tokens of '{trajectory_id}'") as connection:
            return evidence.token_steps(connection, trajectory_id)

    def played_tasks(self) -> list[evidence.PlayedTask]:
        """Every task of which anything was recorded, in the order of its first record."""
        with self._reading("listing tasks") as connection:
            return evidence.played_tasks(connection)

    def verify(self) -> None:
        """Read the whole file and check it.

        Raises:
            StoreError: it is damaged; the message says what SQLite found.
        """
        with self._reading("checking the database") as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
            if found != ["ok"]:
                raise StoreError(
                    f"{self.path} is damaged: {'; '.join(found)}. Restore it from a copy"
                )

    # Its life

    def close(self) -> None:
        """Close the database and let another writer have it. Closing twice is fine."""
        with self._guard, opening.store_errors(self.path, "closing"):
            self._connection.close()
            if self._lock is not None:
                self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _writing(self, doing: str) -> Iterator[sqlite3.Connection]:
        if self._lock is None:
            raise StoreError(f"{self.path}: {doing}: this store was opened with read_only=True")
        with (
            self._guard,
            opening.store_errors(self.path, doing),
            opening.transaction(self._connection),
        ):
            yield self._connection

    @contextmanager
    def _reading(self, doing: str) -> Iterator[sqlite3.Connection]:
        with self._guard, opening.store_errors(self.path, doing):
            self._connection.execute("BEGIN")  # one moment of the run, however many queries
            try:
                yield self._connection
            except (ValueError, KeyError, IndexError, TypeError) as error:
                # SQLite vouches for the structure of the file, not for what its cells say.
                raise StoreError(
                    f"{self.path}: {doing} failed: a record is damaged ({error!r}); restore the "
                    "file from a copy"
                ) from error
            finally:
                if self._connection.in_transaction:  # damage may have ended it already
                    self._connection.execute("ROLLBACK")
