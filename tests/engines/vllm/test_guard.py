"""The guard of a server: whatever happens to the trainer, nothing of the server is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agentrl.engines.vllm import guard

FILE = guard.__file__
WAIT_S = 60.0  # generous: nothing here depends on it
# A server with a child, neither of which ends when it is asked to.
STUBBORN = "trap '' TERM; sleep 600 & echo ready; while true; do sleep 0.1; done"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_empty(group: int) -> bool:
    """Whether nobody but the dead is in a process group."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return not any(int(row[0]) == group and not row[1].startswith("Z") for row in rows)


def guarded(*command: str, parent: int | None = None, grace_s: float = 0.2) -> list[str]:
    return [sys.executable, "-I", FILE, str(parent or os.getpid()), str(grace_s), "", *command]


def started(*command: str) -> tuple[subprocess.Popen[bytes], int]:
    one = subprocess.Popen(
        guarded(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert one.stdout is not None
    return one, int(one.stdout.readline())


def closed(one: subprocess.Popen[bytes]) -> None:
    for pipe in (one.stdin, one.stdout, one.stderr):
        if pipe is not None:
            pipe.close()


def test_it_ends_with_its_command_and_the_same_code() -> None:
    one, _ = started("sh", "-c", "exit 7")
    assert one.wait(WAIT_S) == 7
    closed(one)


def test_what_a_dead_server_leaves_is_ended() -> None:
    one, group = started("sh", "-c", "sleep 600 & kill -9 $$")
    assert one.wait(WAIT_S) == 128 + signal.SIGKILL
    assert is_empty(group)
    closed(one)


def test_it_ends_a_server_that_does_not_want_to_when_told_or_when_its_input_closes() -> None:
    for way in ("signal", "input"):
        one, group = started("bash", "-c", STUBBORN)
        assert one.stderr is not None
        assert one.stdin is not None
        assert one.stderr.readline() == b"ready\n"
        if way == "signal":
            one.terminate()
        else:
            one.stdin.close()
        assert one.wait(WAIT_S) == 128 + signal.SIGKILL
        assert is_empty(group)
        closed(one)


def test_nothing_is_left_of_a_trainer_that_was_killed(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    # The trainer's own child holds the other end of the guard's input open, as forks do.
    program = (
        "import os, subprocess, sys\n"
        f"command = [sys.executable, '-I', {FILE!r}, str(os.getpid()), '0.2',"
        f" {str(weights)!r}, 'bash', '-c', {STUBBORN!r}]\n"
        "one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(one.stdout.readline().decode(), flush=True)\n"
        "subprocess.run(['sleep', '600'], pass_fds=[one.stdin.fileno()])\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert trainer.stdout is not None
    group = int(trainer.stdout.readline())
    assert not is_empty(group)
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    until(lambda: is_empty(group) and not weights.exists())
    os.killpg(trainer.pid, signal.SIGKILL)  # the child that held the input
    trainer.stdout.close()


def test_a_guard_that_is_killed_takes_its_server_along() -> None:
    one, group = started("sleep", "600")
    one.kill()
    one.wait()
    until(lambda: is_empty(group))
    closed(one)
