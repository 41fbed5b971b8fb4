"""How long the next prompt takes: only what is new, against the whole conversation each step.

    python benchmarks/rendering.py [--json] [--rounds N] [--steps 1 5 10 30 100]

The next prompt is what the episode loop makes: last prompt, sampled ids, ``extend`` of the new
messages. The whole is ``apply_chat_template`` of transformers on all messages so far, tokenised, as
a server makes it each step. Both get the same messages on the same tokenizer, turn by turn in one
process; times are medians of processor time. Tokenizers are small ones with the families' own
control tokens, templates the families' own. No text occurs twice, so no cache of words helps one
side more than a real episode would.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentrl.core.message import Message
from agentrl.renderers.chat import ChatRenderer
from agentrl.renderers.jinja import shipped_templates
from agentrl.testing.chat_families import family_tokenizer, template_files

FAMILIES = ("qwen2_5", "qwen3", "qwen3_5_think", "llama3_1", "gemma3", "smollm2")
TARGET = 20.0
TARGET_STEPS = 30


def answer(number: int) -> Message:
    thought = f"Room {number} held nothing that I could use, so I go on to the next one, {number}b."
    return Message("assistant", f"I go to desk {number}.", reasoning=thought)


def observation(number: int, role: Any = "tool") -> Message:
    shown = f"You arrive at desk {number}. On desk {number} you see a mug {number}, a pencil "
    text = f"{shown}{number + 1} and a book {number + 2}. The drawer {number + 3} is closed. " * 2
    return Message(role, text, tool_call_id="call_0" if role == "tool" else None)


def as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    dicts = []
    for message in messages:
        one = {"role": message.role, "content": message.content}
        if message.reasoning is not None:
            one["reasoning_content"] = message.reasoning
        dicts.append(one)
    return dicts


def seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def measure(family: str, file: Path, steps: int, rounds: int) -> dict[str, Any]:
    """Median time of the prompt after ``steps`` steps, either way."""
    tokenizer = family_tokenizer(family)
    renderer = ChatRenderer(tokenizer, template=file, date="2026-01-31")
    role = "tool" if not renderer.treatments else "user"
    appended, whole, tokens = [], [], 0
    for number in range(rounds):
        first = number * (steps + 1) + 1000  # texts of this round alone
        messages = [Message("system", "Be brief."), Message("user", f"Find mug {first}.")]
        held = renderer.start(messages)
        for step in range(first, first + steps):
            messages.append(answer(step))
            held += renderer.encode_action(messages[-1])
            if step < first + steps - 1:
                messages.append(observation(step, role))
                held += renderer.extend(messages[-1:], closed=True)
        newest = observation(first + steps, role)
        dicts = as_dicts([*messages, newest])

        def next_prompt(held: list[int] = held, newest: Message = newest) -> list[int]:
            return [*held, *renderer.extend([newest], closed=True)]

        def whole_prompt(dicts: list[dict[str, str]] = dicts) -> Any:
            return tokenizer.apply_chat_template(
                dicts,
                chat_template=renderer.template_source,
                add_generation_prompt=True,
                return_dict=False,
            )

        appended.append(seconds(next_prompt))
        whole.append(seconds(whole_prompt))
        tokens = len(next_prompt())
    one, other = statistics.median(appended), statistics.median(whole)
    return {
        "family": family,
        "steps": steps,
        "prompt_tokens": tokens,
        "append_us": one * 1e6,
        "whole_us": other * 1e6,
        "ratio": other / one,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=15, help="conversations of each length")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5, 10, 30, 100])
    options = parser.parse_args()
    files = {**template_files(), **shipped_templates()}
    results = [
        measure(family, files[family], steps, options.rounds)
        for family in FAMILIES
        for steps in options.steps
    ]
    asked = [one["ratio"] for one in results if one["steps"] == TARGET_STEPS]
    summary = {"target": TARGET, "at_steps": TARGET_STEPS, "least_ratio": min(asked, default=None)}
    if options.json:
        print(json.dumps({**summary, "results": results}, indent=1))
        return
    print(
        f"{'family':16} {'steps':>5} {'tokens':>7} {'append us':>10} {'whole us':>10} {'ratio':>7}"
    )
    for one in results:
        print(
            f"{one['family']:16} {one['steps']:5} {one['prompt_tokens']:7} "
            f"{one['append_us']:10.0f} {one['whole_us']:10.0f} {one['ratio']:6.1f}x"
        )
    if asked:
        print(f"least at {TARGET_STEPS} steps: {min(asked):.1f}x (target {TARGET:g}x)")


_Raw = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
