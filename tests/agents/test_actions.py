"""Commands out of answers, and everything an answer can get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.agents.actions import ActionFormat, format_action, parse_action
from agentrl.core.message import Message, ParseFailure, ToolCall


def said(text: str, reasoning: str | None = None) -> Message:
    return Message("assistant", text, reasoning=reasoning)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("<think>near</think><action>take mug</action>", "take mug"),
        ("<action> take mug\n</action>", "take mug"),
        ("<think>I could <action>drop mug</action></think><action>take mug</action>", "take mug"),
        ("<action>look</action> no: <action>take mug</action>", "take mug"),
        ("<action>take mug</action><think><action>drop mug</action></think>", "take mug"),
        ("<action>take mug</action> then <action>dro", "take mug"),
        ("<action>look <action>take mug</action>", "take mug"),
        ("<action>take mug</action> or so</action>", "take mug"),
        ("</action><action>take mug</action>", "take mug"),
        ("drafted: <action>drop mug</action></think><action>take mug</action>", "take mug"),
        ("<think>a</think><think>b</think>ok <action>take mug</action> done", "take mug"),
    ],
)
def test_the_last_complete_action_outside_thinking_counts(text: str, command: str) -> None:
    action = parse_action(said(text), "tagged")
    assert isinstance(action, Message)
    assert action.content == command


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "no_action"),
        ("take mug", "no_action"),
        ("take mug</action>", "no_action"),
        ("<think>I could <action>drop mug</action></think>", "no_action"),
        ("<think>so</think> drop </think> ok", "no_action"),
        ("</action>x<action>", "unclosed_action"),
        ("<action>take mu", "unclosed_action"),
        ("<think>a</think><action>take <think>b</think>mug", "unclosed_action"),
        ("<action>take <think>which?</think>mug</action>", "unclosed_action"),
        ("<action></action>", "empty_action"),
        ("<action>take mug</action><action> \n </action>", "empty_action"),
        ("<think>Let me work this out", "unclosed_think"),
        ("<think>a</think><think>b <action>take mug</action>", "unclosed_think"),
        ("<action>take mug</action><think>or", "unclosed_think"),
    ],
)
def test_what_is_no_action_says_which_kind_of_fault_it_is(text: str, kind: str) -> None:
    failure = parse_action(said(text), "tagged")
    assert isinstance(failure, ParseFailure)
    assert (failure.kind, failure.content) == (kind, text)


@pytest.mark.parametrize("action_format", ["bare", "tagged"])
@pytest.mark.parametrize("text", ["take mug", "<action>take mug</action>", "<action>tak", ""])
def test_a_truncated_answer_is_never_executed(action_format: ActionFormat, text: str) -> None:
    failure = parse_action(said(text), action_format, truncated=True)
    assert isinstance(failure, ParseFailure)
    assert failure.kind == "truncated"


def test_bare_is_the_whole_answer() -> None:
    assert parse_action(said("  go to desk 1\n"), "bare") == said("go to desk 1")
    assert parse_action(said("go", reasoning="near"), "bare") == said("go", reasoning="near")
    assert parse_action(said("<action>go</action>"), "bare") == said("<action>go</action>")
    for empty in ("", " \n\t"):
        failure = parse_action(said(empty), "bare")
        assert isinstance(failure, ParseFailure)
        assert failure.kind == "empty_action"


def test_all_thinking_is_kept_as_reasoning_and_calls_stay() -> None:
    call = ToolCall("1", "search", {"q": "cat"})
    message = Message("assistant", "<think>b</think><action>go</action>", "a", (call,))
    assert parse_action(message, "tagged") == Message("assistant", "go", "a\nb", (call,))


pieces = st.sampled_from(["<think>", "</think>", "<action>", "</action>", "<", ">", "go ", "\n"])
texts = st.text() | st.lists(pieces, max_size=12).map("".join)


@given(texts, st.sampled_from(["bare", "tagged"]), st.booleans(), st.none() | st.text())
def test_any_text_gives_a_command_or_a_failure(
    text: str, action_format: ActionFormat, truncated: bool, reasoning: str | None
) -> None:
    result = parse_action(said(text, reasoning), action_format, truncated=truncated)
    if isinstance(result, ParseFailure):
        assert result.kind
        assert result.message
        assert result.content == text
    else:
        assert result.content
        assert result.content == result.content.strip()
        assert result.content in text
        assert not truncated


commands = st.text(min_size=1).filter(lambda text: text == text.strip() and "<" not in text)


@given(commands, st.sampled_from(["bare", "tagged"]), st.none() | st.text())
def test_what_format_action_writes_is_read_back(
    command: str, action_format: ActionFormat, reasoning: str | None
) -> None:
    message = format_action(command, action_format, reasoning=reasoning)
    assert parse_action(message, action_format) == said(command, reasoning)
