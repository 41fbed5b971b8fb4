"""Tools of real MCP servers: sessions, what they answer, whose state it is, and how they end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import (
    AgentRLError,
    ConfigError,
    DeadlineError,
    EnvError,
    MissingDependencyError,
)
from agentrl.core.message import ToolSpec
from agentrl.envs.tools import ToolEnvFactory
from agentrl.testing import mcp_servers
from agentrl.tools import Dispatched, DispatchLimits, OpenTools, Toolbox
from agentrl.tools.mcp import McpServer
from tests.tools.conftest import NEVER, TASK, answers, called, texts, using


def entry(fault: str = "", **options: Any) -> dict[str, Any]:
    """The stand-in server as a run file names it."""
    command = [sys.executable, "-I", mcp_servers.__file__, fault]
    return {"name": "mcp", "options": {"command": command, **options}}


def box(*entries: Any) -> Toolbox:
    return Toolbox(entries, watch=NEVER)


def specs(toolbox: Toolbox) -> dict[str, ToolSpec]:
    async def use(opened: OpenTools) -> dict[str, ToolSpec]:
        return {one.name: one for one in opened.specs}

    return using(toolbox, use)


def gone(pid: int) -> bool:
    """Whether a process ends; a killed one may take a moment."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_every_tool_is_a_tool_of_ours() -> None:
    found = specs(box(entry()))
    assert list(found) == [
        *("echo", "second", "count_up", "contents", "structured", "environment", "fail")
    ]
    assert found["echo"] == ToolSpec(
        "echo",
        "The tool echo.",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What to say."},
                "times": {"type": "integer", "minimum": 1, "description": "How often."},
            },
            "required": ["text"],
        },
        read_only=True,
    )
    assert found["second"].parameters == {"type": "object", "properties": {}}
    assert not found["second"].read_only


def test_calls_are_answered_with_their_texts() -> None:
    said = answers(
        [entry()],
        called(1, "echo", text="é\u2028\U0001f600", times=2),
        called(2, "structured"),
        called(3, "fail"),
        called(4, "echo"),
        called(5, "echo", text=3),
        called(6, "contents"),
        called(7, "echo", text="a", txet="b"),
    )
    assert texts(said) == [
        "é\u2028\U0001f600é\u2028\U0001f600",
        '{"sum": 3}',
        "error: no such page",
        "error: 'echo' was not called: missing: text",
        "error: the arguments do not fit: text: 3 is not of type 'string'",
        "first\n"
        "[image, image/png, 3 bytes; it cannot be shown]\n"
        "[audio, audio/wav, 2 bytes; it cannot be shown]\n"
        "[link to the resource 'log' at file:///log, all of it]\n"
        "[resource note://1]\na note\n"
        "[resource note://2, application/pdf, 4 bytes; it cannot be shown]\n"
        "last",
        "error: the arguments do not fit: there is no 'txet'; did you mean 'text'?",
    ]
    problems = [one.problem for one in said.records]
    assert problems == ["", "", "error", "arguments", "error", "", "error"]


def test_each_episode_has_a_session_of_its_own_that_ends_with_it() -> None:
    toolbox = box(entry())

    async def use(first: OpenTools) -> list[str]:
        async with toolbox.open(TASK, seed=1) as second:
            asked = [called(1, "count_up"), called(2, "environment", text="PID")]
            found = [await one.answer(asked) for one in (first, first, second)]
            return [" ".join(texts(one)) for one in found]

    counts = [one.split() for one in using(toolbox, use)]
    assert [count for count, _ in counts] == ["1", "2", "1"]
    assert counts[0][1] != counts[2][1]
    assert all(gone(int(pid)) for _, pid in counts)


def test_an_episode_may_be_closed_by_another_asyncio_task() -> None:
    toolbox = box(entry())

    async def main() -> None:
        opening = toolbox.open(TASK, seed=1)
        opened = await asyncio.create_task(opening.__aenter__())
        assert texts(await opened.answer([called(1, "echo", text="a")])) == ["a"]
        await asyncio.create_task(opening.__aexit__(None, None, None))

    asyncio.run(main())


def test_a_shared_session_serves_all_episodes_and_ends_with_the_loop() -> None:
    toolbox = box(entry(shared=True, read_only=True))

    async def pid() -> str:
        async with toolbox.open(TASK, seed=1) as opened:
            asked = [called(1, "count_up"), called(2, "environment", text="PID")]
            return " ".join(texts(await opened.answer(asked)))

    async def main() -> list[str]:
        return [await pid(), *await asyncio.gather(pid(), pid())]

    counts = [one.split() for one in asyncio.run(main())]
    assert sorted(count for count, _ in counts) == ["1", "2", "3"]
    assert len({pid for _, pid in counts}) == 1
    assert gone(int(counts[0][1]))
    again, _ = asyncio.run(pid()).split()
    assert again == "1"


