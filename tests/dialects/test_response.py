"""Models that say themselves how their answers are taken apart: a tokenizer's response template."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.tool_calls import read_calls
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.choice import choose_dialect, find_dialect
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect
from agentrl.dialects.response import response_dialect
from agentrl.dialects.writing import format_call
from agentrl.testing.hostile_text import MARKS, hostile_texts
from agentrl.testing.tiny_tokenizers import tiny_tokenizer

TOOLS = [
    ToolSpec("ls", "List.", {"properties": {"p": {"type": "string"}, "n": {"type": "integer"}}})
]
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "x", "n": 3}}\n</tool_call>'
# A family that agentrl has no dialect of: calls as Python in marks of its own.
LFM = "<|tool_call_start|>[ls(p='x', n=3)]<|tool_call_end|>"


def with_template(family: str) -> Any:
    """A tokenizer with the response template that TRL adds for a family's chat template."""
    from trl.chat_template_utils import add_response_schema

    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    tokenizer = tiny_tokenizer()
    folder = Path(spec.origin).parent / "chat_templates"
    tokenizer.chat_template = (folder / f"{family}.jinja").read_text()
    return add_response_schema(tokenizer)


@pytest.fixture(scope="module")
def qwen() -> Dialect:
    return find_dialect("response", tokenizer=with_template("qwen3"))


@pytest.fixture(scope="module")
def lfm() -> Any:
    return with_template("lfm2_2_5")


def read(text: str, dialect: Dialect) -> tuple[Message, str]:
    return read_calls(Message("assistant", text), dialect, TOOLS)


def test_calls_are_read_as_the_models_own_template_says(qwen: Dialect) -> None:
    action, status = read(f"<think>look</think>I list.{CALL}", qwen)
    call = ToolCall("call_0", "ls", {"p": "x", "n": 3})
    assert (action, status) == (Message("assistant", "I list.", "look", (call,)), "ok")
    assert read("The cat is nine.", qwen) == (Message("assistant", "The cat is nine."), "ok")
    assert read("", qwen)[1] == "empty_action"


def test_a_family_without_a_dialect_of_its_own_is_read_too(lfm: Any) -> None:
    dialect, why = choose_dialect("auto", tokenizer=lfm, template=lfm.chat_template)
    assert (dialect.name, why) == ("response", "the tokenizer's response_template")
    action, status = read(LFM, dialect)
    assert status == "ok"
    assert [(one.name, dict(one.arguments)) for one in action.tool_calls] == [
        ("ls", {"p": "x", "n": 3})
    ]


def test_types_come_from_the_tools_schema() -> None:
    dialect = find_dialect("response", tokenizer=with_template("qwen3_5_think"))
    text = (
        "<tool_call>\n<function=ls>\n<parameter=p>\n75001\n</parameter>\n<parameter=n>\n3\n"
        "</parameter>\n</function>\n</tool_call>"
    )
    action, _ = read(text, dialect)
    assert dict(action.tool_calls[0].arguments) == {"p": "75001", "n": 3}


def test_agentrls_own_dialect_is_preferred() -> None:
    tokenizer = with_template("qwen3")
    assert (
        choose_dialect("auto", tokenizer=tokenizer, template=tokenizer.chat_template)[0] is HERMES
    )
    asked, _ = choose_dialect("response", tokenizer=tokenizer, template=tokenizer.chat_template)
    assert asked.name == "response"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"ls","arguments":{"p":"x",}}</tool_call>',
        '<tool_call>{"name":"ls","arguments":{"n":NaN}}</tool_call>',
        '<tool_call>{"name":"ls","arguments":{"n":1e400}}</tool_call>',
        '<tool_call>{"name":"ls","arguments":{"p":"\\ud800"}}</tool_call>',
        '<tool_call>{"name":"ls","arguments":[]}</tool_call>',
        '<tool_call>{"name":"ls","arguments":7}</tool_call>',
        '<tool_call>{"arguments":{}}</tool_call>',
        "<tool_call>5</tool_call>",
        '<tool_call>{"name":"ls","arguments":' + '{"p":' * 200 + "1" + "}" * 200 + "}</tool_call>",
        f"maybe {CALL}</think>{CALL}",
        f"{CALL}<think>or not",
    ],
)
def test_whatever_it_raises_or_lets_through_is_a_call_that_cannot_be_run(
    qwen: Dialect, text: str
) -> None:
    action, status = read(text, qwen)
    assert status == "parse_error"
    assert [call.problem is None for call in action.tool_calls] == [False]


def test_thinking_is_never_executed(qwen: Dialect) -> None:
    action, status = read(f"<think>{CALL}</think>no", qwen)
    assert (action.tool_calls, action.content, status) == ((), "no", "ok")
    assert read(f"<think>so {CALL}", qwen)[1] == "unclosed_think"


def test_hostile_text_is_read(qwen: Dialect, lfm: Any) -> None:
    for dialect in (qwen, find_dialect("response", tokenizer=lfm)):
        for name, text in hostile_texts(HERMES, 2000):
            assert read(text, dialect)[1], name
        for mark in MARKS:
            assert read(f"{CALL[:20]}{mark}{CALL[20:]}{mark}", dialect)[1]


def test_only_the_chat_template_writes_it(qwen: Dialect) -> None:
    with pytest.raises(DataError, match="only the model's chat template can write it"):
        format_call(qwen, Message("assistant", "x"))


def test_a_tokenizer_without_or_with_a_broken_template_is_refused() -> None:
    with pytest.raises(ConfigError, match="this one has none"):
        response_dialect(tiny_tokenizer())
    broken = tiny_tokenizer()
    broken.response_template = {"version": 1}
    with pytest.raises(ConfigError, match="response_template cannot be used"):
        response_dialect(broken)
