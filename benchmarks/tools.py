"""What a call of a tool costs beside the tool itself, and reading the schemas of many tools.

    python benchmarks/tools.py [--json] [--calls N]

Times are medians of several rounds. The first schema of a process is apart: it loads pydantic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

from agentrl.core.message import ToolCall
from agentrl.core.task import Task
from agentrl.tools import OpenTools, Toolbox, definitions_of, tool

ROUNDS = 7
TOOLS = 100


@tool(read_only=True)
async def awaited(value: float, to: Literal["m", "ft"] = "m") -> str:
    """Answer at once.

    Args:
        value: A number.
        to: A unit.
    """
    return "x"


@tool(read_only=True)
def in_thread(value: float, to: Literal["m", "ft"] = "m") -> str:
    """Answer at once.

    Args:
        value: A number.
        to: A unit.
    """
    return "x"


@tool(read_only=True, quick=True)
def quick(value: float, to: Literal["m", "ft"] = "m") -> str:
    """Answer at once.

    Args:
        value: A number.
        to: A unit.
    """
    return "x"


def many(count: int, seed: int) -> list[type]:
    """Classes of tools with four parameters each, of types that no two tools share."""
    made = []
    for number in range(count):
        names = {f"u{seed}_{number}_{k}" for k in range(3)}
        unit = Literal[tuple(sorted(names))]  # type: ignore[valid-type]

        async def call(
            self: Any, value: Any, to: Any = None, ids: Any = (), on: Any = False
        ) -> str:
            return ""

        call.__annotations__ = {
            "value": float,
            "to": unit | None,
            "ids": list[int],
            "on": bool,
            "return": str,
        }
        text = "Do it.\n\nArgs:\n    value: How much.\n    to: Unit.\n    ids: Which.\n    on: If."
        made.append(type(f"Tool{seed}x{number}", (), {"__doc__": text, "__call__": call}))
    return made


def median_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def dispatch_ms(calls: int) -> dict[str, float]:
    """Milliseconds a call, alone in its message and eight in one."""
    toolbox = Toolbox([awaited, in_thread, quick])
    measured: dict[str, float] = {}

    async def rounds(tools: OpenTools, name: str, size: int) -> float:
        message = [ToolCall(str(k), name, {"value": "3", "to": "ft"}) for k in range(size)]
        taken = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(calls // size):
                await tools.answer(message)
            taken.append((time.perf_counter() - started) / (calls // size * size))
        return 1000 * statistics.median(taken)

    async def main() -> None:
        async with toolbox.open(Task("t", "benchmark", "train"), seed=0) as tools:
            for name in ("awaited", "in_thread", "quick"):
                measured[name] = await rounds(tools, name, 1)
                measured[f"{name}, 8 in a message"] = await rounds(tools, name, 8)

    asyncio.run(main())
    return measured


def schema_ms() -> dict[str, float]:
    """Milliseconds for the schemas of 100 tools of four parameters."""
    definitions_of(many(1, seed=-1)[0])  # pydantic is loaded
    fresh = iter([many(TOOLS, seed) for seed in range(ROUNDS)])
    same = many(TOOLS, seed=ROUNDS)
    return {
        "types of their own": 1000 * median_s(lambda: [definitions_of(one) for one in next(fresh)]),
        "types seen before": 1000 * median_s(lambda: [definitions_of(one) for one in same]),
    }


def open_ms() -> float:
    """Milliseconds to open and close the tools of an episode: ten classes."""
    toolbox = Toolbox(many(10, seed=999))
    task = Task("t", "benchmark", "train")

    async def main() -> float:
        started = time.perf_counter()
        for _ in range(200):
            async with toolbox.open(task, seed=0):
                pass
        return (time.perf_counter() - started) / 200

    return 1000 * asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--calls", type=int, default=2000, help="calls a round")
    arguments = parser.parse_args()
    measured = {
        "dispatch_ms_per_call": dispatch_ms(arguments.calls),
        f"schemas_of_{TOOLS}_tools_ms": schema_ms(),
        "open_and_close_10_tools_ms": open_ms(),
    }
    if arguments.json:
        print(json.dumps(measured, indent=2))
        return
    for name, value in measured.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            print(f"{name + ': ' + part if part else name:<55} {number:8.3f}")


if __name__ == "__main__":
    main()