def test_a_shared_session_that_died_is_begun_anew_for_the_next_episode() -> None:
    toolbox = box(entry("dies", shared=True, tools=["echo"]))

    async def main() -> None:
        for _ in range(2):
            async with toolbox.open(TASK, seed=1) as opened:
                with pytest.raises(EnvError, match="the connection was closed"):
                    await opened.answer([called(1, "echo", text="a")])

    asyncio.run(main())


def test_what_is_shared_must_be_read_only() -> None:
    with pytest.raises(ConfigError, match=r"shared by all episodes.*second, count\.up are not"):
        answers([entry(shared=True)])
    assert set(specs(box(entry(shared=True, tools=["echo", "fail"])))) == {"echo", "fail"}


def test_who_runs_a_server_may_say_what_is_read_only() -> None:
    found = specs(box(entry(read_only=["count.up"])))
    assert [name for name, one in found.items() if one.read_only] == ["count_up"]
    with pytest.raises(ConfigError, match=r"has no tool 'count'; did you mean 'count\.up'\?"):
        answers([entry(read_only=["count"])])


def test_names_that_collide_are_told_apart_by_a_prefix() -> None:
    with pytest.raises(ConfigError, match=r"two tools are called 'echo'.*its 'echo'.*prefix"):
        answers([entry(), entry("rubbish")])
    found = specs(box(entry(), entry("rubbish", prefix="b_", tools=["echo"])))
    assert {"echo", "b_echo"} <= set(found)


def test_a_server_may_not_list_other_tools_later(tmp_path: Path) -> None:
    toolbox = box(entry("changes", env={"STARTS": str(tmp_path / "starts")}))
    specs(toolbox)
    with pytest.raises(EnvError, match=r"offers other tools than in its first.*born_2.*born_1"):
        specs(toolbox)


def test_the_order_of_a_listing_is_that_of_the_first(tmp_path: Path) -> None:
    toolbox = box(entry("reorders", env={"STARTS": str(tmp_path / "starts")}))
    assert list(specs(toolbox)) == list(specs(toolbox))
    assert (tmp_path / "starts").stat().st_size == 2


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[mcp\]'"):
        box(entry())


def test_secrets_are_named_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    monkeypatch.setenv("UNRELATED", "not for servers")
    ask = [called(n, "environment", text=t) for n, t in enumerate(("A_TOKEN", "UNRELATED", "X"))]
    said = answers([entry(env={"X": "1"}, env_from={"A_TOKEN": "MY_TOKEN"})], *ask)
    assert texts(said) == ["hunter2-hunter2", "None", "1"]
    box(entry(env={"GIT_AUTHOR_NAME": "Ann"}))
    with pytest.raises(ConfigError, match=r"env\.API_KEY looks like a secret.*env_from"):
        box(entry(env={"API_KEY": "sk-1"}))
    with pytest.raises(ConfigError, match="needs the environment variable 'ABSENT'"):
        box(entry(env_from=["ABSENT"]))


def test_no_error_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "no licence")  # what the server prints when it ends
    with pytest.raises(EnvError, match=r"standard error: \*\*\* found$"):
        answers([entry("dies_at_start", env_from={"A_TOKEN": "MY_TOKEN"})])


# Whoever broke it is an infra failure, never an observation; it names server and tool.
CALLS: list[tuple[str, type[AgentRLError], str]] = [
    ("dies", EnvError, r"'echo'.*the MCP server '.* dies'.*connection was closed.*out of memory"),
    ("mute_calls", DeadlineError, r"'echo' gave no answer within 0\.5 s"),
    ("wrong_answer", EnvError, r"wrong answer for its tool 'echo'.*valid list"),
    ("error_answer", EnvError, r"failed in its tool 'echo': it answered with error -32603: KeyEr"),
]


@pytest.mark.parametrize(("fault", "kind", "said"), CALLS)
def test_a_server_that_breaks_in_a_call(fault: str, kind: type[AgentRLError], said: str) -> None:
    deadline_s = 0.5 if fault == "mute_calls" else 30.0
    with pytest.raises(kind, match=f"(?s){said}") as raised:
        answers([entry(fault, deadline_s=deadline_s)], called(1, "echo", text="a"))
    assert type(raised.value) is kind


STARTS: list[tuple[str, type[AgentRLError], str]] = [
    ("dies_at_start", EnvError, r"did not begin a session.*no licence found"),
    ("mute", EnvError, r"did not begin a session within 1 s"),
    ("only_rubbish", EnvError, r"no message: 'Welcome to the server!'; only the protocol"),
    ("lies_type", ConfigError, r"the tool 'second', inputSchema\.type.*'object', got 'string'"),
    ("lies_required", ConfigError, r"its tool 'second' is no schema.*'required' names 'ghost'"),
    ("lies_schema", ConfigError, r"its tool 'second' is no schema.*'strnig' is not valid"),
    ("lies_recursion", ConfigError, r"its tool 'second' is no schema.*'X' holds itself"),
    ("twins", ConfigError, r"two tools called 'echo'"),
    ("no_tools", ConfigError, r"offers no tool"),
    ("endless_list", ConfigError, r"lists tools without end: 100 on 100 pages"),
]


