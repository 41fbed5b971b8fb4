"""Templates that take less than a conversation holds: Mistral's, SmolLM2's, broken ones."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.agents.tool_calls import read_calls
from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ParseFailure, ToolCall, ToolSpec
from agentrl.dialects.choice import choose_dialect
from agentrl.renderers.chat import ChatRenderer
from agentrl.renderers.jinja import JinjaTemplate
from agentrl.testing.chat_families import family_of, family_tokenizer, template_files
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.renderer import CHECKS

# What the templates of the Mistral family do: roles alternate where no calls stand apart, the
# instruction and the tools move to the last message of the user, ids of calls have nine characters,
# nothing opens the assistant's turn but the end of the user's.
MISTRAL = """
{%- set instruction = messages[0].content if messages[0].role == 'system' else none -%}
{%- set turns = messages[1:] if instruction is not none else messages -%}
{%- set users = turns | selectattr('role', 'equalto', 'user') | list -%}
{%- set seen = namespace(turns=0, users=0) -%}
{{- bos_token -}}
{%- for m in turns -%}
  {%- if m.role != 'tool' and not m.tool_calls -%}
    {%- if (m.role == 'user') != (seen.turns % 2 == 0) -%}
      {{- raise_exception('user and assistant must take turns') -}}
    {%- endif -%}
    {%- set seen.turns = seen.turns + 1 -%}
  {%- endif -%}
  {%- if m.role == 'user' -%}
    {%- set seen.users = seen.users + 1 -%}
    {%- if tools and seen.users == users | length -%}
      {{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' -}}
    {%- endif -%}
    {{- '[INST]' -}}
    {{- instruction + '\\n\\n' if instruction and seen.users == users | length else '' -}}
    {{- m.content + '[/INST]' -}}
  {%- elif m.role == 'assistant' -%}
    {{- m.content -}}
    {%- if m.tool_calls -%}
      {{- '[TOOL_CALLS][' -}}
      {%- for call in m.tool_calls -%}
        {{- '{"name": "' + call.function.name + '", "arguments": ' -}}
        {{- call.function.arguments | tojson + ', "id": "' + call.id + '"}' -}}
        {{- ', ' if not loop.last else '' -}}
      {%- endfor -%}
      {{- ']' -}}
    {%- endif -%}
    {{- eos_token -}}
  {%- elif m.role == 'tool' -%}
    {%- if m.tool_call_id | length != 9 -%}{{- raise_exception('ids have nine') -}}{%- endif -%}
    {{- '[TOOL_RESULTS]{"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id -}}
    {{- '"}[/TOOL_RESULTS]' -}}
  {%- else -%}
    {{- raise_exception('no such role') -}}
  {%- endif -%}
{%- endfor -%}
"""
SEARCH = ToolSpec("search", "Find.", {"type": "object", "properties": {"q": {"type": "string"}}})
TASK = [Message("system", "Be brief."), Message("user", "hello")]
CALL = '[TOOL_CALLS][{"name": "search", "arguments": {"q": "mug"}, "id": "9kZ1aB3cD"}]'


def result(content: str, call_id: str = "call_0") -> Message:
    return Message("tool", content, tool_call_id=call_id)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ChatRenderer]:
    def build(source: str, family: str = "mistral", **options: Any) -> ChatRenderer:
        file = tmp_path / "own.jinja"
        file.write_text(source)
        return ChatRenderer(family_tokenizer(family), template=file, **options)

    return build


@pytest.mark.parametrize("history", ["append", "template"])
def test_mistrals_kind_keeps_the_contract(make: Callable[..., ChatRenderer], history: str) -> None:
    assert_contract(CHECKS, make(MISTRAL, history=history))


def test_mistrals_kind_says_what_moves_and_what_is_done(make: Callable[..., ChatRenderer]) -> None:
    renderer = make(MISTRAL, history="template")
    (sentence,) = (one for one in renderer.prefix_breaks if "after a system message" in one)
    assert "moves the system message and the tools to the last user message" in sentence
    (treatment,) = renderer.treatments
    assert "nine letters and digits: other ids are replaced by a hash" in treatment
    assert "shows no results" not in treatment
    assert any("opens no turn after results of tools" in one for one in renderer.notes)
    assert any("is put together from its parts" in one for one in renderer.notes)


def test_mistrals_tools_and_instruction_stay_in_the_first_message(
    make: Callable[..., ChatRenderer],
) -> None:
    renderer = make(MISTRAL)
    start = renderer.decode(renderer.start(TASK, [SEARCH]))
    assert start.startswith("<s>[AVAILABLE_TOOLS][")
    assert start.endswith("[/AVAILABLE_TOOLS][INST]Be brief.\n\nhello[/INST]")
    assert renderer.decode(renderer.extend([Message("user", "go")], closed=False)) == (
        "</s>[INST]go[/INST]"
    )
    found = renderer.decode(renderer.extend([result('a "mug"', "9kZ1aB3cD")], closed=True))
    assert found == (
        '[TOOL_RESULTS]{"content": "a \\"mug\\"", "call_id": "9kZ1aB3cD"}[/TOOL_RESULTS]'
    )
    (call_id,) = json.loads(
        renderer.decode(renderer.extend([result("x")], closed=True))
        .removeprefix("[TOOL_RESULTS][")
        .removeprefix("[TOOL_RESULTS]")
        .removesuffix("[/TOOL_RESULTS]")
        .join(["[", "]"])
    )[0]["call_id"].split()
    assert len(call_id) == 9
    assert call_id.isalnum()


def test_mistrals_conversation_with_calls_in_its_text_is_put_together_from_its_parts(
    make: Callable[..., ChatRenderer],
) -> None:
    # The template wants calls apart and would refuse an answer after the results otherwise.
    renderer = make(MISTRAL)
    answers = [Message("assistant", CALL), Message("assistant", "it is here")]
    replies = [[result("found", "9kZ1aB3cD")], [Message("user", "thanks")]]
    ids = renderer.start(TASK, [SEARCH])
    conversation = list(TASK)
    for answer, reply in zip(answers, replies, strict=True):
        ids += [*renderer.encode_action(answer), *renderer.extend(reply, closed=True)]
        conversation += [answer, *reply]
    assert renderer.start(conversation, [SEARCH]) == ids
    dialect, _ = choose_dialect("auto", tokenizer=None, template=renderer.template_source)
    parsed = renderer.parse(renderer.encode_action(answers[0]))
    assert isinstance(parsed, Message)
    action, status = read_calls(parsed, dialect, [SEARCH])
    assert (status, action.tool_calls) == (
        "ok",
        (ToolCall("9kZ1aB3cD", "search", {"q": "mug"}),),
    )


SMOLLM2 = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_smollm2s_own_template_shows_no_tools_and_ours_does(
    make: Callable[..., ChatRenderer],
) -> None:
    with pytest.raises(ConfigError, match=r"does not show the tool 'search'.*'smollm2' comes with"):
        make(SMOLLM2, "smollm2").start(TASK, [SEARCH])
    renderer = ChatRenderer(family_tokenizer("smollm2"), template="smollm2")
    assert renderer.report.append_only
    assert renderer.report.shows_tools
    assert renderer.decode(renderer.start(TASK, [SEARCH])) == (
        "<|im_start|>system\nBe brief.\n\nThese tools can be called, one JSON description a line:\n"
        '{"name": "search", "description": "Find.", "parameters": {"type": "object", '
        '"properties": {"q": {"type": "string"}}}}\n\n'
        "To call one, write its name and its arguments as JSON between two tags:\n<tool_call>\n"
        '{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert renderer.decode(renderer.start([Message("user", "hello")])) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert renderer.decode(renderer.extend([result("a"), result("b")], closed=True)) == (
        "\n<|im_start|>tool\na<|im_end|>\n<|im_start|>tool\nb<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_call_that_our_template_writes_is_read_in_the_dialect_that_it_shows() -> None:
    tokenizer = family_tokenizer("smollm2")
    renderer = ChatRenderer(tokenizer, template="smollm2")
    dialect, _ = choose_dialect("auto", tokenizer=tokenizer, template=renderer.template_source)
    assert dialect.name == "hermes"
    calls = (ToolCall("call_0", "search", {"q": "mug"}), ToolCall("call_1", "search", {"q": "pen"}))
    for content in ("", "I search."):
        parsed = renderer.parse(
            renderer.encode_action(Message("assistant", content, tool_calls=calls))
        )
        assert isinstance(parsed, Message)
        action, status = read_calls(parsed, dialect, [SEARCH])
        assert (status, action.content, action.tool_calls) == ("ok", content, calls)


def test_glm_ends_an_answer_with_the_token_that_opens_the_next_turn() -> None:
    tokenizer = family_tokenizer("glm4moe")
    renderer = ChatRenderer(tokenizer, template=template_files()["glm4moe"])
    ids = tokenizer.convert_tokens_to_ids(["<|user|>", "<|observation|>", "<|endoftext|>"])
    assert list(renderer.stop_token_ids) == ids
    for message, opening in ((Message("user", "x"), "<|user|>"), (result("x"), "<|observation|>")):
        closed, cut = (renderer.extend([message], closed=one) for one in (True, False))
        assert cut[1:] == closed
        assert renderer.decode(cut[:1]) == opening
        assert opening not in renderer.decode(closed)
    call = "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
    assert renderer.encode_action(Message("assistant", call))[-1] == ids[1]
    assert renderer.encode_action(Message("assistant", "done"))[-1] == ids[0]


def test_every_prompt_begins_a_thought_or_none_does() -> None:
    # The template writes <think> after a user's message and nothing after a tool's result: whether
    # an answer begins inside a thought could not be told, so results are shown as the user's.
    renderer = ChatRenderer(family_tokenizer("deepseekv3"), template=template_files()["deepseekv3"])
    opening = "<｜User｜>x<｜Assistant｜><think>\n"
    for message in (Message("user", "x"), result("x")):
        assert renderer.decode(renderer.extend([message], closed=True)) == opening
    (treatment,) = renderer.treatments
    assert "begins a thought after a user's message and none after results of tools" in treatment
    stop = renderer.stop_token_ids[0]
    ids = family_tokenizer("deepseekv3").encode("<action>go", add_special_tokens=False)
    unclosed = renderer.parse([*ids, stop])
    assert isinstance(unclosed, ParseFailure)
    assert unclosed.kind == "unclosed_think"


DATED = (
    "{% for m in messages %}{% if loop.first %}<|im_start|>system\nToday is "
    "{{ strftime_now('%d %B %Y') }}.<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_date_is_taken_once_and_can_be_kept(
    make: Callable[..., ChatRenderer], tmp_path: Path
) -> None:
    for date in ("2026-01-31", datetime.date(2026, 1, 31)):
        renderer = make(DATED, "qwen", date=date)
        assert "Today is 31 January 2026." in renderer.decode(renderer.start(TASK))
        assert "date (2026-01-31): it is taken once" in renderer.notes[-1].replace(
            "a date into the prompt ", "date "
        )
    days = iter([datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)])
    file = tmp_path / "own.jinja"
    template = JinjaTemplate(family_tokenizer("qwen"), template=file, today=lambda: next(days))
    first, second = (
        template.render([{"role": "user", "content": "x"}], opening=True) for _ in range(2)
    )
    assert first == second
    with pytest.raises(ConfigError, match=r"date='yesterday' is no day; expected one such as"):
        make(DATED, "qwen", date="yesterday")


def test_a_token_written_twice_is_said(make: Callable[..., ChatRenderer]) -> None:
    turn = "{{ bos_token }}[INST]{{ m.content }}[/INST]"
    answer = "{{ m.content }}{{ eos_token }}"
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}A{% else %}U{% endif %}{% endfor %}"
    )
    twice = make("{{ bos_token }}" + source.replace("A", answer).replace("U", turn))
    assert any("repeats the BOS token <s> at the beginning" in one for one in twice.notes)
    assert any("repeats the BOS token <s> in every turn" in one for one in twice.notes)
    closed = make(
        source.replace("A", answer + "{{ eos_token }}").replace("U", "[INST]{{ m.content }}[/INST]")
    )
    assert any("repeats </s> after an answer" in one for one in closed.notes)
    assert any("writes no BOS token (<s>): none is added" in one for one in closed.notes)
    # One that closes earlier answers twice changes what was said.
    later = "{{ m.content }}{{ eos_token }}{% if not loop.last %}{{ eos_token }}{% endif %}"
    grows = make(source.replace("A", later).replace("U", "[INST]{{ m.content }}[/INST]"))
    assert any("repeats </s> after an answer" in one for one in grows.notes)


def test_what_a_template_cannot_do_is_said_with_what_to_do(
    make: Callable[..., ChatRenderer], tmp_path: Path
) -> None:
    chatml = SMOLLM2.replace("loop.first and m.role != 'system'", "false")
    for source, message in (
        (
            "{{ raise_exception('never') }}",
            r"roles \(user\): never; give agent.renderer.options.te",
        ),
        (
            "{% for m in messages %}{{ m.nothing.at_all }}{% endfor %}",
            r"roles \(user\): .*undefined|no",
        ),
        ("{% for m in", r"own.jinja' cannot render .*: "),
        ("hello", "does not show what a user says"),
        (
            chatml.replace("{{ m.content }}", "{{ m.content if m.role == 'user' }}"),
            "assistant said",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            make(source, "qwen")
    with pytest.raises(ConfigError, match=r"smolm2'; did you mean 'smollm2'\?; with agentrl"):
        ChatRenderer(family_tokenizer("qwen"), template="smolm2")
    with pytest.raises(ConfigError, match=r"no chat template of its own; .*agentrl \(smollm2\)"):
        ChatRenderer(family_tokenizer("qwen"))
    with pytest.raises(ConfigError, match="no family of 'bloom' is known"):
        family_of("bloom")


def test_a_role_that_a_template_does_not_know_is_named(make: Callable[..., ChatRenderer]) -> None:
    # No tools known: their results are shown as the user's. A second answer in a row is refused.
    renderer = make(MISTRAL)
    two = [Message("user", "a"), Message("assistant", "b")]
    twice = [*two, Message("assistant", "c"), Message("assistant", "d")]
    assert "c" in renderer.decode(renderer.start(twice))  # put together from its parts
    first = [Message("assistant", "b"), Message("user", "a")]
    with pytest.raises(ConfigError, match=r"\(assistant, user\): user and assistant must take tur"):
        renderer.start(first)


def test_a_tokenizer_with_several_templates_is_asked_for_one_by_name() -> None:
    tokenizer = copy.deepcopy(family_tokenizer("qwen"))
    qwen = template_files()["qwen2_5"].read_text(encoding="utf-8")
    tokenizer.chat_template = {"tool_use": qwen, "rag": SMOLLM2}
    with pytest.raises(ConfigError, match=r"several chat templates \(tool_use, rag\) and none"):
        ChatRenderer(tokenizer)
    assert ChatRenderer(tokenizer, template="tool_use").report.shows_tools
    with pytest.raises(ConfigError, match=r"'tool_us'; did you .*\?.*the tokenizer has: tool_use"):
        ChatRenderer(tokenizer, template="tool_us")
    tokenizer.chat_template = {"tool_use": qwen, "default": SMOLLM2}
    assert not ChatRenderer(tokenizer).report.shows_tools
