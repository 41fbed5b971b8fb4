"""Kill a whole trainer with SIGKILL at random moments, resume it, and compare what it came to.

Runs are forked from a process that has torch loaded: a child costs a fork, not seconds, so that the
moments fall into the run and not into the loading of libraries. Linux; one thread.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.testing.tiny_runs import tiny_run_data

__all__ = ["Kill", "KillFigures", "contents", "exact_run_data", "forked", "kill_at_random"]

POLL_S = 0.002
TRIES = 5


@dataclass(frozen=True, slots=True)
class Kill:
    """One run that was killed: after how long, and what was on record by then."""

    moment_s: float
    episodes: int
    updates: int
    differs: tuple[str, ...] = ()


@dataclass(slots=True)
class KillFigures:
    """What became of all of them. ``begun_anew``: killed before there was a run to resume."""

    kills: int = 0
    equal: bool = False
    begun_anew: int = 0
    uninterrupted_s: float = 0.0
    moments_s: list[float] = field(default_factory=list)
    episodes_on_record: list[int] = field(default_factory=list)
    updates_on_record: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def exact_run_data(run_dir: Path) -> dict[str, Any]:
    """A run file's content: a deterministic run that learns, cloning first, then reinforcement."""
    data = tiny_run_data(run_dir)
    data["deterministic"] = True
    data["engine"] = {"name": "hf", "options": {"max_batch_size": 16}}
    clone, rl = data["stages"]
    clone |= {"updates": 45, "episodes_per_update": 8, "noise": 0.3, "imitate_noise": True}
    rl |= {"iterations": 4, "group_size": 4}
    rl["credit"] = {"name": "gigpo", "options": {"invalid_action_penalty": 0.1}}
    data["evaluation"] |= {"every": 2}
    data["checkpoints"] = {"every": 2, "every_updates": 20, "keep": 2}
    return data


def contents(run_dir: Path) -> dict[str, Any]:
    """What a run came to, timings left out: weights, every sampled token, credit, the report."""
    from agentrl.evaluate.report import read_report
    from agentrl.store.sqlite import SqliteStore

    with SqliteStore(run_dir, read_only=True) as store:
        store.verify()
        trajectories = {}
        for line in store.find():
            stored = store.trajectory(line.id)
            samples = [step.sample for step in stored.trajectory.steps]
            answers = [step.action for step in stored.trajectory.steps]
            credit = stored.credit and stored.credit.step_advantages
            key = (line.id, line.purpose, line.iteration, line.trial)
            trajectories[key] = (line.task_id, stored.trajectory.seed, samples, answers, credit)
        updates = [
            (event.iteration, event.data["update"], event.data["policy_version"], metrics)
            for event in store.events("update")
            for metrics in [
                {k: v for k, v in event.data["metrics"].items() if not k.endswith("_s")}
            ]
        ]
        trained = [
            (one.iteration, one.update, one.policy_version, one.id, one.rows, one.demonstrations)
            for one in store.trained()
        ]
        points = [
            {key: value for key, value in event.data.items() if key != "wall_s"}
            for event in store.events("iteration")
        ]
        evaluations = [event.data for event in store.events("evaluation")]
        credited = [(event.iteration, event.data) for event in store.events("credit")]
    report = read_report(run_dir)
    checkpoints = sorted((run_dir / "checkpoints").iterdir())
    return {
        "weights": (run_dir / "model" / "model.safetensors").read_bytes(),
        "optimiser": (checkpoints[-1] / "learner" / "optimiser.pt").read_bytes(),
        "trajectories": trajectories,
        "updates": updates,
        "trained": trained,
        "points": points,
        "evaluations": evaluations,
        "credit events": credited,
        "before": report.before,
        "after": report.after,
        "paired": report.paired,
    }


