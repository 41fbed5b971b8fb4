"""An agent of somebody else's plays: what it asks is sampled once, recorded and learnt from."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentrl.agents.loop import Budgets
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.trajectory import Sampling, StopReason, Trajectory
from agentrl.envs.blackbox import BlackBoxFactory, Episode
from agentrl.testing.checking import check_plugin
from tests.envs.blackbox.conftest import PROBLEMS, Told, ask, opened, played, post, script, user

One = Callable[..., Trajectory]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def twice(episode: Episode) -> float:
    """Asks, tells what it was answered, asks again."""
    messages: list[Any] = [user(f"number {episode.problem['number']}?")]
    messages += [ask(episode, messages), user("sure?")]
    return float(ask(episode, messages)["content"] == "yes")


def test_what_is_asked_is_what_the_policy_sees_and_the_answer_is_what_it_sampled(one: One) -> None:
    trajectory = one(twice, script("7", "yes"))
    assert trajectory.failure is None
    assert (trajectory.reward, trajectory.success) == (1.0, True)
    assert [step.action.content for step in trajectory.steps] == ["7", "yes"]
    assert [one.content for one in trajectory.steps[1].shown] == ["sure?"]
    assert not trajectory.steps[1].result.observation.messages  # type: ignore[union-attr]
    (segment,) = trajectory.segments()
    assert (
        segment.token_ids == trajectory.steps[1].prompt_ids + trajectory.steps[1].sample.token_ids
    )


def test_an_agent_that_rewrites_its_prompt_begins_a_new_segment(one: One) -> None:
    def forgets(episode: Episode) -> bool:
        ask(episode, [user("a long story")])
        ask(episode, [user("the story in short"), user("and now?")])
        return True

    trajectory = one(forgets, script("one", "two"))
    first, second = trajectory.segments()
    assert (first.steps, second.steps) == ((0,), (1,))
    assert trajectory.steps[0].result is not None
    assert trajectory.steps[0].result.observation.fresh
    text = "".join(map(chr, trajectory.steps[1].prompt_ids[:-1]))
    assert text == "the story in shortand now?"  # nothing of the first conversation
    assert sum(len(step.sample.token_ids) for step in trajectory.steps) == 8  # with stop tokens


def test_after_it_the_new_conversation_goes_on(one: One) -> None:
    def forgets(episode: Episode) -> bool:
        ask(episode, [user("a")])
        messages: list[Any] = [user("b")]
        messages += [ask(episode, messages), user("c")]
        ask(episode, messages)
        return True

    trajectory = one(forgets, script("1", "2", "3"))
    assert [segment.steps for segment in trajectory.segments()] == [(0,), (1, 2)]


@pytest.mark.parametrize(
    "back",
    [
        {"role": "assistant", "content": "  7 \n"},
        {"role": "assistant", "content": [{"type": "text", "text": "7"}]},
        {"role": "assistant", "content": "7", "refusal": None, "name": "x"},
    ],
)
def test_white_space_and_parts_make_no_other_conversation(back: Any, one: One) -> None:
    def tidy(episode: Episode) -> bool:
        ask(episode, [user("a")])
        ask(episode, [user("a"), back, user("b")])
        return True

    assert len(one(tidy, script("7", "8")).segments()) == 1


def test_calls_of_tools_that_the_agent_offers(one: One) -> None:
    def calls(episode: Episode) -> bool:
        messages: list[Any] = [user("2 and 2?")]
        said = ask(episode, messages, tools=[TOOL])
        (call,) = said["tool_calls"]
        assert said["content"] is None
        assert json.loads(call["function"]["arguments"]) == {"a": 2}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "4"}
        messages += [said, result]
        return bool(ask(episode, messages, tools=[TOOL])["content"] == "four")

    call = '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
    trajectory = one(calls, script(call, "four"))
    assert (trajectory.success, len(trajectory.segments())) == (True, 1)
    assert trajectory.steps[0].action_key == 'add {"a":2}'
    assert "".join(map(chr, trajectory.steps[0].sample.token_ids[:-1])) == call


def test_a_call_that_cannot_be_read_is_text_for_the_agent_to_judge(one: One) -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"a": </tool_call>'

    def calls(episode: Episode) -> float:
        said = ask(episode, [user("2 and 2?")], tools=[TOOL])
        return float("tool_calls" in said or said["content"] != broken)

    trajectory = one(calls, script(broken))
    assert (trajectory.reward, trajectory.success) == (0.0, False)
    assert trajectory.steps[0].parse_status == "parse_error"


def test_a_cut_answer_says_so(one: One) -> None:
    def reads(episode: Episode) -> bool:
        body = {"messages": [user("a")], "tools": [TOOL]}
        answered = post(f"{episode.base_url}/chat/completions", body, episode.api_key)
        (choice,) = answered["choices"]
        return bool(choice["finish_reason"] == "length" and choice["message"]["content"] == "abc")

    trajectory = one(reads, script("abcdef"), sampling=Sampling(max_tokens=3))
    assert trajectory.success
    assert trajectory.steps[0].parse_status == "truncated"


def test_what_a_client_asks_again_is_sampled_once(one: One) -> None:
    def impatient(episode: Episode) -> bool:
        body = {"messages": [user("a")]}
        url = f"{episode.base_url}/chat/completions"
        first = post(url, body, episode.api_key)
        again = post(url, body, episode.api_key, **{"x-stainless-retry-count": "1"})
        other = post(url, body, episode.api_key)  # asked anew: that is another sample
        contents = [one["choices"][0]["message"]["content"] for one in (first, again, other)]
        return contents == ["1", "1", "2"]

    trajectory = one(impatient, script("1", "2", "3"))
    assert (trajectory.success, len(trajectory.steps)) == (True, 2)


def test_two_conversations_under_one_key_are_steps_of_one_episode(one: One) -> None:
    def split(episode: Episode) -> bool:
        said: list[str] = []
        helpers = [
            threading.Thread(target=lambda: said.append(ask(episode, [user("x")])["content"]))
            for _ in range(4)
        ]
        for one in helpers:
            one.start()
        for one in helpers:
            one.join()
        return sorted(said) == ["1", "2", "3", "4"]

    trajectory = one(split, script("1", "2", "3", "4"))
    assert (trajectory.success, len(trajectory.segments())) == (True, 4)


def test_the_official_client_plain_and_streamed(one: One) -> None:
    from openai import AsyncOpenAI

    async def official(episode: Episode) -> bool:
        async with AsyncOpenAI(**episode.client) as client:
            assert [one.id async for one in client.models.list()] == [episode.model]
            messages: list[Any] = [user("a")]
            reply = await client.chat.completions.create(model=episode.model, messages=messages)
            messages += [reply.choices[0].message, user("b")]
            streamed = await client.chat.completions.create(
                model=episode.model, messages=messages, stream=True
            )
            parts = [one.choices[0].delta.content or "" async for one in streamed]
            return (reply.choices[0].message.content, "".join(parts)) == ("one", "two")

    trajectory = one(official, script("one", "two"))
    assert (trajectory.success, len(trajectory.segments())) == (True, 1)


def test_the_official_client_and_tools(one: One) -> None:
    from openai import OpenAI

    def official(episode: Episode) -> bool:
        with OpenAI(**episode.client) as client:
            tools: list[Any] = [TOOL]
            messages: list[Any] = [user("a")]
            with client.chat.completions.stream(
                model="m", messages=messages, tools=tools
            ) as stream:
                said = stream.get_final_completion().choices[0].message
            assert said.tool_calls is not None
            (call,) = said.tool_calls
            messages += [said, {"role": "tool", "tool_call_id": call.id, "content": "4"}]
            reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
            return reply.choices[0].message.content == "four"

    call = '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
    trajectory = one(official, script(call, "four"))
    assert (trajectory.success, len(trajectory.segments())) == (True, 1)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "the body is no JSON"),
        (b"\xff\xfe", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        ([], "must be a JSON object"),
        ({}, "messages must be a list"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": "hello"}, "messages must be a list"),
        ({"messages": [user("a")], "n": 2}, "n=2 is not offered"),
        ({"messages": [user("a")], "logprobs": True}, "logprobs=True is not offered"),
        ({"messages": [user("a")], "stop": ["\n"]}, "stop=.* is not offered"),
        ({"messages": [user("a")], "response_format": {"type": "json_object"}}, "not offered"),
        ({"messages": [{"role": "narrator", "content": "a"}]}, "role must be one of"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "must name the call"),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "nothing to answer"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "'image_url'; the policy reads text only",
        ),
    ]
    + [
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
                    }
                ]
            },
            "must be a JSON object as text",
        )
        for arguments in ("{", "[" * 100_000, "9" * 5000)
    ]
    + [
        ({"messages": [user("a")], "tools": ["search"]}, r"tools\[0\] must be"),
        ({"messages": [user("a")], "tools": 5}, "tools must be a list"),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "tool_calls must be a list"),
    ],
)
def test_a_request_that_is_none_is_explained_and_costs_nothing(
    body: Any, text: str, one: One
) -> None:
    def clumsy(episode: Episode) -> bool:
        with pytest.raises(Told, match=text) as told:
            post(f"{episode.base_url}/chat/completions", body, episode.api_key)
        return told.value.status == 400 and ask(episode, [user("a")])["content"] == "1"

    trajectory = one(clumsy, script("1"))
    assert (trajectory.success, len(trajectory.steps)) == (True, 1)


def test_text_that_is_no_unicode_costs_no_answer(one: One) -> None:
    def broken(episode: Episode) -> bool:
        said: str = ask(episode, [user("\ud800")], model="\ud800")["content"]
        return said == "1"

    assert one(broken, script("1")).success


def test_a_key_that_is_no_episodes_and_one_whose_episode_is_over() -> None:
    keys: list[Episode] = []

    def remembers(episode: Episode) -> bool:
        keys.append(episode)
        with pytest.raises(Told, match="no episode has this API key") as told:
            ask(Episode({}, episode.base_url, "another", 0), [user("a")])
        assert told.value.status == 401
        ask(episode, [user("a")])
        return True

    with opened(remembers) as factory:
        assert played(factory, script("1"))[0].success
        with pytest.raises(Told, match="this episode is over: its environment was closed") as told:
            ask(keys[0], [user("a")])
        assert told.value.status == 410


def test_whoever_goes_on_asking_after_the_end_is_refused(one: One) -> None:
    ended: list[BaseException] = []
    done = threading.Event()

    def endless(episode: Episode) -> bool:
        messages: list[Any] = [user("a")]
        try:
            while True:
                messages += [ask(episode, messages), user("b")]
        except Told as error:
            ended.append(error)
            done.set()
            raise

    trajectory = one(endless, script(*"12345678"), budgets=Budgets(max_steps=3))
    assert (trajectory.stop_reason, trajectory.failure) == (StopReason.MAX_STEPS, None)
    assert (len(trajectory.steps), trajectory.success) == (3, False)
    assert done.wait(30)
    assert "410" in str(ended[0])


def raises(episode: Episode) -> bool:
    ask(episode, [user("a")])
    raise ValueError("a broken agent")


def exits(episode: Episode) -> bool:
    sys.exit(3)


@pytest.mark.parametrize(
    ("agent", "place", "text"),
    [
        (raises, "step", "the agent failed: it raised ValueError: a broken agent"),
        (exits, "reset", "failed before it asked anything: it raised SystemExit: 3"),
        (lambda episode: 1.0, "reset", "ended with 1.0 before it asked its model anything"),
        (lambda episode: ask(episode, [user("a")]), "step", "expected its reward"),
        (lambda episode: ask(episode, [user("a")]) and None, "step", "returned None"),
        (lambda episode: ask(episode, [user("a")]) and float("nan"), "step", "returned nan"),
        (lambda episode: ask(episode, [user("a")]) and {"reward": "1"}, "step", "expected its"),
    ],
)
def test_an_agent_that_breaks_is_an_infra_failure_and_no_reward(
    agent: Any, place: str, text: str, one: One
) -> None:
    trajectory = one(agent, script("1"))
    assert trajectory.failure is not None
    assert trajectory.failure.boundary == place
    assert text in trajectory.failure.message
    assert trajectory.reward is None


@pytest.mark.parametrize(
    ("result", "reward", "success"),
    [
        (True, 1.0, True),
        (0, 0.0, False),
        (0.5, 0.5, True),
        ({"reward": 0.2}, 0.2, False),
        ({"reward": 0.2, "success": True}, 0.2, True),
        ({"reward": None}, None, False),
    ],
)
def test_what_an_agent_may_return(
    result: Any, reward: float | None, success: bool, one: One
) -> None:
    def returns(episode: Episode) -> Any:
        ask(episode, [user("a")])
        return result

    trajectory = one(returns, script("1"), success_at=0.5)
    assert trajectory.failure is None
    assert (trajectory.reward, trajectory.success) == (reward, success)


PROGRAM = """
import json, os, sys, urllib.request
def ask(messages):
    asked = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]
