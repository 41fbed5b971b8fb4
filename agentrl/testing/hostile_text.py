"""Answers meant to break or stall a parser of tool calls, of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrl.core.message import Message, ToolCall
from agentrl.dialects.reading import Dialect

__all__ = ["MARKS", "hostile_texts"]

MARKS: Sequence[str] = (
    *("<think>", "</think>", "<thinking>", "</thinking>", "[THINK]", "[/THINK]"),
    *("<tool_call>", "</tool_call>", "<action>", "</action>", "<|python_tag|>"),
    *("<function=search>", "</function>", "<parameter=q>", "</parameter>", "<function=", ">"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[", "]", "{", "}", '"', "\\", ",", ":", ";"),
    *("\nAction: search", "\nAction Input:", "\nThought:", "\nObservation:", "\nFinal Answer:"),
    *("search", ' {"q": "cat"}', '{"name": "search", "arguments": {}}', '{"tool_calls": [', "```"),
    *("\n", " ", "\x00", "\u2028", "\ud800", "\\ud800", "NaN", "1e400", "9" * 40, "\u00e9"),
)


def hostile_texts(dialect: Dialect, size: int) -> Iterator[tuple[str, str]]:
    """Texts of about ``size`` characters with a name each: repeated marks, calls and halves."""
    call = Message("assistant", "", tool_calls=(ToolCall("", "search", {"q": "cat"}),))
    whole = dialect.write(call)
    half = whole[: len(whole) // 2]
    pieces = {
        **{f"many {mark!r}": mark for mark in MARKS},
        "many calls": f"{whole}\n",
        "many halves": half,
        "calls in thoughts": f"<think>{whole}</think>",
        "thoughts and calls": f"<think>a</think>{whole}\n",
        "calls before stray ends": f"{whole}</think>",
        "spaced marks": f"{dialect.example} ",
        "label lines": "\n   \t Action  ",
        "spaces and breaks": " \n",
    }
    for name, piece in pieces.items():
        yield name, (piece * (size // len(piece) + 1))[:size]
    start = whole.partition("cat")[0]
    yield "one long argument", whole.replace("cat", "x" * size)
    yield "a long argument never closed", start + "x" * size
    yield "an argument of escapes", whole.replace("cat", "\\n" * (size // 2))
    yield "an argument of quotes never closed", start + '\\"' * (size // 2)
    yield "deep objects", start + '{"a":' * (size // 5)
    yield "a number of many digits", whole.replace('"cat"', "9" * size)
    yield "spaces after the opening", start[:12] + " " * size + start[12:]
    yield "words, then braces", "so " + "{" * size
    yield (
        "many keys",
        whole.replace("}", "".join(f', "k{n}": {n}' for n in range(size // 16)) + "}"),
    )
