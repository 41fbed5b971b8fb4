"""Calls out of answers, in every dialect, and everything an answer can get wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agentrl.agents.actions import ActionFormat, action_key, read_action, write_action
from agentrl.agents.tool_calls import failed_call, read_calls
from agentrl.core.message import Message, ParseFailure, ToolCall, ToolSpec
from agentrl.dialects.choice import find_dialect
from agentrl.dialects.reading import Dialect
from agentrl.dialects.writing import format_call
from agentrl.registry import names

DIALECTS = [find_dialect(name) for name in names("dialect") if name != "response"]
MARKED = [one for one in DIALECTS if one.name not in ("llama3", "openai")]
TYPED = [one for one in DIALECTS if not one.untyped]
TOOLS = [ToolSpec("ls", "List.", {"type": "object", "properties": {"p": {"type": "string"}}})]

# A call of ``ls`` whose arguments are written as given, in every dialect that writes JSON.
RAW: dict[str, Callable[[str], str]] = {
    "hermes": lambda raw: f'<tool_call>{{"name":"ls","arguments":{raw}}}</tool_call>',
    "action": lambda raw: f"<action>ls {raw}</action>",
    "llama3": lambda raw: f'{{"name":"ls","parameters":{raw}}}',
    "mistral": lambda raw: f'[TOOL_CALLS][{{"name":"ls","arguments":{raw}}}]',
    "mistral_args": lambda raw: f"[TOOL_CALLS]ls[ARGS]{raw}",
    "openai": lambda raw: f'{{"tool_calls":[{{"function":{{"name":"ls","arguments":{raw}}}}}]}}',
    "openai text": lambda raw: (
        f'{{"tool_calls":[{{"function":{{"name":"ls","arguments":{json.dumps(raw)}}}}}]}}'
    ),
    "react": lambda raw: f"Thought: list\nAction: ls\nAction Input: {raw}",
}


def dialect_of(name: str) -> Dialect:
    return find_dialect(name.partition(" ")[0])


def said(text: str, reasoning: str | None = None) -> Message:
    return Message("assistant", text, reasoning=reasoning)


def read(text: str, dialect: Dialect, *, truncated: bool = False) -> tuple[Message, str]:
    return read_calls(said(text), dialect, TOOLS, truncated=truncated)


def call_text(dialect: Dialect, path: str, name: str = "ls") -> str:
    call = ToolCall("", name, {"p": path})
    return format_call(dialect, Message("assistant", "", tool_calls=(call,)), TOOLS)


def runs(action: Message) -> list[tuple[str, dict[str, object]]]:
    return [(one.name, dict(one.arguments)) for one in action.tool_calls if one.problem is None]


BROKEN = {
    "trailing comma": '{"p":"cat",}',
    "single quotes": "{'p':'cat'}",
    "no quotes around a key": '{p:"cat"}',
    "no colon": '{"p" "cat"}',
    "comment": '{"p":"cat"/* here */}',
    "line break in a string": '{"p":"a\nb"}',
    "control character in a string": '{"p":"a\x07b"}',
    "bad escape": '{"p":"C:\\data"}',
    "Python's words": '{"p":True}',
    "NaN": '{"p":NaN}',
    "infinity": '{"p":-Infinity}',
    "a number too large": '{"p":1e400}',
    "a number of 5,000 digits": '{"p":' + "9" * 5000 + "}",
    "a key twice": '{"p":"a","p":"b"}',
    "a key twice, deeper": '{"p":[{"q":1,"q":1}]}',
    "half a surrogate pair": '{"p":"\\ud800"}',
    "half a surrogate pair as it is": '{"p":"\ud800"}',
    "half a surrogate pair in a key": '{"\\udc00":1}',
    "65 levels": '{"p":' * 65 + "1" + "}" * 65,
    "5,000 levels": '{"p":' * 5000 + "1" + "}" * 5000,
    "unquoted quotes": '{"p":"say "hi""}',
    "one brace too few": '{"p":{"q":1}',
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("form", RAW)
def test_broken_json_is_a_call_that_says_why_it_cannot_be_run(form: str, fault: str) -> None:
    action, status = read(RAW[form](BROKEN[fault]), dialect_of(form))
    (call,) = action.tool_calls
    assert status == "parse_error"
    assert (call.id, dict(call.arguments)) == ("call_0", {})
    assert call.problem is not None
    # An unclosed object may swallow what closes the call; no tokenizer writes half a character.
    if fault not in ("one brace too few", "half a surrogate pair as it is"):
        assert "invalid JSON: " in call.problem
    assert call.problem.endswith(dialect_of(form).example)
    call.problem.encode()  # it goes into a prompt
    assert len(call.problem) < 700


def test_the_trailing_comma_of_a_real_system() -> None:
    text = '<tool_call>{"name":"search","arguments":{"q":"cat",}}</tool_call>'
    action, status = read(text, find_dialect("hermes"))
    assert status == "parse_error"
    assert action.tool_calls[0].problem is not None
    assert action.tool_calls[0].problem.startswith("invalid JSON: ")
    assert "near" in action.tool_calls[0].problem
    assert '"cat",' in action.tool_calls[0].problem


@pytest.mark.parametrize("form", RAW)
@pytest.mark.parametrize("raw", ['"foo"', "[]", "123", "null", "true", '[{"p": 1}]', "1.5"])
def test_arguments_that_are_no_object_are_told_to_the_model(form: str, raw: str) -> None:
    action, status = read(RAW[form](raw), dialect_of(form))
    (call,) = action.tool_calls
    assert (status, call.name) == ("parse_error", "ls")
    assert call.problem is not None
    # A string of the message form holds JSON, and foo is none.
    as_text = form == "openai" and raw == '"foo"'
    expected = "invalid JSON" if as_text else "the arguments must be a JSON object, got "
    assert expected in call.problem


@pytest.mark.parametrize("form", RAW)
@pytest.mark.parametrize("raw", ['""', "{}", '" "'])
def test_empty_arguments_are_no_arguments(form: str, raw: str) -> None:
    action, status = read(RAW[form](raw), dialect_of(form))
    assert (status, runs(action)) == ("ok", [("ls", {})])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name":"ls"}</tool_call>'),
        ("action", "<action>ls</action>"),
        ("llama3", '{"name":"ls","type":"function","parameters":{}}'),
        ("llama3", '{"name":"ls"}'),
        ("llama3", '<|python_tag|>{"name":"ls"}'),
        ("mistral", '[TOOL_CALLS] [{"name":"ls"}]'),
        ("openai", '{"tool_calls":[{"function":{"name":"ls","arguments":""}}]}'),
        ("openai", '[{"type":"function","function":{"name":"ls"}}]'),
        ("openai", '{"type":"function","function":{"name":"ls"}}'),
        ("react", "Action: ls"),
        ("react", "Action: ls\nAction Input:"),
        ("react", "Action: ls\nAction Input:\nObservation: a file"),
        ("xml", "<tool_call><function=ls></function></tool_call>"),
        ("xml", "<function=ls>\n</function>"),
        ("glm", "<tool_call>ls</tool_call>"),
    ],
)
def test_a_call_may_have_no_arguments(name: str, text: str) -> None:
    action, status = read(text, find_dialect(name))
    assert (status, runs(action), action.content) == ("ok", [("ls", {})], "")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("hermes", '<tool_call>{"arguments":{}}</tool_call>', "must name a tool"),
        ("hermes", '<tool_call>{"name":"","arguments":{}}</tool_call>', "must name a tool"),
        ("hermes", '<tool_call>{"name":7}</tool_call>', "must name a tool"),
        ("hermes", '<tool_call>["ls"]</tool_call>', "must be a JSON object"),
        ("hermes", '<tool_call>"ls"</tool_call>', "must be a JSON object"),
        ("hermes", "<tool_call></tool_call>", "invalid JSON: Expecting value"),
        ("hermes", "<tool_call>", "invalid JSON: Expecting value"),
        ("hermes", '<tool_call>{"name":"ls","argument":{"p":1}}</tool_call>', "unknown keys"),
        (
            "hermes",
            '<tool_call>{"name":"ls","arguments":{},"parameters":{}}</tool_call>',
            "gives its arguments twice",
        ),
        ("hermes", '<tool_call>{"name":"ls"}', "expected </tool_call> after the call"),
        ("hermes", '<tool_call>{"name":"ls"}{"name":"ls"}</tool_call>', "expected </tool_call>"),
        ("hermes", '<tool_call>{"name":"ls"} now </tool_call>', "expected </tool_call>"),
        ("hermes", '<tool_call>{"name":"ls","id":5}</tool_call>', "id of a call must be"),
        ("action", "<action></action>", "expected the name of a tool"),
        ("action", "<action>", "the end of the answer"),
        ("action", "</action>x<action>", "the end of the answer"),
        ("action", "<action>ls the desk</action>", "invalid JSON"),
        ("action", "<action>ls", "invalid JSON"),
        ("llama3", '<|python_tag|>ls.call(p="x")', "invalid JSON"),
        ("llama3", '{"name": "ls", "parameters": {}} Let me know.', "text follows the call"),
        ("llama3", '{"parameters": {"p": "x"}}', "must name a tool"),
        ("mistral", "[TOOL_CALLS]", "expected a JSON list"),
        ("mistral", "[TOOL_CALLS][]", "expected at least one call"),
        ("mistral", '[TOOL_CALLS]ls{"p":"x"}', "expected a JSON list"),
        ("openai", '{"tool_calls": {"name": "ls"}}', "a list as tool_calls"),
        ("openai", '{"tool_calls": [], "content": 5}', "expected text as content"),
        ("openai", '{"tool_calls": [5]}', "must be an object with a 'function'"),
        ("openai", '{"tool_calls": [{"type": "code", "function": {}}]}', "must be 'function'"),
        ("openai", '[{"function": {"name": "ls"}}] done', "text follows the call"),
        ("react", "Action:\nAction Input: {}", "expected the name of a tool"),
        ("react", "Action: ls the desk", "alone on its line"),
        ("react", "Action: ls\nAction Input: desk", "invalid JSON"),
        ("react", "Action: ls\nAction Input: {} and so on", "follows the JSON"),
        ("react", "Action: ls\nFinal Answer: 9", "an Action and a Final Answer"),
        ("xml", "<tool_call>ls</tool_call>", "expected <function="),
        ("xml", "<function=>", "expected <function=NAME>"),
        ("xml", "<function=ls><parameter=p>x</function>", "is never closed"),
        ("xml", "<function=ls><parameter=p>x</parameter>", "expected </function>"),
        ("xml", "<function=ls>x</function>", "expected </function>"),
        ("xml", "<tool_call><function=ls></function>", "expected </tool_call>"),
        (
            "xml",
            "<function=ls><parameter=p>1</parameter><parameter=p>2</parameter></function>",
            "is given twice",
        ),
        ("glm", "<tool_call></tool_call>", "expected the name of a tool"),
        ("glm", "<tool_call>ls<arg_key>p</arg_key></tool_call>", "expected <arg_value>"),
        ("glm", "<tool_call>ls<arg_key>p</tool_call>", "</arg_key> is missing"),
        ("glm", "<tool_call>ls now</tool_call>", "expected </tool_call>"),
        (
            "glm",
            "<tool_call>ls<arg_key>p</arg_key><arg_value>1</arg_value>"
            "<arg_key>p</arg_key><arg_value>2</arg_value></tool_call>",
            "is given twice",
        ),
    ],
)
def test_what_is_no_call_says_what_was_expected(name: str, text: str, why: str) -> None:
    action, status = read(text, find_dialect(name))
    assert status == "parse_error"
    assert runs(action) == []
    (call,) = action.tool_calls
    assert call.problem is not None
    assert why in call.problem


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_truncated_answer_is_never_executed_wherever_it_was_cut(dialect: Dialect) -> None:
    whole = call_text(dialect, "abc") + (
        "\n" + call_text(dialect, "d") if dialect in MARKED else ""
    )
    for end in range(len(whole) + 1):
        action, status = read(whole[:end], dialect, truncated=True)
        assert (status, runs(action), action.content) == ("truncated", [], "")
        (call,) = action.tool_calls
        assert call.problem is not None
        assert "cut at its length limit" in call.problem


def test_the_truncated_call_of_a_real_system() -> None:
    text = '<tool_call>{"name":"write","arguments":{"text":"abc'
    action, status = read(text, find_dialect("hermes"), truncated=True)
    assert (status, runs(action)) == ("truncated", [])
    # The same text, ended by the model itself, is its own mistake and told apart.
    assert read(text, find_dialect("hermes"))[1] == "parse_error"


THOUGHTS = {
    "closed": "<think>maybe {0}</think>",
    "closed, then more": "<think>maybe {0} or</think>\n\n",
    "another tag": "<thinking>{0}</thinking>",
    "Mistral's": "[THINK]{0}[/THINK]",
    "two": "<think>a {0}</think><think>b {0}</think>",
    "opened by the prompt": "maybe {0}</think>",
    "opened by the prompt, twice closed": "maybe {0}</think> or {0}</think>",
    "opened within": "<think>a <think>{0} b</think> {0} c</think>",
}


@pytest.mark.parametrize("thought", THOUGHTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_call_drafted_in_thinking_is_not_made(dialect: Dialect, thought: str) -> None:
    draft, call = call_text(dialect, "/", name="rm"), call_text(dialect, "x")
    action, status = read(THOUGHTS[thought].format(f"\n{draft}\n") + call, dialect)
    assert status == "ok"
    assert runs(action) == [("ls", {"p": "x"})]
    assert action.content == ""
    assert action.reasoning is not None
    assert draft in action.reasoning


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_nothing_is_executed_of_an_answer_that_ends_in_its_thinking(dialect: Dialect) -> None:
    call = call_text(dialect, "x")
    for text in (f"<think>so {call}", f"{call}\n<think>or not", f"<think>a</think><think>{call}"):
        action, status = read(text, dialect)
        assert (status, runs(action), action.content) == ("unclosed_think", [], "")
        assert len(action.tool_calls) == 1


@pytest.mark.parametrize("dialect", MARKED, ids=lambda one: one.name)
def test_a_broken_call_ends_the_reading_and_no_draft_before_it_runs(dialect: Dialect) -> None:
    draft, call = call_text(dialect, "/", name="rm"), call_text(dialect, "x")
    broken = call[:-3] + "!"
    action, _ = read(f"{call}\n{broken} and {draft}", dialect)
    assert [one[0] for one in runs(action)] == ["ls"]
    assert [one.problem is None for one in action.tool_calls] == [True, False]
    # A thought that the prompt opened ends after it: then what stood before was a draft too.
    action, _ = read(f"{draft}\n{broken}</think>{call}", dialect)
    assert runs(action) == []
    assert len(action.tool_calls) == 1


@pytest.mark.parametrize("dialect", TYPED, ids=lambda one: one.name)
def test_what_looks_like_a_call_in_an_argument_is_an_argument(dialect: Dialect) -> None:
    inner = call_text(dialect, "/", name="rm")
    for text in (inner, f"</think>{inner}", "<think>", "</tool_call></action>", f"\n{inner}\n"):
        action, status = read(call_text(dialect, text), dialect)
        assert (status, runs(action)) == ("ok", [("ls", {"p": text})])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_code_fences_mean_nothing_to_marked_calls_and_make_others_text(dialect: Dialect) -> None:
    text = f"```\n{call_text(dialect, 'x')}\n```"
    action, status = read(text, dialect)
    assert status == "ok"
    assert runs(action) == ([("ls", {"p": "x"})] if dialect in MARKED else [])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_text_without_a_call_is_a_plain_message(dialect: Dialect) -> None:
    answers = [
        "The cat is nine.",
        "a < b > c {d} [e]",
        '{"answer": 4}',
        "[1, 2]",
        "```json\n{}\n```",
    ]
    for text in answers:
        assert read(text, dialect) == (said(text), "ok")
    thought = read(f"<think>because</think>\n{answers[0]}", dialect)
    assert thought == (said(answers[0], "because"), "ok")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
@pytest.mark.parametrize("text", ["", " \n\t ", "<think>so</think>", "<think></think>\n"])
def test_an_empty_answer_is_a_call_that_cannot_be_run(dialect: Dialect, text: str) -> None:
    action, status = read(text, dialect)
    assert (status, action.content) == ("empty_action", "")
    assert action.tool_calls[0].problem is not None
    assert "empty" in action.tool_calls[0].problem


def test_an_answer_in_json_is_no_call_where_calls_have_no_marks() -> None:
    for text in ('{"name": "Ann", "age": 9}', '{"name": ["ls"]}', '{"function": "sin"}', "[{}]"):
        for name in ("llama3", "openai"):
            assert read(text, find_dialect(name)) == (said(text), "ok")


def test_react_labels_tell_thoughts_answers_and_made_up_observations_apart() -> None:
    react = find_dialect("react")
    action, status = read("Thought: Now I know.\nFinal Answer: nine\nlives", react)
    assert (action, status) == (said("nine\nlives", "Now I know."), "ok")
    invented = (
        'Thought: look\nAction: ls\nAction Input: {\n  "p": "x"\n}\nObservation: empty\n'
        'Thought: delete\nAction: rm\nAction Input: {"p": "/"}'
    )
    action, status = read(invented, react)
    assert (status, runs(action), action.reasoning) == ("ok", [("ls", {"p": "x"})], "look")
    for thought in ("<think>so</think>", "<think>so</think> and [THINK]so[/THINK]"):
        action, _ = read(invented.replace("Thought: delete", thought), react)
        assert runs(action) == [("ls", {"p": "x"})]
    drafted = invented.replace("Thought: delete", "</think>").replace('"/"', '"y"')
    assert runs(read(drafted, react)[0]) == [("rm", {"p": "y"})]  # all before was thought
    assert read("Thought: hm", react)[1] == "empty_action"
    assert read("He said: Action: ls", react) == (said("He said: Action: ls"), "ok")


def test_ids_are_the_texts_own_or_count_calls_and_are_never_shared() -> None:
    mistral = find_dialect("mistral")

    def ids(*given: str | None) -> list[tuple[str, bool]]:
        calls = [{"name": "ls"} | ({} if one is None else {"id": one}) for one in given]
        action, _ = read(f"[TOOL_CALLS]{json.dumps(calls)}", mistral)
        return [(call.id, call.problem is None) for call in action.tool_calls]

    assert ids("a", "b") == [("a", True), ("b", True)]
    assert ids(None, None) == [("call_0", True), ("call_1", True)]
    assert ids(None, "call_0") == [("call_0_", True), ("call_0", True)]
    assert ids("a", "a", "a") == [("a", True), ("call_1", False), ("call_2", False)]
    new = read(
        "[TOOL_CALLS]ls[CALL_ID]x7[ARGS]{}[TOOL_CALLS]ls[ARGS]{}", find_dialect("mistral_args")
    )
    assert [call.id for call in new[0].tool_calls] == ["x7", "call_1"]


def test_arguments_are_exact() -> None:
    raw = (
        '{"big":123456789012345678901234567890,"float":0.1,"small":5e-324,"minus":-0.0,"int":1,'
        '"one":1.0,"text":"a\\u00e9\\ud83d\\ude00\\n\\u0000\\/\\\\","null":null,"deep":[[{"a":[]}]]}'
    )
    action, status = read(RAW["hermes"](raw), find_dialect("hermes"))
    (call,) = action.tool_calls
    assert status == "ok"
    assert dict(call.arguments) == json.loads(raw)
    assert call.arguments["text"] == "a\u00e9\U0001f600\n\x00/\\"
    assert type(call.arguments["one"]) is float
    assert str(call.arguments["minus"]) == "-0.0"


TYPES = ToolSpec(
    "f",
    "",
    {
        "type": "object",
        "$defs": {"Colour": {"enum": ["red", "blue"]}, "Size": {"type": "integer"}},
        "properties": {
            "text": {"type": "string"},
            "whole": {"type": "integer"},
            "real": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "maybe_text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "colour": {"$ref": "#/$defs/Colour"},
            "size": {"$ref": "#/$defs/Size"},
            "level": {"enum": [1, 2]},
            "either": {"type": ["integer", "string"]},
            "any": {},
        },
    },
)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "75001", "75001"),
        ("text", "true", "true"),
        ("text", '"quoted"', '"quoted"'),
        ("text", "  spaced\n", "  spaced\n"),
        ("whole", "75001", 75001),
        ("whole", " 7 ", 7),
        ("whole", "seven", "seven"),
        ("whole", "9007199254740993", 9007199254740993),
        ("real", "1.50", 1.5),
        ("real", "NaN", "NaN"),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", "False", False),
        ("flag", "None", "None"),
        ("list", '["a", 1]', ["a", 1]),
        ("list", "['a']", "['a']"),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "3", 3),
        ("maybe_text", "null", "null"),
        ("colour", "red", "red"),
        ("size", "4", 4),
        ("level", "2", 2),
        ("either", "2", "2"),
        ("any", "2", "2"),
        ("unknown", "2", "2"),
    ],
)
def test_bare_text_gets_its_type_from_the_tools_schema(key: str, text: str, value: object) -> None:
    xml = f"<tool_call><function=f><parameter={key}>\n{text}\n</parameter></function></tool_call>"
    glm = f"<tool_call>f<arg_key>{key}</arg_key><arg_value>{text}</arg_value></tool_call>"
    for name, answer in (("xml", xml), ("glm", glm)):
        action, status = read_calls(said(answer), find_dialect(name), [TYPES])
        assert (status, action.tool_calls[0].arguments[key]) == ("ok", value)
        assert type(action.tool_calls[0].arguments[key]) is type(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5},
        {"properties": {"p": 5}},
        {"properties": {"p": {"type": 5, "enum": 5, "anyOf": 5, "$ref": 5}}},
        {"properties": {"p": {"type": [[], 5], "enum": [[], {}]}}},
        {"properties": {"p": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"properties": {"p": {"$ref": "elsewhere"}}, "$defs": []},
        {
            "properties": {"p": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 50}},
        },
    ],
)
def test_a_schema_that_lies_does_no_harm(schema: dict[str, object]) -> None:
    tools = [ToolSpec("ls", "", schema)]
    text = "<function=ls><parameter=p>7</parameter></function>"
    action, status = read_calls(said(text), find_dialect("xml"), tools)
    assert (status, len(action.tool_calls)) == ("ok", 1)


@pytest.mark.parametrize("kind", ["truncated", "unclosed_think", "control_token", "unknown_token"])
def test_what_the_renderer_could_not_read_reaches_the_environment_as_a_call(kind: str) -> None:
    failure = ParseFailure(kind, "the answer holds the control token <|im_start|>", "<think>hm")
    kept, action, status = read_action(failure, "tools", find_dialect("hermes"), TOOLS)
    (call,) = action.tool_calls
    assert (status, action.content) == (kind, "")
    assert call.problem is not None
    assert ("cut at its length limit" in call.problem) == (kind == "truncated")
    # What it was thinking is kept as a thought, which a prompt rendered anew closes.
    assert kept == Message("assistant", "", reasoning="hm")


def test_an_open_thought_that_the_prompt_began_is_kept_as_a_thought() -> None:
    failure = ParseFailure("unclosed_think", "", "Let me work this out")
    formats: tuple[ActionFormat, ...] = ("tagged", "tools")
    for action_format in formats:
        kept, action, status = read_action(failure, action_format, find_dialect("hermes"))
        assert kept == Message("assistant", "", reasoning="Let me work this out")
        assert (action.content, status) == ("", "unclosed_think")
    cut = ParseFailure("truncated", "", "<think>a</think>half an ans")
    assert read_action(cut, "bare", find_dialect("hermes"))[0] == said(cut.content)


def test_the_key_of_an_action_is_what_was_executed() -> None:
    one = ToolCall("a", "ls", {"b": 1, "a": {"d": "\ud800", "c": 2}})
    same = ToolCall("z", "ls", {"a": {"c": 2, "d": "\ud800"}, "b": 1})
    bad = ToolCall("b", "", {}, "invalid JSON")
    said_first = Message("assistant", "I list.", tool_calls=(one, bad))
    assert action_key(said_first) == 'ls {"a":{"c":2,"d":"\\ud800"},"b":1}'
    assert action_key(Message("assistant", "", tool_calls=(same,))) == action_key(said_first)
    twice = Message("assistant", "", tool_calls=(one, ToolCall("c", "look", {})))
    assert action_key(twice) == action_key(said_first) + "\nlook {}"
    assert action_key(failed_call("cut")) == ""
    assert action_key(said(" go  to\ndesk ")) == "go to desk"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_write_action_writes_is_read_back(dialect: Dialect) -> None:
    call = ToolCall("call_0", "ls", {"p": "x"})
    meant = Message("assistant", "", reasoning="because", tool_calls=(call,))
    text = write_action(meant, "tools", dialect, TOOLS)
    assert text.reasoning == "because"
    assert read_action(text, "tools", dialect, TOOLS) == (text, meant, "ok")