problem = json.loads(os.environ["AGENTRL_PROBLEM"])
said = ask([{"role": "user", "content": str(problem["number"])}])
print("a word in between")
"""


def test_a_program_plays(one: One) -> None:
    code = PROGRAM + "print(json.dumps({'reward': 0.5, 'success': said['content'] == 'yes'}))"
    trajectory = one(None, script("yes"), command=[sys.executable, "-c", code])
    assert (trajectory.reward, trajectory.success) == (0.5, True)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("sys.exit('no disk left')", "exit status 1. It printed last:\na word in between\nno disk"),
        ("", "the last line that it printed must be its result as JSON.*it was: 'a word"),
    ],
)
def test_a_program_that_breaks_is_quoted(end: str, text: str, one: One) -> None:
    trajectory = one(None, script("yes"), command=[sys.executable, "-c", PROGRAM + end])
    assert trajectory.failure is not None
    import re

    assert re.search(text, trajectory.failure.message)


def test_a_program_that_does_not_end_is_killed_with_its_children(one: One, tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = PROGRAM + (
        "import subprocess\n"
        f"one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(child)!r}, 'w').write(str(one.pid))\n"
        "ask([{'role': 'user', 'content': 'more'}]); one.wait()"
    )
    budgets = Budgets(max_steps=1)
    trajectory = one(None, script("1", "2"), command=[sys.executable, "-c", code], budgets=budgets)
    assert trajectory.stop_reason is StopReason.MAX_STEPS
    deadline = time.monotonic() + 30
    pid = int(child.read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_is_not_there(one: One) -> None:
    trajectory = one(None, script("1"), command=["/no/such/agent"])
    assert trajectory.failure is not None
    assert "cannot run the agent ['/no/such/agent']" in trajectory.failure.message


def test_offered_episodes_are_claimed_and_played_from_outside() -> None:
    with opened() as factory:
        address = factory.endpoint().address

        broken = iter([True])

        def worker() -> None:
            claimed = post(f"{address}/episodes", {})
            fails = next(broken, False)  # the first that is claimed, whoever claims it
            episode = Episode(claimed["problem"], claimed["base_url"], claimed["key"], 0)
            result = f"{address}/episodes/{claimed['key']}/result"
            said = ask(episode, [user(f"number {episode.problem['number']}?")])
            post(result, {"error": "no disk"} if fails else {"reward": float(said["content"])})

        workers = [threading.Thread(target=worker) for _ in range(4)]
        for one in workers:
            one.start()
        recorded = played(factory, script("1"), size=3, retries=1)
        for one in workers:
            one.join()
    failed = [one for one in recorded if one.failure]
    assert len(recorded) == 4
    assert [one.failure.message for one in failed if one.failure] == [
        "the agent failed: its player said: no disk"
    ]
    assert [one.reward for one in recorded if not one.failure] == [1.0] * 3


def test_many_at_once() -> None:
    with opened(twice) as factory:
        recorded = played(factory, script("7", "yes"), size=64)
    assert len({one.trial for one in recorded}) == 64
    assert all(one.success for one in recorded)


def test_closing_ends_the_endpoint_and_it_can_be_opened_again() -> None:
    before = threading.active_count()
    with opened(twice) as factory:
        for _ in range(2):
            assert played(factory, script("7", "yes"))[0].success
            url = factory.endpoint().url
            asyncio.run(factory.aclose())
            with pytest.raises(OSError, match="refused"):
                ask(Episode({}, url, "key", 0), [user("a")])
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_port_that_is_taken_is_said() -> None:
    with opened(twice) as first:
        port = int(first.endpoint().address.rpartition(":")[2])
        with opened(twice, port=port) as second, pytest.raises(ConfigError, match="cannot listen"):
            second.endpoint()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"agent": twice, "command": ["a"]}, "give agent or command, not both"),
        ({"command": "python agent.py"}, "command must be a list of texts"),
        ({"command": []}, "command must be a list of texts"),
        ({"agent": 7}, "agent must be a function, got 7"),
        ({"anchor": "state"}, "anchor must be 'new', 'conversation' or null"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BlackBoxFactory(PROBLEMS, **options)


def test_an_expert_plays_in_the_policys_place() -> None:
    def expert(conversation: Any, task: Any, rng: Any, noise: float) -> str:
        return "yes" if len(conversation) > 1 else "7"

    with opened(twice, expert=expert) as factory:
        steps = list(factory.demonstrate(factory.tasks("train")[0], seed=1, noise=0.0))
    assert [one.action.content for one in steps] == ["7", "yes"]
    assert [one.content for one in steps[1].observation.messages] == ["sure?"]

    with opened(twice, expert=lambda *_: None) as factory, pytest.raises(DataError, match="None"):
        list(factory.demonstrate(factory.tasks("train")[0], seed=1, noise=0.0))


def test_the_contract_of_environments_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "examples")
    assert [one for one in check_plugin("env", "blackbox_agent:cards") if not one.ok] == []
