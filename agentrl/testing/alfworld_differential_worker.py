"""Plays real games on ALFWorld's own engine for another process: JSON lines in, JSON lines out.

``alfworld_differential_engines.OriginalEngine`` starts this file by its path, perhaps with the
Python of another environment, so it needs the standard library and the package ``alfworld`` only.

After a first line about versions, every request gets one answer::

    {"open": PATH}      a game begins          {"feedback", "admissible", "score", "done", "won",
    {"step": COMMAND}   one command             "moves", "cpu_s"}, or {"error": TEXT}

``cpu_s`` are the seconds of CPU that the engine took for this answer. The end of the input ends the
process. What the package prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, TextIO

#: What was possible, and so counted as a move, is found out by asking for ``moves``.
_INFOS = {"won": True, "admissible_commands": True, "moves": True}
PACKAGES = ("alfworld", "textworld", "fast_downward_textworld")


def make_environment() -> Any:
    """ALFWorld's text environment with its names in words, as ``AlfredTWEnv`` makes it."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    return AlfredDemangler(PddlEnv(textworld.EnvInfos(**_INFOS)), shuffle=False)


def shown(state: Any) -> dict[str, Any]:
    """What a player sees of a state; a reset has no score yet."""
    return {
        "feedback": state["feedback"],
        "admissible": list(state["admissible_commands"]),
        "score": state.get("score") or 0,
        "done": bool(state.get("done")),
        "won": bool(state["won"]),
        "moves": state["moves"],
    }


def serve(make: Callable[[], Any], lines: Iterable[str], out: TextIO) -> None:
    """Answer requests until there are no more; an error of the engine is an answer, too."""
    environment: Any = None
    for line in lines:
        request = json.loads(line)
        started = time.process_time()
        try:
            if "open" in request:
                environment = make()
                environment.load(request["open"])
                state = environment.reset()
            else:
                state, _score, _done = environment.step(request["step"])
            cpu_s = time.process_time() - started
            answer = {**shown(state), "cpu_s": cpu_s}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def main() -> int:
    """Say which versions are here, then serve; exit status 3 if the package is missing."""
    # The engine is a C library that prints as well: keep its output away from the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        make_environment()
        about = {"versions": {name: version(name) for name in PACKAGES}}
    except ImportError as error:
        out.write(json.dumps({"missing": str(error), "python": sys.version.split()[0]}) + "\n")
        out.flush()
        return 3
    out.write(json.dumps(about) + "\n")
    out.flush()
    serve(make_environment, sys.stdin, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
