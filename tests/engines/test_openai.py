"""An endpoint plays in the policy's place: evaluated and recorded like any other, never trained."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.completions.written import END, write_messages, write_tools, written_from
from agentrl.core.message import Message, ParseFailure, ToolCall, ToolSpec
from agentrl.renderers.messages import MessagesRenderer
from agentrl.store.sqlite import SqliteStore
from tests.completions.conftest import KEY, Reply, Serve, Service, _key, answer, serve

__all__ = ["_key", "serve"]  # fixtures

text = st.text(max_size=30)
calls = st.builds(
    ToolCall,
    id=text,
    name=text,
    arguments=st.dictionaries(text, st.integers() | text | st.none(), max_size=2),
    problem=st.none() | text,
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=text,
    reasoning=st.none() | text,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | text,
)
tools = st.lists(
    st.builds(
        ToolSpec,
        name=text,
        description=text,
        parameters=st.dictionaries(text, text, max_size=2),
        read_only=st.booleans(),
    ),
    max_size=2,
).map(tuple)


@given(st.lists(messages, max_size=4), st.lists(messages, max_size=3), tools)
def test_what_is_written_down_is_read_back_whole_and_in_parts(
    before: list[Message], after: list[Message], offered: tuple[ToolSpec, ...]
) -> None:
    renderer = MessagesRenderer()
    said = Message("assistant", "said", tool_calls=(ToolCall("1", "f", {"a": 1}),))
    sampled = renderer.encode_action(said)
    held = renderer.start(before, offered) + sampled
    whole = held + renderer.extend(after, closed=True)
    assert written_from(whole) == ((*before, said, *after), offered)
    assert renderer.parse(sampled) == said
    assert all(0 <= one <= END for one in whole)
    cut = sampled[:-1]
    assert held[:-1] + renderer.extend(after, closed=False) == [
        *renderer.start(before, offered),
        *cut,
        END,
        *write_messages(after),
    ]


@pytest.mark.parametrize("ids", [[], [END], [5, 6, 7], write_tools([ToolSpec("f", "")])])
def test_what_is_no_message_is_a_parse_failure(ids: list[int]) -> None:
    assert isinstance(MessagesRenderer().parse(ids), ParseFailure)


PLAYED = {
    "model": {"path": "none"},
    "env": {"name": "toy"},
    "agent": {"renderer": {"name": "messages"}, "action_format": "bare", "max_steps": 4},
    "evaluation": {"tasks": 3, "every": 0},
}


def run_file(folder: Path, service: Service | None, **changes: Any) -> Path:
    options = {"model_name": "m", "base_url": service.url if service else "http://127.0.0.1:9/v1"}
    engine = {"name": "openai", "options": options}
    data = {**PLAYED, "run_dir": str(folder / "run"), "engine": engine, **changes}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_an_endpoint_is_evaluated(serve: Serve, tmp_path: Path) -> None:
    service = serve(Reply(answer("go right")))
    path = run_file(tmp_path, service)
    result = CliRunner().invoke(app, ["evaluate", str(path), "--greedy", "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    report = json.loads(result.stdout)
    assert (report["tasks"], report["infra_failures"]) == (3, 0)
    assert {one["temperature"] for one in service.asked} == {0.0}
    longest = max(service.asked, key=lambda one: len(one["messages"]))
    assert [one["role"] for one in longest["messages"]] == ["user", "assistant"] * 3 + ["user"]


def test_its_episodes_are_recorded_and_its_log_probabilities_are_unknown(
    serve: Serve, tmp_path: Path
) -> None:
    service = serve(Reply(answer("go right")), Reply(answer("go", finish_reason="length")))
    path = run_file(tmp_path, service)
    result = CliRunner().invoke(app, ["rollout", str(path), "--tasks", "2"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    with SqliteStore(tmp_path / "run", read_only=True) as store:
        steps = [
            step for group in store.groups() for one in group.trajectories for step in one.steps
        ]
    assert {step.action.content for step in steps} <= {"go right", "", "go"}
    assert all(math.isnan(value) for step in steps for value in step.sample.logprobs)
    assert any(step.parse_status == "truncated" for step in steps)
    assert KEY not in "".join(
        one.read_text(errors="replace") for one in (tmp_path / "run").iterdir() if one.is_file()
    )


def test_tools_are_offered_and_their_calls_are_played(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asked_env.py").write_text(
        "from agentrl.envs.tools import ToolEnvFactory\n"
        "def double(value: int) -> str:\n"
        '    """Double it.\n\n    Args:\n        value: A number.\n    """\n'
        "    return str(2 * value)\n"
        "def make():\n"
        "    problems = [{'question': f'twice {n}?', 'answer': str(2 * n)} for n in range(20)]\n"
        "    return ToolEnvFactory(problems, [double])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def plays(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return Reply(answer(last["content"]))
        number = last["content"].split()[1].rstrip("?")
        function = {"name": "double", "arguments": json.dumps({"value": int(number)})}
        call = {"id": "c", "type": "function", "function": function}
        return Reply(answer(None, tool_calls=[call], finish_reason="tool_calls"))

    agent = {"renderer": {"name": "messages"}, "action_format": "tools", "max_steps": 4}
    path = run_file(tmp_path, serve(plays), env={"name": "asked_env:make"}, agent=agent)
    result = CliRunner().invoke(app, ["evaluate", str(path), "--tasks", "2", "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    report = json.loads(result.stdout)
    assert report["success"] == 1.0
    assert "4 answers" in result.stderr
    assert "40 + 8 tokens" in result.stderr


STAGE = {"kind": "rl", "iterations": 1, "tasks_per_iteration": 1, "group_size": 2}


@pytest.mark.parametrize(
    ("command", "changes", "text"),
    [
        ("train", {"stages": [STAGE]}, "cannot be trained from: it gives no token ids"),
        ("evaluate", {"model": {"path": "builtin:alfworld-tiny"}}, "has a model of its own"),
        ("evaluate", {"engine": {"name": "hf"}}, "'hf' needs weights"),
        ("evaluate", {"agent": {"renderer": {"name": "plain"}}}, "tokenizer"),
        ("evaluate", {"engine": {"name": "openai", "options": {}}}, "model_name"),
        (
            "evaluate",
            {"engine": {"name": "openai", "options": {"model_name": "m", "api_key": "sk-x"}}},
            "api_key",
        ),
        ("evaluate", {"sampling": {"top_k": 5}}, "top_k=5 is not offered there"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_asked(
    tmp_path: Path, command: str, changes: dict[str, Any], text: str
) -> None:
    path = run_file(tmp_path, None, **changes)
    result = CliRunner().invoke(app, [command, str(path)])
    assert result.exit_code in (1, 2), result.exception
    assert text in " ".join(result.stderr.split())


def test_a_wrong_key_stops_the_evaluation_at_once(serve: Serve, tmp_path: Path) -> None:
    service = serve(Reply({"error": {"message": "no such key"}}, 401))
    result = CliRunner().invoke(app, ["evaluate", str(run_file(tmp_path, service))])
    assert result.exit_code != 0
    assert "refuses the key in OPENAI_API_KEY" in result.stderr
    assert len(service.asked) <= 16
