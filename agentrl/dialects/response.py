"""The dialect of a model that says itself how its answers are taken apart.

Some tokenizers carry a ``response_template`` (transformers' ``parse_response``; TRL's
``add_response_schema`` adds one for the families it knows). It is another's code on the model's own
text: whatever it raises becomes a call with a problem, and the arguments it found are checked as
everywhere. What it cannot tell (a key given twice, JSON mended on the way) stays unseen, so a
dialect of its own is preferred where agentrl has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import decode_all, problem_call, refuse
from agentrl.dialects.openai import message_call
from agentrl.dialects.reading import Dialect, Reading, number_calls
from agentrl.dialects.strict_json import Unreadable, encode
from agentrl.dialects.thinking import THINK_CLOSE, THINK_OPEN, markers

__all__ = ["response_dialect"]

_THINKING = markers()
_FOREIGN = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)


def response_dialect(tokenizer: Any, *, closing: str = "") -> Dialect:
    """Read answers with the tokenizer's ``response_template``; the chat template writes them.

    Args:
        tokenizer: A tokenizer of transformers with a ``response_template``.
        closing: Text of the token that ended the answer, where the template wants to see it.

    Raises:
        ConfigError: it has none, or one that transformers refuses.
    """
    if getattr(tokenizer, "response_template", None) is None:
        raise ConfigError(
            "agent.tool_dialect: response needs a tokenizer with a response_template, and this one "
            "has none; name the dialect that the model's chat template writes, or save the "
            "tokenizer with one"
        )
    try:
        tokenizer.parse_response("", prefix="")
    except ValueError as error:
        raise ConfigError(f"the tokenizer's response_template cannot be used: {error}") from error
    return Dialect(
        "response", "as in your chat template", partial(_read, tokenizer, closing), _write
    )


def _read(tokenizer: Any, closing: str, text: str, tools: Sequence[ToolSpec]) -> Reading:
    thoughts, rest = [], text.lstrip()
    while rest.startswith(THINK_OPEN):
        thought, closed, rest = rest[len(THINK_OPEN) :].partition(THINK_CLOSE)
        thoughts.append(thought.strip())
        if not closed:
            return Reading("", (), tuple(thoughts), False)
        rest = rest.lstrip()
    if mark := _THINKING.search(rest):
        # The template may not see it as thinking, and then would act on a draft.
        problem = f"{mark[0]} stands after the beginning of the answer; think first, then act"
        return Reading("", number_calls([problem_call(problem)]), tuple(thoughts))
    specs = [_function(tool) for tool in tools]
    try:
        message = tokenizer.parse_response(rest + closing, prefix="", tools=specs or None)
        calls = [_checked(message_call(one)) for one in message.get("tool_calls") or ()]
        content = message.get("content") or ""
    except _FOREIGN as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        problem = f"the answer could not be read as the model's response template says: {what}"
        return Reading("", number_calls([problem_call(problem)]), tuple(thoughts))
    for key in ("reasoning_content", "thinking", "reasoning"):
        if isinstance(message.get(key), str):
            thoughts.append(message[key].strip())
    return Reading(str(content).strip(), number_calls(calls), tuple(thoughts))


def _function(tool: ToolSpec) -> Mapping[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _checked(call: ToolCall) -> ToolCall:
    """``call``, if its arguments are JSON that a tool may get."""
    if call.problem is not None:
        return call
    try:
        decode_all(encode(dict(call.arguments)))
    except Unreadable as problem:
        return problem_call(f"the arguments are {problem}", call.name, call.id)
    return call


def _write(message: Message) -> str:
    raise refuse("response", "only the model's chat template can write it")