def forked(work: Callable[[], None], log: Path, *, kill_after_s: float | None = None) -> int:
    """Do ``work`` in a child, which is killed after so long; its exit code, negative for a signal.

    Args:
        work: What it does; an exception is exit code 1.
        log: Gets what it prints.
        kill_after_s: From the fork on; ``None``: never.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.monotonic()
    child = os.fork()
    if not child:
        _child(work, log)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if kill_after_s is not None and time.monotonic() - begun >= kill_after_s:
            os.kill(child, signal.SIGKILL)
            kill_after_s = None
        time.sleep(POLL_S)


def kill_at_random(
    directory: Path,
    kills: int,
    *,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> KillFigures:
    """Kill as many runs as ``kills`` at moments spread over the run's whole wall time.

    The time that an undisturbed run takes is cut into ``kills`` equal parts, and a moment drawn
    from each. Each run is killed once, resumed to its end, and compared with the undisturbed one.

    Args:
        directory: Where the runs lie; an empty folder.
        kills: So many.
        seed: Of the moments.
        tell: Told of each run in words.
    """
    figures, rng = KillFigures(), random.Random(seed)
    _load()
    undisturbed = directory / "undisturbed"
    begun = time.monotonic()
    _must_end(forked(lambda: _train(undisturbed), directory / "log"), directory / "log")
    whole_s = time.monotonic() - begun
    figures.uninterrupted_s = round(whole_s, 2)
    expected = contents(undisturbed)
    for number in range(kills):
        run_dir = directory / f"run{number}"
        log = directory / f"log{number}"
        moment = (number + rng.random()) / kills * whole_s
        for _ in range(TRIES):
            shutil.rmtree(run_dir, ignore_errors=True)
            code = forked(lambda: _train(run_dir), log, kill_after_s=moment)  # noqa: B023
            if code == -signal.SIGKILL:
                break
            _must_end(code, log)
            moment *= 0.9  # it was faster this time, and had ended before
        else:
            figures.findings.append(f"run {number} always ended before it could be killed")
            continue
        kill, anew = _resumed(run_dir, log, moment, expected)
        figures.kills += 1
        figures.begun_anew += anew
        figures.moments_s.append(round(moment, 3))
        figures.episodes_on_record.append(kill.episodes)
        figures.updates_on_record.append(kill.updates)
        figures.findings += [f"run {number}, killed after {moment:.2f} s: {kill.differs}"] * bool(
            kill.differs
        )
        tell(f"run {number}: {kill}")
        shutil.rmtree(run_dir)
    figures.equal = figures.kills == kills and not figures.findings
    return figures


def _resumed(
    run_dir: Path, log: Path, moment: float, expected: Mapping[str, Any]
) -> tuple[Kill, bool]:
    """Go on with a killed run to its end, and compare; whether it had to begin anew."""
    episodes, updates = _on_record(run_dir)
    anew = not (run_dir / "config.yaml").exists()
    if anew:
        shutil.rmtree(run_dir, ignore_errors=True)
    _must_end(forked(lambda: (_train if anew else _resume)(run_dir), log), log)
    return Kill(moment, episodes, updates, tuple(_differences(contents(run_dir), expected))), anew


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        if found[name] != value:
            yield name


def _on_record(run_dir: Path) -> tuple[int, int]:
    from agentrl.store.sqlite import SqliteStore

    if not (run_dir / "config.yaml").exists():
        return 0, 0
    with SqliteStore(run_dir) as store:
        return store.count(), len(store.events("update"))


def _load() -> None:
    """What is loaded here need not be loaded by every child."""
    import torch

    import agentrl.engines.hf
    import agentrl.learn.trl_learner
    import agentrl.models.tiny
    import agentrl.train  # noqa: F401

    torch.set_num_threads(1)


def _child(work: Callable[[], None], log: Path) -> None:
    """Never returns."""
    code = 1
    try:
        file = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _train(run_dir: Path) -> None:
    from agentrl.config import load_config
    from agentrl.train import train

    train(load_config(exact_run_data(run_dir)), console=_console())


def _resume(run_dir: Path) -> None:
    from agentrl.train import resume

    resume(run_dir, console=_console())


def _console() -> Any:
    from rich.console import Console

    return Console(file=sys.stderr)


def _must_end(code: int, log: Path) -> None:
    if code:
        raise RuntimeError(f"a run ended with exit code {code}: {log.read_text()[-2000:]}")
