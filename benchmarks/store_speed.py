"""How quickly a store takes trajectories and gives them back, on this disk.

    python benchmarks/store_speed.py [--json] [--directory DIR] [--trajectories N] [--steps N]

An episode has a prompt that grows by 60 ids a step, 30 sampled ids a step and an observation of
about 300 characters with 20 admissible commands: a text game with a thinking policy.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    CreditResult,
    Group,
    Observation,
    Sample,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)
from agentrl.store.connection import Synchronous
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore

GROUP_SIZE = 8


def played(group: int, trial: int, steps: int) -> Trajectory:
    """An episode of made-up ids and text."""
    made: list[Step] = []
    held: tuple[int, ...] = tuple(range(400))
    commands = tuple(f"go to cabinet {number}" for number in range(20))
    for index in range(steps):
        seen = Message("user", f"step {index}. You see a mug {trial}, a plate {group}. " * 6)
        prompt = held + tuple(range(index, index + 60))
        sampled = tuple(range(1000 + index, 1030 + index))
        answer = f"<think>The mug may be in cabinet {index}.</think><action>go</action>"
        made.append(
            Step(
                index=index,
                shown=(seen,),
                anchor=seen.content,
                prompt_ids=prompt,
                sample=Sample(sampled, (-0.123456789,) * 30, ((0, 1),), "stop"),
                action=Message("assistant", answer),
                action_key="go",
                parse_status="ok",
                result=StepResult(
                    Observation((seen,), seen.content, commands), 0.0, index == steps - 1
                ),
            )
        )
        held = prompt + sampled
    return Trajectory(
        id=f"g{group}/{trial}/0",
        group_id=f"g{group}",
        task_id=f"t{group}",
        trial=trial,
        attempt=0,
        seed=trial,
        steps=tuple(made),
        stop_reason=StopReason.TERMINATED,
        success=trial % 2 == 0,
    )


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(directory: Path, groups: list[Group], synchronous: Synchronous) -> dict[str, Any]:
    """Rates of one store over ``groups``."""
    trajectories = [one for group in groups for one in group.trajectories]
    steps = sum(len(one.steps) for one in trajectories)
    credit = CreditResult(
        [[0.5] * len(one.steps) for one in trajectories],
        parts={"episode": [[0.25] * len(one.steps) for one in trajectories]},
        groups={"anchor": [list(range(len(one.steps))) for one in trajectories]},
    )
    with SqliteStore(directory, synchronous=synchronous) as store:

        def append() -> None:
            for group in groups:
                for one in group.trajectories:
                    store.append(one, task=group.task, iteration=0, purpose="train")

        append_s = timed(append)
        credit_s = timed(lambda: store.add_credit(groups, credit))
        read_s = timed(lambda: list(store.groups()))
        wanted = TrajectoryFilter(outcome="success", advantage=(0.4, None))
        find_s = timed(lambda: store.find(wanted))
    size = (directory / "store.sqlite").stat().st_size
    return {
        "synchronous": synchronous,
        "trajectories": len(trajectories),
        "steps": steps,
        "append_steps_per_s": round(steps / append_s),
        "append_ms_per_trajectory": round(1000 * append_s / len(trajectories), 2),
        "credit_steps_per_s": round(steps / credit_s),
        "read_steps_per_s": round(steps / read_s),
        "find_ms": round(1000 * find_s, 1),
        "bytes_per_step": round(size / steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--directory", type=Path, help="where to write (default: temporary)")
    parser.add_argument("--trajectories", type=int, default=512)
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    groups = []
    for number in range(max(1, arguments.trajectories // GROUP_SIZE)):
        members = tuple(played(number, trial, arguments.steps) for trial in range(GROUP_SIZE))
        groups.append(Group(f"g{number}", Task(f"t{number}", "toy", "train"), members))
    modes: tuple[Synchronous, ...] = ("normal", "full")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        results = [measure(Path(directory) / mode, groups, mode) for mode in modes]
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        print("  ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
