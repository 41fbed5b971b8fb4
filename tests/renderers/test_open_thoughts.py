"""An answer that ends inside its thinking: no answer, and in the next prompt a closed thought."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.actions import ActionFormat, read_action
from agentrl.core.message import Message, ParseFailure
from agentrl.dialects.hermes import HERMES
from agentrl.models import train_tokenizer
from agentrl.renderers.chat import ChatRenderer
from agentrl.renderers.plain import PlainRenderer

ASKED = Message("user", "hello")
NEXT = Message("user", "go on")
THOUGHT = "Let me work this out"


@pytest.mark.parametrize("action_format", ["tagged", "tools"])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("template", ["qwen2_5", "qwen3", "qwen3_training", "qwen3_5_think"])
def test_the_next_prompt_closes_the_block(
    chat_tokenizer: Any,
    template_file: Callable[[str], Path],
    template: str,
    ended: bool,
    action_format: ActionFormat,
) -> None:
    renderer = ChatRenderer(chat_tokenizer, template=template_file(template), history="template")
    opening = renderer.decode(renderer.start([ASKED])).rpartition("assistant")[2]
    opened = opening.rstrip().endswith("<think>")
    text = (THOUGHT if opened else f"<think>{THOUGHT}") + ("<|im_end|>" if ended else "")
    sampled = chat_tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    parsed = renderer.parse(sampled)
    assert isinstance(parsed, ParseFailure)
    assert parsed.kind == ("unclosed_think" if ended else "truncated")
    said, action, status = read_action(parsed, action_format, HERMES, truncated=not ended)
    assert (action.content, status) == ("", parsed.kind)
    shown = renderer.decode(renderer.start([ASKED, said, NEXT])).removesuffix(opening)
    assert shown.count("<think>") == shown.count("</think>")


def test_a_tiny_model_sees_its_thought_closed() -> None:
    renderer = PlainRenderer(train_tokenizer(["Let me work this out, go on"], 300))
    parsed = renderer.parse(renderer.encode_action(Message("assistant", f"<think>{THOUGHT}")))
    said, action, status = read_action(parsed, "bare", HERMES)
    assert (action.content, status) == ("", "unclosed_think")
    shown = renderer.decode(renderer.start([ASKED, said, NEXT]))
    assert shown == f"hello<|turn|><think>{THOUGHT}</think><|end|>go on<|turn|>"
