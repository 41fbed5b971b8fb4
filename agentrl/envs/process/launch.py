"""Starts a worker process, with this interpreter or another one."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import agentrl
from agentrl.core.errors import ConfigError, DataError, EnvDiedError
from agentrl.envs.process.codec import plain

__all__ = ["Program", "Started", "Workers", "exit_words", "start"]

# Only agentrl itself is found in its folder, not what else is installed there: that would be the
# packages of another interpreter. What it says must be Python that an old interpreter can read.
_BOOT = """\
import sys
if sys.version_info < (3, 11):
    sys.exit("agentrl needs Python 3.11 or newer; %s is %s" % (sys.executable, sys.version))
import importlib.util
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "agentrl", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["agentrl"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from agentrl.envs.process.worker import main
main(sys.argv[1:])
"""
_DISTRIBUTION = "agentrl-framework"
_WRONG_SETTING = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Workers:
    """How many processes, and how long they may take.

    Attributes:
        processes: Worker processes.
        episodes: Episodes in one process at a time.
        python: Interpreter that they run, with the environment's packages; ``None``: this one. It
            must be Python 3.11 or newer, and needs nothing of agentrl's.
        start_timeout_s: From the start of a process until the environment's factory is made;
            likewise for a page of its tasks, and for a few steps of a demonstration.
        grace_s: How long a cancelled episode, or a process that is told to end, may take to close.
            After that the process is killed.

    Raises:
        ConfigError: a number is out of range.
    """

    processes: int = 1
    episodes: int = 32
    python: str | None = None
    start_timeout_s: float = 120.0
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("processes", "episodes", "start_timeout_s", "grace_s"):
            value, least = getattr(self, name), 1 if name in ("processes", "episodes") else 0
            if value < least or not value:
                raise ConfigError(
                    f"workers.{name} must be {'at least 1' if least else 'above 0'}, got {value!r}"
                )


@dataclass(frozen=True, slots=True)
class Program:
    """What every worker runs.

    Attributes:
        name: The environment, registered or ``module:attr``. options: its keyword arguments.
        workers: How it is run.

    Raises:
        ConfigError: another process cannot make the environment of this.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: Workers = Workers()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name.startswith("__main__:"):
            raise ConfigError(
                f"a worker process cannot make the environment {self.name!r}: give a registered "
                "name or 'my_module:MyFactory', which the process can import"
            )
        try:
            plain(self.options)
        except DataError as error:
            raise ConfigError(
                f"options of environment '{self.name}' cannot be sent to a worker: {error}"
            ) from None

    def opening(self) -> dict[str, Any]:
        """What a worker is told first. An interpreter of its own keeps its own module path."""
        return {
            "name": self.name,
            "target": _built_in(self.name),
            "options": plain(self.options),
            "path": sys.path if self.workers.python is None else None,
        }


def _built_in(name: str) -> str | None:
    """``module:attr`` of one of agentrl's own: another interpreter may not have it registered."""
    for entry in entry_points(group="agentrl.env"):
        if entry.name == name and entry.dist is not None and entry.dist.name == _DISTRIBUTION:
            return entry.value
    return None


@dataclass(frozen=True, slots=True)
class Started:
    """A process, the trainer's end of its socket, and the end of the pipe that it prints to."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    log: int


def start(workers: Workers) -> Started:
    """Start a process of its own group; the caller owns what is returned.

    Raises:
        ConfigError: there is no such interpreter.
        EnvDiedError: this machine cannot start one more process.
    """
    python = sys.executable if workers.python is None else os.path.expanduser(workers.python)
    if Path(python).is_dir():
        raise ConfigError(
            f"the interpreter of the environment's workers '{python}' is a folder; give the "
            f"interpreter in it, such as '{Path(python) / 'bin' / 'python'}'"
        )
    ours, theirs = socket.socketpair()
    log, printed = os.pipe()
    try:
        process = _popen(python, theirs.fileno(), printed, workers)
    except OSError as error:
        ours.close()
        os.close(log)
        words = f"cannot start a worker of the environment with '{python}': {error.strerror}"
        if error.errno in _WRONG_SETTING:
            raise ConfigError(
                f"{words}; give the path of a Python 3.11 or newer, such as '/path/to/venv/bin/"
                "python', or leave it out to use this one"
            ) from None
        raise EnvDiedError(words) from None
    finally:
        theirs.close()
        os.close(printed)
    ours.setblocking(False)
    os.set_blocking(log, False)
    return Started(process, ours, log)


def _popen(python: str, channel: int, printed: int, workers: Workers) -> subprocess.Popen[bytes]:
    folder = str(Path(agentrl.__file__).parent)
    # -u: what was printed before a crash is seen. faulthandler: so is where native code crashed.
    flags = ["-u", "-X", "faulthandler"]
    environment = dict(os.environ)
    if workers.python is not None:
        environment.pop("PYTHONHOME", None)  # it is of this interpreter alone
    return subprocess.Popen(
        [python, *flags, "-c", _BOOT, folder, str(channel), str(workers.grace_s)],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
        pass_fds=(channel,),
        start_new_session=True,
        env=environment,
    )


def exit_words(code: int | None) -> str:
    """How a process ended, from its ``returncode``."""
    if code is None:
        return "would not end, not even by SIGKILL"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
