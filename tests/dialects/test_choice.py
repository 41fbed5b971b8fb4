"""Which dialect a run speaks: named, seen in its chat template, or asked for in words."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, DataError, UnknownPluginError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.action import ACTION
from agentrl.dialects.choice import choose_dialect, detect, find_dialect
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect
from agentrl.dialects.writing import format_call
from agentrl.registry import names

# What the model families whose templates the trl package carries really write.
SPOKEN = {
    "glm": ["glm4moe"],
    "hermes": ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_training", "qwen3_vl"],
    "llama3": ["llama3_1", "llama3_2"],
    "xml": ["nemotron_3_nano", "qwen3_5_think", "qwen3_6", "qwen3_8"],
}
NONE = ["cohere2", "deepseekv3", "gemma4", "gptoss", "lfm2", "llama3", "phi3", "smolvlm"]


def template(name: str) -> str:
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


@pytest.mark.parametrize(("dialect", "families"), SPOKEN.items())
def test_the_dialect_is_seen_in_a_familys_own_template(dialect: str, families: list[str]) -> None:
    for family in families:
        found, why = choose_dialect("auto", tokenizer=None, template=template(family))
        assert found is find_dialect(dialect)
        assert "the chat template writes calls with " in why


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("{{ '[TOOL_CALLS] [' }}", "mistral"),
        ("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", "mistral_args"),
    ],
)
def test_mistrals_old_and_new_form_are_told_apart(text: str, dialect: str) -> None:
    found = detect(text)
    assert found is not None
    assert found[0] == dialect


@pytest.mark.parametrize("family", NONE)
def test_other_templates_are_not_guessed_at(family: str) -> None:
    with pytest.raises(ConfigError, match="finds no dialect") as raised:
        choose_dialect("auto", tokenizer=None, template=template(family))
    for name in names("dialect"):
        assert name in str(raised.value)


def test_without_a_template_the_renderers_own_dialect_counts() -> None:
    assert choose_dialect("auto", tokenizer=None, template=None, written=ACTION)[0] is ACTION
    assert choose_dialect("action", tokenizer=None, template=None, written=ACTION)[0] is ACTION
    with pytest.raises(ConfigError, match=r"renderer writes \(action\): set agent\.renderer"):
        choose_dialect("hermes", tokenizer=None, template=None, written=ACTION)
    with pytest.raises(ConfigError, match="it has none"):
        choose_dialect("auto", tokenizer=None, template=None)


def test_a_named_dialect_wins_over_the_template() -> None:
    found, why = choose_dialect("xml", tokenizer=None, template=template("qwen3"))
    assert (found.name, why) == ("xml", "as the run file says")


def shout(tokenizer: Any) -> Dialect:
    """A dialect made of a tokenizer, as a plug-in may be."""
    return Dialect(f"shout {tokenizer}", "!", HERMES.read, HERMES.write)


def test_a_dialect_is_a_name_a_path_a_function_or_an_object() -> None:
    assert find_dialect("hermes") is find_dialect("agentrl.dialects.hermes:HERMES") is HERMES
    assert find_dialect(HERMES) is HERMES
    assert find_dialect(shout, tokenizer="t").name == "shout t"
    with pytest.raises(UnknownPluginError, match="did you mean 'mistral'"):
        find_dialect("mistrall")
    with pytest.raises(ConfigError, match=r"must be an agentrl\.dialects\.reading\.Dialect"):
        find_dialect("json:JSONDecodeError.__doc__")


TOOLS = [ToolSpec("f", "", {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}})]


def asking(content: str = "", odd: dict[str, object] | None = None, **named: object) -> Message:
    call = ToolCall("a", "f", {**(odd or {}), **named})
    return Message("assistant", content, tool_calls=(call,))


@pytest.mark.parametrize(
    ("name", "message", "why"),
    [
        ("xml", asking(s="a</parameter>b"), "a value holds '</parameter>'"),
        ("glm", asking(s="a</arg_value>b"), "a value holds '</arg_value>'"),
        ("xml", asking("", {"a b": 1}), "cannot be written as a name"),
        ("xml", asking(n="7"), "would be read as other calls"),
        ("hermes", asking("<think>x</think>"), "its content would be read as ''"),
        ("hermes", asking("<tool_call>"), "its content would be read as"),
        ("hermes", Message("assistant", "so</think>"), "its content would be read as"),
        ("llama3", Message("assistant", '{"name": "f"}'), "its content would be read as"),
        ("react", asking("Final Answer: 9"), "its content would be read as"),
        ("action", asking(s="\ud800"), "would be read as other calls"),
        (
            "mistral",
            Message("assistant", "", tool_calls=(ToolCall("", "f", {}, "invalid JSON"),)),
            "has a problem: invalid JSON",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(name: str, message: Message, why: str) -> None:
    with pytest.raises(DataError) as raised:
        format_call(find_dialect(name), message, TOOLS)
    assert why in str(raised.value)
    assert f"the dialect '{name}' cannot say this message" in str(raised.value)


def test_without_schemas_untyped_arguments_are_compared_by_name() -> None:
    xml = find_dialect("xml")
    assert "\n7\n" in format_call(xml, asking(n=7, s="x"))
    assert "\n7\n" in format_call(xml, asking(n=7, s="x"), TOOLS)
