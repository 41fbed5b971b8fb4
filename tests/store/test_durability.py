"""Killed processes, other processes, full disks, damaged files."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.core.errors import SchemaVersionError, StoreError
from agentrl.core.trajectory import Trajectory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.contracts.store import rich_group
from agentrl.testing.episodes import task

GROUP = rich_group()
PRELUDE = """
import os, resource, signal, sys
from agentrl.core.errors import StoreError
from agentrl.store.sqlite import SqliteStore
from tests_numbered import numbered, GROUP
directory = sys.argv[1]
def say(word):
    print(word, flush=True)
def append(store, number):
    store.append(numbered(number), task=GROUP.task, iteration=0, purpose="train")
"""


def numbered(number: int) -> Trajectory:
    return replace(GROUP.trajectories[0], id=f"rich/{number}", trial=number)


def start(code: str, directory: Path, scripts: Path) -> subprocess.Popen[str]:
    """Another process over the same store; its standard input and output are pipes."""
    (scripts / "tests_numbered.py").write_text(
        "from dataclasses import replace\n"
        "from agentrl.testing.contracts.store import rich_group\n"
        "GROUP = rich_group()\n"
        "def numbered(n):\n"
        "    return replace(GROUP.trajectories[0], id=f'rich/{n}', trial=n)\n"
    )
    script = scripts / "script.py"
    script.write_text(PRELUDE + code)
    return subprocess.Popen(
        [sys.executable, str(script), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def append(store: SqliteStore, *numbers: int) -> None:
    for number in numbers:
        store.append(numbered(number), task=GROUP.task, iteration=0, purpose="train")


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("synchronous", ["normal", "full"])
def test_what_was_acknowledged_survives_sigkill(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, synchronous: str
) -> None:
    code = f"""
store = SqliteStore(directory, synchronous="{synchronous}")
for number in range(20):
    append(store, number)
    say(number)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output.split() == [str(number) for number in range(20)]
    with SqliteStore(tmp_path) as store:  # no stale lock
        (group,) = store.groups()
        assert group.trajectories == tuple(numbered(number) for number in range(20))
        store.verify()
        append(store, 20)


def test_what_was_not_finished_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Killed inside the transaction: by then the rows were written, but not committed.
    code = """
class Killing(dict):
    def items(self):
        os.kill(os.getpid(), signal.SIGKILL)
from dataclasses import replace
store = SqliteStore(directory)
append(store, 0)
last = numbered(1)
bad = replace(last.steps[-1], anchor=Killing(a=1))
store.append(replace(last, steps=(*last.steps, bad)), task=GROUP.task, iteration=0, purpose="train")
"""
    process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with SqliteStore(tmp_path) as store:
        assert [one.id for one in store.find()] == ["rich/0"]


