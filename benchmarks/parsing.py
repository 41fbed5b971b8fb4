"""How fast answers are read, for every dialect, and that hostile ones take no longer per character.

    python benchmarks/parsing.py [--json] [--seconds S] [--largest BYTES]

Speed is messages per second of processor time, that is per core: an answer with a thought, a
sentence and a call of three arguments, as the episode loop reads it. Growth is the time of the
slowest hostile answer of each dialect at full size over that at an eighth of it: 8 is linear, 64
quadratic.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from agentrl.agents.tool_calls import read_calls
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.choice import find_dialect
from agentrl.dialects.reading import Dialect
from agentrl.dialects.writing import format_call
from agentrl.registry import names
from agentrl.testing.hostile_text import hostile_texts

SEARCH = ToolSpec(
    "search",
    "Find documents.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer"},
            "exact": {"type": "boolean"},
        },
    },
)
OTHERS = [ToolSpec(f"tool_{number}", "Another.", {"type": "object"}) for number in range(9)]
TOOLS = [*OTHERS, SEARCH]
THOUGHT = "<think>The question asks for the founder of the town, so I look for it first.</think>\n"


def usual_answer(dialect: Dialect) -> Message:
    """What a model says in one step of a search task."""
    arguments = {"query": "founder of the town of Alma", "limit": 5, "exact": False}
    call = ToolCall("call_0", "search", arguments)
    plain = dialect.name in ("llama3", "openai")  # nothing may stand before their calls
    said = Message("assistant", "" if plain else "I search for it.", tool_calls=(call,))
    return Message("assistant", THOUGHT + format_call(dialect, said, TOOLS))


def messages_per_second(dialect: Dialect, seconds: float) -> float:
    """Answers read in ``seconds``, best of three."""
    answer = usual_answer(dialect)
    action, status = read_calls(answer, dialect, TOOLS)
    assert status == "ok", action
    assert action.tool_calls[0].arguments["limit"] == 5, action
    best = 0.0
    for _ in range(3):
        count, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds / 3:
            for _ in range(200):
                read_calls(answer, dialect, TOOLS)
            count += 200
        best = max(best, count / spent)
    return best


def seconds_for(read: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    read(text)
    return time.process_time() - start


def slowest(dialect: Dialect, size: int) -> dict[str, object]:
    """The hostile answer that takes longest at ``size`` characters, and how its time grew."""

    def read(text: str) -> object:
        return read_calls(Message("assistant", text), dialect, TOOLS)

    whole = dict(hostile_texts(dialect, size))
    eighth = dict(hostile_texts(dialect, size // 8))
    times = {name: seconds_for(read, text) for name, text in whole.items()}
    name = max(times, key=lambda one: times[one])
    # Below a millisecond a clock says nothing about growth.
    small = max(min(seconds_for(read, eighth[name]) for _ in range(3)), 1e-3)
    return {"text": name, "seconds": times[name], "growth": times[name] / small}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.5, help="per dialect")
    parser.add_argument("--largest", type=int, default=1_000_000, help="characters")
    options = parser.parse_args()
    results = []
    for name in names("dialect"):
        if name == "response":
            continue  # made of a model's tokenizer
        dialect = find_dialect(name)
        speed = messages_per_second(dialect, options.seconds)
        results.append({"dialect": name, "per_second": speed, **slowest(dialect, options.largest)})
    if options.json:
        print(json.dumps(results))
        return
    print(f"{'dialect':<14}{'messages/s':>12}{'worst 1 text':>14}{'growth x8':>11}  worst text")
    for one in results:
        print(
            f"{one['dialect']:<14}{one['per_second']:>12,.0f}{one['seconds']:>12.2f} s"
            f"{one['growth']:>11.1f}  {one['text']}"
        )


if __name__ == "__main__":
    main()