@pytest.mark.parametrize(("fault", "kind", "said"), STARTS)
def test_a_server_that_cannot_be_used(fault: str, kind: type[AgentRLError], said: str) -> None:
    with pytest.raises(kind, match=f"(?s)the MCP server '.*{said}"):
        answers([entry(fault, start_s=1.0 if fault == "mute" else 30.0)])


def test_every_fault_of_the_stand_in_is_tested() -> None:
    tested = {one for one, _, _ in CALLS + STARTS}
    others = {"", "stubborn", "rubbish", "changes", "reorders", "refuses"}
    assert tested | others == set(mcp_servers.FAULTS)


def test_rubbish_between_messages_is_passed_over() -> None:
    assert texts(answers([entry("rubbish")], called(1, "echo", text="a"))) == ["a"]


def test_the_protocols_word_for_wrong_arguments_goes_to_the_model() -> None:
    said = answers([entry("refuses")], called(1, "echo", text="a"))
    assert texts(said) == ["error: text is too short"]


def test_long_texts_come_whole_and_are_cut_for_the_model() -> None:
    text = "é" * 70_000
    said: Dispatched = answers([entry()], called(1, "echo", text=text))
    assert said.records[0].result.content == text
    assert len(texts(said)[0]) <= 16_000
    limits = DispatchLimits(output_chars=100_000)
    assert texts(answers([entry()], called(1, "echo", text=text), limits=limits)) == [text]


def test_what_ignores_every_request_to_end_is_killed() -> None:
    toolbox = Toolbox([entry("stubborn", deadline_s=0.2)], watch=NEVER)

    async def use(opened: OpenTools) -> int:
        connection = opened.parts[0]._connection
        with pytest.raises(DeadlineError):
            await opened.answer([called(1, "echo", text="a")])
        assert not connection.sound
        return _children()[-1]

    assert gone(using(toolbox, use))


def test_what_never_starts_is_not_started_for_ever() -> None:
    toolbox = box(entry("dies_at_start", failed_starts=2))
    for said in ("did not begin", "did not begin", "started 2 times in vain.*no licence found"):
        with pytest.raises(EnvError, match=f"(?s){said}"):
            specs(toolbox)


def test_a_session_that_is_given_up_while_it_starts_leaves_no_process() -> None:
    before = set(_children())

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), box(entry("mute")).open(TASK, seed=1):
                pass

    asyncio.run(main())
    assert all(gone(one) for one in set(_children()) - before)


def _children() -> list[int]:
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return [int(one) for one in path.read_text().split()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either command .* or url, got neither"),
        ({"command": ["a"], "url": "http://127.0.0.1/mcp"}, "got both"),
        ({"command": "python server.py"}, r"must be a list of strings.*write \["),
        ({"command": []}, "must be a list of strings"),
        ({"command": ["no-such-program-anywhere"]}, "'no-such-program-anywhere' is not found"),
        ({"command": ["./server"], "cwd": "/"}, "'./server' is not found"),
        ({"command": [sys.executable], "cwd": "/nowhere"}, "cwd '/nowhere' is no folder"),
        ({"command": [sys.executable], "env": {"N": 1}}, r"env\.N must be a string"),
        ({"command": [sys.executable], "headers_from": {"A": "PATH"}}, "has no headers"),
        ({"command": [sys.executable], "start_s": 0}, "start_s must be above 0"),
        ({"command": [sys.executable], "tools": "echo"}, "tools must be a list of names"),
        ({"command": [sys.executable], "protocol": "new"}, "protocol must be auto or legacy"),
        ({"command": [sys.executable], "prefx": "a"}, "prefx"),
        ({"url": "127.0.0.1:8000/mcp"}, "must look like http://host:port/mcp"),
        ({"url": "http://me:word@127.0.0.1/mcp"}, "holds a user name or password"),
        ({"url": "http://127.0.0.1/mcp", "env": {"A": "b"}}, "runs elsewhere"),
    ],
)
def test_options_that_cannot_be_are_refused_before_any_episode(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Toolbox([{"name": "mcp", "options": options}])


def test_an_environment_plays_with_a_servers_tools() -> None:
    from agentrl.core.message import Message

    factory = ToolEnvFactory(
        [{"question": f"Say {n}.", "answer": str(n)} for n in range(20)],
        tools=["finish", McpServer(**entry()["options"])],
    )
    task = factory.tasks("train")[0]

    async def main() -> None:
        env = await factory.make(task, seed=0)
        await env.reset()
        try:
            assert {"finish", "echo"} <= {one.name for one in env.tools}
            call = called(1, "echo", text="x")
            said = await env.step(Message("assistant", "", tool_calls=(call,)))
            assert [one.content for one in said.observation.messages] == ["x"]
            call = called(2, "finish", answer=task.payload["answer"])
            done = await env.step(Message("assistant", "", tool_calls=(call,)))
            assert done.terminated
            assert done.reward == 1.0
        finally:
            await env.aclose()

    asyncio.run(main())
