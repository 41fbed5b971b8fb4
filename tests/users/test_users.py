"""Simulated users, and a judge: models behind an endpoint, or a script."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.completions import CompletionClient
from agentrl.core.errors import ConfigError, EnvError, UserError
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import UserSimulator
from agentrl.core.task import Task
from agentrl.envs.tools import Situation, ToolEnvFactory
from agentrl.envs.tools.judge import ModelJudge
from agentrl.users import ModelUser, ScriptedUser
from tests.completions.conftest import Reply, Serve, _key, answer, serve

__all__ = ["_key", "serve"]  # fixtures


def reply(user: UserSimulator, *conversation: Message) -> Message | None:
    async def main() -> Message | None:
        try:
            return await user.reply(conversation)
        finally:
            if isinstance(user, ModelUser):
                await user._client.aclose()

    return asyncio.run(main())


def test_a_model_is_shown_the_conversation_turned_round(serve: Serve) -> None:
    service = serve(Reply(answer("My flight, please.")), Reply(answer(" ###STOP### ")))
    client = CompletionClient("m", base_url=service.url)
    user = ModelUser(client, "You are Ann.", seed=3)
    first = reply(user)
    assert first == Message("user", "My flight, please.")
    assert first is not None
    assert reply(user, first, Message("assistant", "Which one?")) is None
    opening = {"role": "user", "content": "Hello. How can I help you today?"}
    assert service.asked[1]["messages"] == [
        {"role": "system", "content": "You are Ann."},
        opening,
        {"role": "assistant", "content": "My flight, please."},
        {"role": "user", "content": "Which one?"},
    ]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (Reply(answer("  ")), "said nothing, twice"),
        (Reply({}, 500), "the simulated user: the endpoint"),
    ],
)
def test_a_model_that_fails_is_the_users_failure(serve: Serve, said: Reply, text: str) -> None:
    client = CompletionClient("m", base_url=serve(said).url, retries=0)
    with pytest.raises(UserError, match=text):
        reply(ModelUser(client, "You are Ann."))


@pytest.mark.parametrize("said", ["Yes, go ahead ###STOP###", "###STOP###Yes, go ahead"])
def test_e1_e2_what_is_said_while_leaving_is_heard_and_may_be_acted_on(
    serve: Serve, said: str
) -> None:
    service = serve(Reply(answer("Cancel it.")), Reply(answer(said)))
    client = CompletionClient("m", base_url=service.url)
    done: list[str] = []

    def cancel() -> str:
        """Cancel it."""
        done.append("cancelled")
        return "done"

    factory = ToolEnvFactory(
        [{"question": str(n), "answer": "x"} for n in range(9)],
        [cancel],
        lambda situation: bool(done),
        instruction="",
        user=lambda task, seed: ModelUser(client, "You are Ann."),
    )

    async def main() -> None:
        env = await factory.make(factory.tasks("train")[0], seed=1)
        await env.reset()
        agreed = await env.step(Message("assistant", "Shall I?"))
        assert [one.content for one in agreed.observation.messages] == ["Yes, go ahead"]
        assert not agreed.terminated
        call = ToolCall("1", "cancel", {})
        assert not (await env.step(Message("assistant", "", tool_calls=(call,)))).terminated
        end = await env.step(Message("assistant", "It is done."))
        assert (end.terminated, end.success) == (True, True)
        assert end.metrics["premature_stop"] == 1
        await env.aclose()
        await client.aclose()

    asyncio.run(main())
    assert len(service.asked) == 2  # who has left is not asked again


def test_e4_an_empty_reply_is_asked_for_once_more_and_leaves_no_trace(serve: Serve) -> None:
    service = serve(Reply(answer("")), Reply(answer("Hello.")))
    user = ModelUser(CompletionClient("m", base_url=service.url), "You are Ann.")
    assert reply(user) == Message("user", "Hello.")
    assert "You said nothing" in service.asked[1]["messages"][-1]["content"]
    assert len(service.asked[0]["messages"]) == 2


def test_a_script_is_said_in_order_and_then_the_user_leaves() -> None:
    user = ScriptedUser(["one", "two"])
    assert isinstance(user, UserSimulator)
    said: list[Message] = []
    for expected in ("one", "two"):
        next_one = reply(user, *said)
        assert next_one == Message("user", expected)
        assert next_one is not None
        said += [next_one, Message("assistant", "hm")]
    assert reply(user, *said) is None
    for wrong in ([], "one", [" "]):
        with pytest.raises(ConfigError, match="a list of lines"):
            ScriptedUser(wrong)


def test_an_environment_with_a_scripted_user() -> None:
    factory = ToolEnvFactory(
        [{"question": str(n), "answer": "x"} for n in range(9)],
        [],
        lambda situation: situation.answer == "bye",
        instruction="Be kind.",
        user=lambda task, seed: ScriptedUser(["hello", "and?"]),
    )

    async def main() -> None:
        env = await factory.make(factory.tasks("train")[0], seed=1)
        shown = (await env.reset()).messages
        assert [one.content for one in shown] == ["Be kind.", "hello"]
        assert not (await env.step(Message("assistant", "hm"))).terminated
        end = await env.step(Message("assistant", "bye"))
        assert (end.terminated, end.success) == (True, True)
        await env.aclose()

    asyncio.run(main())


def judged(judge: ModelJudge) -> tuple[float | None, bool]:
    task = Task("t", "e", "test", {"question": "2+2?"})
    situation = Situation(task, 0, (Message("user", "2+2?"),), (), "four", ())

    async def main() -> tuple[float | None, bool]:
        try:
            score = await judge(situation)
        finally:
            await judge._client.aclose()
        return score.reward, score.success

    return asyncio.run(main())


def test_a_judge_is_asked_for_a_score_and_once_more_where_it_gives_none(serve: Serve) -> None:
    service = serve(
        Reply(answer("Well done!")), Reply(answer('I say: {"reason": "right", "score": 0.9}'))
    )
    client = CompletionClient("m", base_url=service.url)
    assert judged(ModelJudge(client, "It is 4.", success_at=0.8)) == (0.9, True)
    asked = service.asked[0]["messages"][1]["content"]
    assert "The criteria:\nIt is 4." in asked
    assert "The answer:\nfour" in asked


@pytest.mark.parametrize("said", ['{"score": 2}', '{"score": true}', '{"score": "1"}', "{", "[1]"])
def test_what_is_no_score_is_an_episode_without_one(serve: Serve, said: str) -> None:
    client = CompletionClient("m", base_url=serve(Reply(answer(said))).url)
    with pytest.raises(EnvError, match="gave no score from 0 to 1"):
        judged(ModelJudge(client, lambda situation: "It is 4."))
