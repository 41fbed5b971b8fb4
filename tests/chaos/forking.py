"""Runs training in forked children that kill themselves where they are told to.

A script of its own: torch is loaded once (seconds), each child then costs a fork. It reads one JSON
object a line and answers with one::

    {"command": "train", "run": {...run file...}, "kill": ["after", "SqliteStore.append", 3]}
    {"command": "resume", "run_dir": "...", "overrides": [], "kill": null, "delay_s": 0.5}
    -> {"code": -9, "errors": "..."}

``kill``: SIGKILL before or after the n-th call of one of ``PLACES``. ``full``: at the n-th
checkpoint the disk takes no file above that size. ``delay_s``: SIGKILL from outside, after so long.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import agentrl.checkpoints
import agentrl.engines.hf
import agentrl.learn.checkpoint
import agentrl.models.tiny
import agentrl.models.tokenizer
import agentrl.train
from agentrl.checkpoints import Checkpoints
from agentrl.config import load_config
from agentrl.core.errors import AgentRLError
from agentrl.learn.trl_learner import TrlLearner
from agentrl.learn.trl_trainer import StepTrainer
from agentrl.store.sqlite import SqliteStore

PLACES: dict[str, tuple[Any, str]] = {
    "append": (SqliteStore, "append"),
    "credit": (SqliteStore, "add_credit"),
    "gradient": (StepTrainer, "_clip_or_refuse"),
    "update": (TrlLearner, "_after_step"),
    "update recorded": (SqliteStore, "add_update"),
    "checkpoint": (Checkpoints, "save"),
    "weights written": (torch, "save"),
    "checkpoint written": (agentrl.checkpoints, "_fingerprints"),
    "pruning": (Checkpoints, "_prune"),
    "iteration": (SqliteStore, "add_event"),
    "report": (agentrl.train, "write_report"),
}


def kill_at(when: str, place: str, count: int) -> None:
    """Let the ``count``-th call at ``place``, from 1, be this process's end."""
    owner, name = PLACES[place]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **keywords)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def fill_disk_at(count: int, limit: int) -> None:
    """From the ``count``-th checkpoint on no file may grow beyond ``limit`` bytes."""
    original = Checkpoints.save
    calls = 0

    def limited(*arguments: Any) -> Path:
        nonlocal calls
        calls += 1
        if calls == count:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return original(*arguments)

    Checkpoints.save = limited  # type: ignore[method-assign, assignment]


def work(order: dict[str, Any]) -> int:
    torch.set_num_threads(1)
    if order.get("kill"):
        kill_at(*order["kill"])
    if order.get("full"):
        fill_disk_at(*order["full"])
    console = Console(file=sys.stderr)
    try:
        if order["command"] == "train":
            agentrl.train.train(load_config(order["run"]), console=console)
        else:
            run_dir, overrides = Path(order["run_dir"]), order.get("overrides", ())
            agentrl.train.resume(run_dir, overrides, console=console)
    except AgentRLError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def child(order: dict[str, Any], errors: int) -> None:
    """Never returns."""
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    code = 70
    try:
        code = work(order)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve(order: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if not pid:
            child(order, errors.fileno())
        if order.get("delay_s"):
            time.sleep(order["delay_s"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        errors.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "errors": errors.read()}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
