"""Marks of calls that are tokens of their own survive decoding, and nobody else can write them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.tool_calls import read_calls
from agentrl.core.message import Message, ParseFailure, ToolCall, ToolSpec
from agentrl.dialects.choice import choose_dialect
from agentrl.renderers.chat import ChatRenderer

CHATML = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|my_call|>")
CALL = ToolCall("call_0", "search", {"q": "desk 1", "n": 2})
SEARCH = ToolSpec(
    "search", "Find.", {"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}
)


@pytest.fixture(scope="module")
def tokenizer(chat_tokenizer: Any) -> Any:
    own = copy.deepcopy(chat_tokenizer)
    own.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    return own


@pytest.fixture(scope="module")
def make(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ChatRenderer]:
    file = tmp_path_factory.mktemp("chatml") / "chatml.jinja"
    file.write_text(CHATML)
    return lambda **options: ChatRenderer(tokenizer, template=file, **options)


def ids(tokenizer: Any, text: str) -> list[int]:
    """As a model samples them: marks are their own tokens."""
    found: list[int] = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return found


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("[TOOL_CALLS]", '[TOOL_CALLS][{"name": "search", "arguments": {}}]'),
        ("[ARGS]", "[TOOL_CALLS]search[ARGS]{}"),
        ("<|python_tag|>", '<|python_tag|>{"name": "search", "parameters": {}}'),
        ("<tool_call>", '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'),
    ],
)
def test_a_mark_that_is_a_token_survives_decoding(
    make: Callable[..., ChatRenderer], tokenizer: Any, mark: str, text: str
) -> None:
    sampled = ids(tokenizer, f"{text}<|im_end|>")
    assert tokenizer.convert_tokens_to_ids(mark) in sampled
    assert make().parse(sampled) == Message("assistant", text)


def test_other_control_tokens_still_end_the_reading(
    make: Callable[..., ChatRenderer], tokenizer: Any
) -> None:
    for text in ("[TOOL_CALLS]<|im_start|>user", "<|my_call|>search"):
        failure = make().parse(ids(tokenizer, f"{text}<|im_end|>"))
        assert isinstance(failure, ParseFailure)
        assert failure.kind == "control_token"
    own = make(call_tokens=["<|my_call|>"])
    sampled = ids(tokenizer, "<|my_call|>search<|im_end|>")
    assert own.parse(sampled) == Message("assistant", "<|my_call|>search")


@pytest.mark.parametrize("mark", ["[TOOL_CALLS]", "<tool_call>", "<|python_tag|>"])
def test_only_the_assistant_writes_marks(
    make: Callable[..., ChatRenderer], tokenizer: Any, mark: str
) -> None:
    token = tokenizer.convert_tokens_to_ids(mark)
    text = f"ok {mark} go"

    def count(messages: list[Message], tools: list[ToolSpec] | None = None) -> int:
        return make().start(messages, tools or []).count(token)

    asked = Message("user", "go")
    assert count([Message("user", text)]) == count([asked, Message("tool", text)]) == 0
    assert count([asked], [ToolSpec("search", text, {"properties": {mark: {}}})]) == 0
    assert count([asked, Message("assistant", text)]) == 1
    assert make().extend([Message("tool", text)], closed=True).count(token) == 0
    assert text in make().decode(make().start([Message("user", text)]))


@pytest.mark.parametrize(
    "template", ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_think", "qwen3_6"]
)
def test_calls_that_a_familys_template_writes_are_read_in_the_dialect_it_shows(
    chat_tokenizer: Any, template_file: Callable[[str], Path], template: str
) -> None:
    renderer = ChatRenderer(chat_tokenizer, template=template_file(template))
    dialect, _ = choose_dialect("auto", tokenizer=chat_tokenizer, template=renderer.template_source)
    for content in ("", "I search."):
        said = Message("assistant", content, tool_calls=(CALL,))
        parsed = renderer.parse(renderer.encode_action(said))
        assert isinstance(parsed, Message)
        action, status = read_calls(parsed, dialect, [SEARCH])
        assert status == "ok"
        assert (action.content, action.tool_calls) == (content, (CALL,))
