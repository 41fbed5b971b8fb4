"""Opening a run's database, the lock of its one writer, and SQLite's errors in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from agentrl.core.errors import SchemaVersionError, StoreError
from agentrl.store.schema import APPLICATION_ID, SCHEMA_VERSION, TABLES

DATABASE = "store.sqlite"
LOCK = "store.lock"
BUSY_S = 30.0  # readers never block the writer in WAL mode; this covers recovery after a crash

Synchronous = Literal["normal", "full"]

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space and resume the run",
    sqlite3.SQLITE_IOERR: "the disk refused; check it for space and faults, then resume the run",
    sqlite3.SQLITE_READONLY: "the store was opened or lies on a disk that is read-only",
    sqlite3.SQLITE_CANTOPEN: "the directory must exist and be writable for the writer",
    sqlite3.SQLITE_BUSY: "another process holds the database; end it",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy or start a new run",
    sqlite3.SQLITE_NOTADB: "the file is no database; it was damaged or never a store",
}


@contextmanager
def store_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite raises into ``StoreError`` that says what to do."""
    try:
        yield
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(code)
        kept = "; what was acknowledged before is intact" if code == sqlite3.SQLITE_FULL else ""
        raise StoreError(
            f"{path}: {doing} failed: {error}" + (f" ({advice}{kept})" if advice else "")
        ) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing: rolled back whatever interrupts it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise


def lock_writer(directory: Path) -> sqlite3.Connection:
    """Hold the run for one writer until the connection is closed or the process dies.

    The lock is SQLite's own exclusive file lock on an empty file beside the database. The kernel
    drops it with the process, so a killed run leaves no stale lock; it also holds between threads
    of one process, and a forked child does not inherit it.

    Raises:
        StoreError: another writer holds it.
    """
    path = directory / LOCK
    with store_errors(path, "locking"):
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise StoreError(
                f"{directory}: another process or store object is writing to this run; a run has "
                "one writer. End it, close it, or open the store with read_only=True"
            ) from None
        raise StoreError(f"{path}: cannot lock the run for writing: {error}") from error
    return connection


def open_for_writing(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open the database, making its tables if it is new. Call with the writer's lock held."""
    with store_errors(path, "opening"):
        connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
    try:
        with store_errors(path, "opening"):
            if _is_empty(connection):
                connection.execute("PRAGMA journal_mode = WAL")
                _make_tables(connection)
            check_version(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing database without ever changing it, also while a run writes to it."""
    if not path.is_file():
        raise StoreError(f"no store at {path}; give the directory of a run that has begun")
    connection = _open_uri(path, "mode=ro")
    try:
        with store_errors(path, "opening"):
            if _is_empty(connection):
                raise StoreError(f"{path} is empty: the run has not recorded anything yet")
            check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_uri(path: Path, mode: str) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    with store_errors(path, "opening"):
        connection = sqlite3.connect(
            f"{uri}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            log = path.with_name(path.name + "-wal")
            if mode == "mode=ro" and not (log.is_file() and log.stat().st_size):
                # A finished run on a read-only disk: SQLite could not make its index file there.
                return _open_uri(path, "immutable=1")
            raise
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse another program's database and another version of the schema."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database, but not a store of agentrl (application_id {application:#x}, "
            f"expected {APPLICATION_ID:#x}); give the directory of a run"
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{path} has schema version {version}; this agentrl reads version {SCHEMA_VERSION}. "
            "Read it with the release that wrote it, or start a new run in another directory"
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _make_tables(connection: sqlite3.Connection) -> None:
    # One transaction: a killed start leaves an empty file, which the next start fills.
    connection.executescript(
        f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
