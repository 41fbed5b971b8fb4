"""Stands between the trainer and a server that it started: the server ends when its trainer does.

Run by its path with the trainer's Python, on the standard library alone::

    guard.py PARENT GRACE_S FOLDER COMMAND [ARGUMENT...]

The command runs as the leader of a process group of its own, so that Ctrl-C is the trainer's alone
and whatever it starts can be ended with it. Its process id is the one line on standard output. The
guard ends when the command does (with its exit code), when it is told to (SIGTERM), and when the
trainer is gone, however it went: then its end of standard input closes, and the guard has another
parent. It always leaves an empty process group behind. Of a trainer that is gone it also removes
FOLDER (if that is not empty text), through which weights passed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

CHECK_S = 0.25
LEFT_S = 1.0  # for what a server that died has left
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)


def main(arguments: Sequence[str]) -> int:
    """Run a command until it ends, or has to.

    Args:
        arguments: Process id of the trainer, seconds between SIGTERM and SIGKILL, the folder, the
            command.
    """
    parent, grace_s, folder = int(arguments[0]), float(arguments[1]), arguments[2]
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl = _prctl()  # loaded before the fork
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the server leaves behind becomes the guard's to reap
    server = subprocess.Popen(
        arguments[3:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    print(server.pid, flush=True)
    while server.poll() is None and not told and os.getppid() == parent and not _closed():
        pass
    code = server.poll()
    _end(server, grace_s if code is None else min(grace_s, LEFT_S))
    if folder and os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    code = server.returncode if code is None else code
    return code if code >= 0 else 128 - code


def _closed() -> bool:
    """Wait a little; whether the trainer has closed its end of standard input."""
    try:
        ready, _, _ = select.select([0], [], [], CHECK_S)
        return bool(ready) and not os.read(0, 1)
    except InterruptedError:
        return False


def _end(server: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask the whole group to end, wait, then kill what is left of it."""
    _signal(server.pid, signal.SIGTERM)
    _wait(server, grace_s)
    _signal(server.pid, signal.SIGKILL)
    server.wait()
    _wait(server, LEFT_S)


def _wait(server: subprocess.Popen[bytes], most_s: float) -> None:
    """Until nobody is left in the group."""
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline and (server.poll() is None or not _reaped(server.pid)):
        time.sleep(0.05)


def _reaped(group: int) -> bool:
    """Reap what has ended of the group; whether nobody is left in it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return not _signal(group, 0)


def _signal(group: int, number: int) -> bool:
    """Whether there was anybody in the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _prctl() -> Any:
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda *_: None  # not Linux


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