def test_a_second_writer_is_refused_until_the_first_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = """
store = SqliteStore(directory)
append(store, 0)
say("open")
sys.stdin.readline()
"""
    process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
    assert line(process) == "open"
    with pytest.raises(StoreError, match=r"one writer.*read_only=True"):
        SqliteStore(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    with SqliteStore(tmp_path) as store:
        assert store.count() == 1


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = """
store = SqliteStore(directory)
if os.fork() == 0:
    say("child")
    sys.stdin.readline()
    os._exit(0)
sys.stdout.flush()
import time
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
    assert line(process) == "child"
    assert process.wait(timeout=60) == -signal.SIGKILL
    with SqliteStore(tmp_path) as store:
        append(store, 0)
    tell(process)
    process.communicate(timeout=60)


def test_a_second_writer_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        with pytest.raises(StoreError, match="another process or store object"):
            SqliteStore(tmp_path)
        append(store, 0)
    SqliteStore(tmp_path).close()


def test_another_process_reads_while_the_run_writes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = """
store = SqliteStore(directory, read_only=True)
for _ in range(2):
    (group,) = store.groups()
    say(len(group.trajectories) if group.trajectories[0] == numbered(0) else "changed")
    sys.stdin.readline()
"""
    with SqliteStore(tmp_path) as store:
        append(store, 0)
        process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
        assert line(process) == "1"
        append(store, 1, 2)
        tell(process)
        assert line(process) == "3"
        append(store, 3)
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
        assert store.count() == 4


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        append(store, 0)
    with SqliteStore(tmp_path, read_only=True) as reader:
        calls: list[Callable[[], object]] = [
            lambda: append(reader, 1),
            lambda: reader.add_event("update", {}),
            lambda: reader.forget_training(iteration=0, event=0),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="read_only=True"):
                call()
        assert reader.count() == 1


def test_a_reader_may_outlive_the_writer(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    append(store, 0)
    with SqliteStore(tmp_path, read_only=True) as reader:
        store.close()
        assert reader.count() == 1
        with SqliteStore(tmp_path) as again:
            append(again, 1)
            assert reader.count() == 2


def test_a_full_disk_is_said_and_harms_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # The kernel refuses to let any file grow past 400 kB, as a full disk does.
    code = """
store = SqliteStore(directory)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
number = 0
try:
    while number < 10_000:
        append(store, number)
        number += 1
except StoreError as error:
    say(number)
    say(str(error))
    say(store.count() == number)
"""
    process = start(code, tmp_path, tmp_path_factory.mktemp("scripts"))
    output, _ = process.communicate(timeout=60)
    number, message, intact = output.splitlines()
    assert 10 < int(number) < 10_000
    assert f"appending trajectory 'rich/{number}' failed" in message
    assert "resume the run" in message
    assert intact == "True"
    with SqliteStore(tmp_path) as store:
        (group,) = store.groups()
        assert group.trajectories == tuple(numbered(place) for place in range(int(number)))


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database at all " * 100)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 6 * 4096 + 100])


def scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 :] = b"\xff" * (len(data) - 4096 * 3)
    path.write_bytes(bytes(data))


def other_program(path: Path) -> None:
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE groceries (name TEXT)")
    database.close()


@pytest.mark.parametrize("spoil", [garbage, shortened, scribbled, other_program])
def test_a_damaged_or_strange_file_is_a_store_error(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    with SqliteStore(tmp_path) as store:
        append(store, *range(30))
        path = store.path
    spoil(path)
    for read_only in (True, False):
        for read in (lambda store: store.verify(), lambda store: list(store.groups())):
            with pytest.raises(StoreError, match=r"damaged|no database|not a store of agentrl"):
                look(tmp_path, read, read_only)


def look(directory: Path, read: Callable[[SqliteStore], object], read_only: bool) -> None:
    with SqliteStore(directory, read_only=read_only) as store:
        read(store)


def test_a_damaged_record_in_a_sound_file_is_a_store_error(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        append(store, 0)
        path = store.path
    with sqlite3.connect(path) as database:
        database.execute("UPDATE steps SET record = substr(record, 3)")
    database.close()
    with (
        SqliteStore(tmp_path, read_only=True) as store,
        pytest.raises(StoreError, match=r"a record is damaged.*restore"),
    ):
        list(store.groups())


@pytest.mark.parametrize("read_only", [True, False])
def test_another_schema_version_is_refused(tmp_path: Path, read_only: bool) -> None:
    SqliteStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "store.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(SchemaVersionError, match=r"version 99.*reads version 1.*release"):
        SqliteStore(tmp_path, read_only=read_only)


def test_an_empty_file_is_the_start_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").touch()
    with pytest.raises(StoreError, match="not recorded anything yet"):
        SqliteStore(tmp_path, read_only=True)
    with SqliteStore(tmp_path) as store:
        append(store, 0)


def test_reading_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        SqliteStore(tmp_path / "run", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make the run's directory"):
        SqliteStore(tmp_path / "file" / "run")


def test_creating_over_a_run_is_refused(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path).close()
    with pytest.raises(StoreError, match="choose another run directory, or resume"):
        SqliteStore.create(tmp_path)


def test_synchronous_is_a_word_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="normal or full"):
        SqliteStore(tmp_path, synchronous="off")  # type: ignore[arg-type]


def test_a_finished_run_is_one_file_that_can_be_copied(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "run") as store:
        append(store, 0)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "store.sqlite", tmp_path / "copy")
    with SqliteStore(tmp_path / "copy", read_only=True) as copy:
        assert copy.trajectory("rich/0").trajectory == numbered(0)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        append(store, 0)


def test_threads_may_share_a_store(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        threads = [
            threading.Thread(target=append, args=(store, *range(place, 80, 4)))
            for place in range(4)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for group in store.groups():
                assert all(one == numbered(one.trial) for one in group.trajectories)
        for thread in threads:
            thread.join()
        (group,) = store.groups()
        assert group.trajectories == tuple(numbered(number) for number in range(80))
        assert group.task == task("rich")
