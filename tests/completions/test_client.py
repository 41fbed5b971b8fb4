"""An endpoint is asked as it wants to be, counted, and blamed in its own words."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentrl.completions import Completion, CompletionClient, Usage
from agentrl.core.errors import AgentRLError, ConfigError, EngineError
from agentrl.core.message import Message, ToolCall, ToolSpec
from tests.completions.conftest import KEY, Reply, Serve, answer

ASKED = (Message("user", "hello"),)
OK = Reply(answer("hi"))


def ask(client: CompletionClient, messages: Any = ASKED, **more: Any) -> Completion:
    async def main() -> Completion:
        try:
            return await client.complete(messages, **more)
        finally:
            await client.aclose()

    return asyncio.run(main())


def test_what_is_sent_and_what_comes_back(serve: Serve) -> None:
    service = serve(OK)
    tool = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    call = ToolCall("c1", "add", {"a": 1})
    messages = [
        Message("system", "be kind"),
        Message("user", "1?"),
        Message("assistant", "", reasoning="hm", tool_calls=(call,)),
        Message("tool", "1", tool_call_id="c1"),
    ]
    client = CompletionClient("m", base_url=service.url, extra={"reasoning_effort": "low"})
    got = ask(client, messages, tools=[tool], temperature=0.5, max_tokens=7, seed=2**40 + 3)
    assert (got.message, got.finish_reason) == (Message("assistant", "hi"), "stop")
    (sent,) = service.asked
    assert sent["messages"][2] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        ],
    }
    assert sent["messages"][3] == {"role": "tool", "content": "1", "tool_call_id": "c1"}
    assert sent["tools"][0]["function"]["name"] == "add"
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.5, 7, 3)
    assert (sent["model"], sent["reasoning_effort"]) == ("m", "low")
    assert service.keys == [f"Bearer {KEY}"]


def test_calls_in_an_answer_also_those_that_cannot_be_read(serve: Serve) -> None:
    def call(name: str, arguments: Any) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"id": name, "type": "function", "function": function}

    given = ['{"x": 1}', "{broken", "[1]", "", 5, "[" * 100_000, "9" * 5000, '{"x": NaN}']
    calls = [*map(call, "abcdefgh", given), call("", "{}")]
    service = serve(Reply(answer(None, tool_calls=calls, reasoning_content="well")))
    got = ask(CompletionClient("m", base_url=service.url)).message
    assert (got.content, got.reasoning) == ("", "well")
    assert [dict(one.arguments) for one in got.tool_calls] == [{"x": 1}, *[{}] * 8]
    problems = [one.problem or "" for one in got.tool_calls]
    assert (problems[0], problems[3]) == ("", "")
    wanted = ["invalid JSON", "must be a JSON object, got a list", "must be a JSON object, got 5"]
    wanted += ["nested more than", "more digits", "NaN is no JSON value", "must name a tool"]
    for problem, text in zip([*problems[1:3], *problems[4:]], wanted, strict=True):
        assert text in problem


def test_a_call_without_a_result_and_a_result_without_a_call_are_not_sent_as_such(
    serve: Serve,
) -> None:
    # An endpoint would refuse the conversation, now and at every later step.
    service = serve(OK)
    made, unread = ToolCall("a", "add", {"x": 1}), ToolCall("b", "add", {}, "cut")
    ask(
        CompletionClient("m", base_url=service.url),
        [
            Message("user", "1?"),
            Message("assistant", "half", tool_calls=(unread,)),
            Message("tool", "error: cut", tool_call_id="call_0"),
            Message("assistant", "", tool_calls=(ToolCall("call_0", "", {}, "no name"),)),
            Message("tool", "error: no name", tool_call_id="call_0"),
            Message("assistant", "", tool_calls=(made, unread)),
            Message("tool", "2", tool_call_id="a"),
            Message("tool", "error: cut", tool_call_id="b"),
        ],
    )
    (sent,) = service.asked
    roles = ["user", "assistant", "user", "assistant", "user", "assistant", "tool", "tool"]
    assert [one["role"] for one in sent["messages"]] == roles
    calls = [[call["id"] for call in one.get("tool_calls", ())] for one in sent["messages"]]
    assert calls == [[], [], [], [], [], ["a", "b"], [], []]
    assert sent["messages"][2] == {"role": "user", "content": "error: cut"}


def refusal(body: dict[str, Any]) -> Reply:
    """What a model that reasons says to fields that it does not take, one after the other."""
    for name in ("max_tokens", "temperature", "top_p"):
        if name in body:
            error = {"message": f"no {name}", "param": name, "code": "unsupported_parameter"}
            return Reply({"error": error}, 400)
    return OK


def test_fields_that_a_model_does_not_take_are_left_out_where_that_changes_nothing(
    serve: Serve,
) -> None:
    service = serve(refusal)
    client = CompletionClient("m", base_url=service.url, retries=0)
    ask(client, max_tokens=7)
    ask(client, max_tokens=7)
    assert len(service.asked) == 5  # four for the first, one for the second
    assert service.asked[-1].keys() == {"model", "messages", "max_completion_tokens"}
    assert service.asked[-1]["max_completion_tokens"] == 7
    with pytest.raises(ConfigError, match=r"does not take.*no temperature.*extra"):
        ask(client, temperature=0.0)
    assert client.usage.requests == 2


def test_tokens_and_cost_are_counted_and_bounded(serve: Serve) -> None:
    silent = answer("hi")
    del silent["usage"]
    service = serve(OK, Reply(silent), OK)
    prices = {"prompt": 1e6, "completion": 2e6}
    client = CompletionClient("m", base_url=service.url, prices=prices, most_cost=20.0)
    ask(client)
    ask(client)
    assert client.usage == Usage(2, 10, 2, uncounted=1, cost=14.0)
    ask(client)
    with pytest.raises(ConfigError, match=r"has cost 28, and most_cost=20 is reached after 3"):
        ask(client)
    assert len(service.asked) == 3


@pytest.mark.parametrize("again", [Reply({}, 429, {"Retry-After": "0.01"}), Reply({}, 500)])
def test_what_may_pass_is_tried_again_and_counted_once(serve: Serve, again: Reply) -> None:
    service = serve(again, again, OK)
    client = CompletionClient("m", base_url=service.url, retries=2)
    assert ask(client).message.content == "hi"
    assert (len(service.asked), client.usage.requests) == (3, 1)


def test_an_answer_that_is_cut_in_the_middle_is_asked_for_again(serve: Serve) -> None:
    service = serve(Reply(answer("hi"), cut=True), OK)
    client = CompletionClient("m", base_url=service.url, retries=1)
    assert ask(client).message.content == "hi"
    service = serve(Reply(answer("hi"), cut=True))
    client = CompletionClient("m", base_url=service.url, retries=0)
    with pytest.raises(EngineError, match="did not answer"):
        ask(client)
    assert client.usage.requests == 0


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (Reply("<html>Sign in</html>"), EngineError, r"no JSON object: '<html>Sign.*ends in /v1"),
        (Reply({"choices": []}), EngineError, "no chat completion"),
        (Reply({"error": "odd"}), EngineError, "no chat completion"),
        (Reply(answer(["part"])), EngineError, "no chat completion.*content is a list"),  # type: ignore[arg-type]
        (Reply([1]), EngineError, "no JSON object"),
        (Reply("[" * 100_000), EngineError, "no JSON object"),
        (Reply("<h1>Not Found</h1>", 404), ConfigError, "no such model or address.*ends in /v1"),
        (Reply({"error": {"message": "bad gateway"}}, 502), EngineError, "status 502.*bad gateway"),
        (Reply({"error": {"message": "slow down"}}, 429), EngineError, "requests_per_minute"),
        (Reply({"error": {"message": "too long"}}, 400), EngineError, "status 400.*too long"),
    ],
)
def test_what_is_no_answer_is_said_in_the_endpoints_words(
    serve: Serve, reply: Reply, error: type[AgentRLError], text: str
) -> None:
    client = CompletionClient("m", base_url=serve(reply).url, retries=0)
    with pytest.raises(error, match=text):
        ask(client)
    assert client.usage.requests == 0


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_stops_everything_and_is_never_shown(serve: Serve, status: int) -> None:
    said = f"Incorrect API key provided: {KEY}; it ends in ***cdef"
    client = CompletionClient("m", base_url=serve(Reply({"error": {"message": said}}, status)).url)
    with pytest.raises(ConfigError, match="refuses the key in OPENAI_API_KEY") as refused:
        ask(client)
    assert KEY not in str(refused.value)
    assert "cdef" not in str(refused.value)
    assert "Incorrect API key" in str(refused.value)


def test_nobody_listens() -> None:
    client = CompletionClient("m", base_url="http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(EngineError, match=r"127.0.0.1:9/v1 \(model m\) did not answer.*in 1 tries"):
        ask(client)


def test_who_never_answers_meets_the_time_limit(serve: Serve) -> None:
    def never(_: object) -> Reply:
        time.sleep(3)
        return OK

    client = CompletionClient("m", base_url=serve(never).url, retries=0, timeout_s=0.2)
    with pytest.raises(EngineError, match=r"did not answer.*at most 0\.2 s"):
        ask(client)


def test_no_more_at_once_and_no_more_a_minute_than_was_said(serve: Serve) -> None:
    now = {"open": 0, "most": 0}

    def slow(_: object) -> Reply:
        now["open"] += 1
        now["most"] = max(now["most"], now["open"])
        time.sleep(0.05)
        now["open"] -= 1
        return OK

    client = CompletionClient(
        "m", base_url=serve(slow).url, concurrency=2, requests_per_minute=6000
    )

    async def main() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.gather(*(client.complete(ASKED) for _ in range(8)))
        await client.aclose()
        return loop.time() - started

    assert asyncio.run(main()) >= 0.07
    assert now["most"] <= 2


def test_a_recording_is_answered_from_in_order_without_network_or_key(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "calls.jsonl"
    service = serve(Reply(answer("one")), Reply(answer("two")), Reply(answer("three")))
    recording = CompletionClient("m", base_url=service.url, record=path)
    first = [ask(recording).message.content for _ in range(2)]
    ask(recording, [Message("user", "other")])
    assert KEY not in path.read_text()
    monkeypatch.delenv("OPENAI_API_KEY")
    replay = CompletionClient("m", replay=path)
    assert ask(replay, [Message("user", "other")]).message.content == "three"
    assert [ask(replay).message.content for _ in range(2)] == first == ["one", "two"]
    assert replay.usage.prompt_tokens == 30
    with pytest.raises(EngineError, match=r"no further answer to this request.*'hello'"):
        ask(replay)
    with pytest.raises(EngineError, match="holds no answer to this request"):
        ask(replay, [Message("user", "new")])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"record": "a", "replay": "b"}, "record or replay, not both"),
        ({"replay": "/no/such"}, "cannot read the recording"),
        ({"concurrency": 0}, "concurrency=0 must be 1 or more"),
        ({"requests_per_minute": 0}, "must be above 0"),
        ({"prices": {"input": 1}}, "prices must be"),
        ({"prices": {"prompt": -1}}, "prices.prompt must be 0 or more"),
        ({"most_cost": 0}, "most_cost must be above 0"),
        ({"key_variable": "sk-a-key-itself"}, "Never write a key into a run file"),
        ({"key_variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY holds no key.*export it"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        CompletionClient("m", **options)
    assert "sk-a-key-itself" not in str(refused.value)


def test_a_damaged_recording_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"request": {}, "answer": {}}) + "\n{half")
    with pytest.raises(ConfigError, match="line 2 is no record"):
        CompletionClient("m", replay=path)


def test_an_endpoint_without_keys(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    service = serve(OK)
    client = CompletionClient("m", base_url=service.url, key_variable=None)
    assert ask(client).message.content == "hi"
    assert KEY not in service.keys[0]
