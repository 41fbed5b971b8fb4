"""Engines that play real ALFWorld games behind one face, so that they can be compared.

``NativeEngine`` is agentrl's own, ``OriginalEngine`` the package ``alfworld`` in another process,
``AlteredEngine`` a double that errs on purpose.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any, Protocol, Self

from agentrl import __version__
from agentrl.core.errors import DeadlineError, EnvDiedError, EnvError, MissingDependencyError
from agentrl.envs.alfworld.engine import World
from agentrl.envs.alfworld.files import FILE_NAME, read_game
from agentrl.envs.alfworld.game import Game

__all__ = [
    "COMPARED",
    "AlteredEngine",
    "GameEngine",
    "NativeEngine",
    "OriginalEngine",
    "Shown",
]

_WORKER = Path(__file__).with_name("alfworld_differential_worker.py")
#: Without this the worker's folder would come first on its path, and hide modules of the package.
_START = "import runpy, sys; sys.path.pop(0); runpy.run_path(sys.argv[1], run_name='__main__')"
_TAIL = 600


@dataclass(frozen=True, slots=True)
class Shown:
    """What an engine shows after a reset or a command.

    Attributes:
        feedback: The text.
        admissible: Commands that are possible now, in the engine's order.
        score: 1 whenever the goal holds, else 0; 0 at a reset.
        done: Whether the engine says that the game is over.
        won: Whether the goal holds.
        moves: Commands so far that were possible.
    """

    feedback: str
    admissible: tuple[str, ...]
    score: float
    done: bool
    won: bool
    moves: int


#: The fields that are compared, in the order in which a difference is looked for.
COMPARED = ("feedback", "admissible", "score", "done", "won", "moves")


class GameEngine(Protocol):
    """Plays one game after the other; whoever made it closes it."""

    @property
    def versions(self) -> Mapping[str, str]:
        """What plays: package -> version."""
        ...

    def open(self, root: Path, folder: str) -> Shown:
        """Begin the game in ``root/folder``."""
        ...

    def step(self, command: str) -> Shown:
        """Answer one command."""
        ...

    def close(self) -> None:
        """Free what it holds; may be called again."""
        ...


class NativeEngine:
    """agentrl's engine.

    Attributes:
        game: What is being played. world: its live state.
    """

    game: Game
    world: World
    versions: Mapping[str, str] = MappingProxyType({"agentrl": __version__})

    def open(self, root: Path, folder: str) -> Shown:
        """Begin a game.

        Raises:
            DataError: The file is missing or damaged.
        """
        self.game = read_game(root, folder)
        self.world = World(self.game)
        self._moves = 0
        return self._shown(self.world.intro, 0.0)

    def step(self, command: str) -> Shown:
        reply = self.world.step(command)
        self._moves += reply.valid
        return self._shown(reply.feedback, reply.reward)

    def close(self) -> None:
        """Nothing is held."""

    def _shown(self, feedback: str, score: float) -> Shown:
        world = self.world
        return Shown(feedback, tuple(world.admissible), score, world.won, world.won, self._moves)


class AlteredEngine:
    """A double: another engine whose answers are changed on purpose.

    Args:
        engine: What really plays.
        alter: Is given the command (``None`` at a reset) and the true answer; returns what to say
            instead, or raises.
    """

    def __init__(self, engine: GameEngine, alter: Callable[[str | None, Shown], Shown]) -> None:
        self._engine = engine
        self._alter = alter

    @property
    def versions(self) -> Mapping[str, str]:
        return self._engine.versions

    def open(self, root: Path, folder: str) -> Shown:
        return self._alter(None, self._engine.open(root, folder))

    def step(self, command: str) -> Shown:
        return self._alter(command, self._engine.step(command))

    def close(self) -> None:
        self._engine.close()


class OriginalEngine:
    """The engine of the package ``alfworld``, unchanged, in a process of its own.

    A context manager: the process ends with the block.

    Attributes:
        versions: Of the packages that play. cpu_s: CPU seconds that the last answer took.

    Args:
        python: The interpreter of the environment that holds the package; default: this one.
        deadline_s: Seconds that it may take to start, and to answer.

    Raises:
        MissingDependencyError: That interpreter is not there, or has no such package.
    """

    def __init__(self, python: str | Path | None = None, *, deadline_s: float = 120.0) -> None:
        self._python = str(python or sys.executable)
        self._deadline_s = deadline_s
        self.cpu_s = 0.0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (``close`` does)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(
                [self._python, "-c", _START, str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            self._errors.close()
            raise MissingDependencyError(
                f"cannot start the Python '{self._python}': {error}; expected the path of the "
                "interpreter of an environment in which 'alfworld' is installed"
            ) from error
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.versions = self._hello()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self, root: Path, folder: str) -> Shown:
        """Begin a game.

        Raises:
            EnvError: The engine failed at it. EnvDiedError: its process is gone.
            DeadlineError: It did not answer in time.
        """
        return self._ask({"open": str(root / folder / FILE_NAME)})

    def step(self, command: str) -> Shown:
        """Answer one command; errors as for ``open``."""
        return self._ask({"step": command})

    def close(self) -> None:
        """End the process; may be called again."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:  # a request that it did not live to read
                    continue

    def _hello(self) -> Mapping[str, str]:
        about = self._receive()
        if "missing" in about:
            raise MissingDependencyError(
                f"ALFWorld's own engine needs the package 'alfworld', and Python "
                f"{about.get('python')} at {self._python} lacks it: {about['missing']}. From a "
                "checkout: pip install -e '.[alfworld]'; or install 'alfworld==0.4.2' into an "
                "environment of its own and name its Python with --python"
            )
        versions = about.get("versions")
        if not isinstance(versions, dict):
            raise EnvError(
                f"the process of ALFWorld's engine began with {str(about)[:200]}; expected its "
                f"versions; is {self._python} a Python of 3.9 or later?"
            )
        return versions

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _ask(self, request: Mapping[str, str]) -> Shown:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._died() from error
        answer = self._receive()
        if "error" in answer:
            raise EnvError(
                f"ALFWorld's own engine failed at {str(request)[:200]}: {answer['error']}; the "
                "native engine is not to blame; play the game with the package alone to see why"
            )
        try:
            self.cpu_s = float(answer.pop("cpu_s"))
            return Shown(**{**answer, "admissible": tuple(answer["admissible"])})
        except (KeyError, TypeError) as error:
            raise EnvError(
                f"ALFWorld's own engine answered {str(answer)[:200]}; expected "
                f"{', '.join(COMPARED)}"
            ) from error

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=self._deadline_s)
        except queue.Empty as error:
            self._process.kill()
            raise DeadlineError(
                f"ALFWorld's own engine did not answer within {self._deadline_s:g} s; it was "
                "ended; allow more seconds, or leave the game out"
            ) from error
        if not line:
            raise self._died()
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise EnvError(
                f"the process of ALFWorld's engine wrote {line[:200]!r}; expected a line of JSON"
            ) from error
        return dict(answer) if isinstance(answer, dict) else {"error": f"got {line[:200]!r}"}

    def _died(self) -> EnvDiedError:
        if self._errors.closed:
            return EnvDiedError(
                "the process of ALFWorld's engine was closed; start another OriginalEngine"
            )
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_TAIL:] or "nothing"
        return EnvDiedError(
            f"the process of ALFWorld's engine ended with status {status}; its last words: {said}"
        )
