"""A double of ALFWorld's text environment, for machines without the package.

It has the three methods that are used of the real one and answers in the same shapes, but plays
agentrl's engine: it tests how answers travel, not what they say. Run as a program it takes the
place of the worker that plays the real one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agentrl.envs.alfworld.files import read_game
from agentrl.testing.alfworld_differential_engines import NativeEngine, Shown
from agentrl.testing.alfworld_differential_worker import serve

__all__ = ["StandInEnvironment", "main"]


class StandInEnvironment:
    """``load`` a game file, ``reset``, ``step``."""

    def load(self, filename: str) -> None:
        """Read a game file. As the real one it reads it again at a reset.

        Raises:
            DataError: It is missing or damaged.
        """
        folder = Path(filename).parent
        self._root, self._folder = folder.parents[2], folder.relative_to(folder.parents[2])
        self._engine = NativeEngine()
        read_game(self._root, str(self._folder))

    def reset(self) -> dict[str, Any]:
        """The state at the start; no score yet."""
        return _state(self._engine.open(self._root, str(self._folder)))

    def step(self, command: str) -> tuple[dict[str, Any], int, bool]:
        """State, score and whether the game is over, after a command."""
        shown = self._engine.step(command)
        score = int(shown.score)
        return {**_state(shown), "score": score, "done": shown.done}, score, shown.done


def _state(shown: Shown) -> dict[str, Any]:
    return {
        "feedback": shown.feedback,
        "admissible_commands": list(shown.admissible),
        "won": shown.won,
        "moves": shown.moves,
    }


def main() -> int:
    """Serve as ``alfworld_differential_worker`` does."""
    print(json.dumps({"versions": {"stand-in": "1"}}), flush=True)
    serve(StandInEnvironment, sys.stdin, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
