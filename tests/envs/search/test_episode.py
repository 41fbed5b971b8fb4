"""Episodes of the search environment: what is shown, what ends them, what they are worth."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import DataError
from agentrl.core.message import Message, ToolCall
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.search import SearchFactory
from agentrl.envs.search.commands import as_call, as_command
from agentrl.envs.search.library import NOTHING, Library, QuickLookup
from agentrl.envs.search.sources import Document
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS
from tests.envs.search.test_sources import DOCUMENTS, QUESTIONS, lines, splits

SMALL: dict[str, Any] = {
    "regions": 5,
    "tasks_per_split": {"train": 30, "validation": 9, "test": 9},
}


def call(tool: str, **arguments: Any) -> Message:
    return Message("assistant", "", tool_calls=(ToolCall("c", tool, arguments),))


def say(text: str) -> Message:
    return Message("assistant", text)


def played(
    factory: SearchFactory, task: Task, *actions: Message
) -> tuple[Observation, list[StepResult]]:
    async def episode() -> tuple[Observation, list[StepResult]]:
        env = await factory.make(task, seed=0)
        first = await env.reset()
        try:
            return first, [await env.step(action) for action in actions]
        finally:
            await env.aclose()

    return asyncio.run(episode())


@pytest.fixture
def own(tmp_path: Path) -> SearchFactory:
    return of_files(tmp_path)


def of_files(folder: Path, **options: Any) -> SearchFactory:
    corpus = lines(folder / "corpus.jsonl", DOCUMENTS)
    questions = splits(folder, train=QUESTIONS[2:], test=QUESTIONS[:1])
    return SearchFactory(corpus, questions, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"action_format": "bare", "text": "compact", "results": 1, "max_steps": 4},
        {"action_format": "tagged", "reward": "f1", "hops": [2]},
    ],
)
def test_the_embedded_environment_keeps_the_contract(options: dict[str, Any]) -> None:
    assert_contract(CHECKS, lambda: SearchFactory(**SMALL, **options))


def test_files_keep_the_contract(tmp_path: Path) -> None:
    assert_contract(CHECKS, lambda: of_files(tmp_path))


def test_a_question_is_answered_with_tool_calls(own: SearchFactory) -> None:
    (task,) = own.tasks("train")
    first, (found, again, end) = played(
        own,
        task,
        call("search", query="Bado Kirn"),
        call("search", query="mayor"),
        call("finish", answer="m voss"),
    )
    assert first.messages[0].content.endswith("\nQuestion: " + QUESTIONS[2]["question"])
    assert found.observation.messages == (
        Message("tool", "[1] Bado Kirn lives in Sela Ford.", tool_call_id="c"),
    )
    assert again.observation.messages[0].content == (
        "[1] Sela Ford\nThe mayor of Sela Ford is Mira Voss."
    )
    assert [one.reward for one in (found, again, end)] == [0.0, 0.0, 1.0]
    assert (end.terminated, end.success, task.kind) == (True, True, "2-hop")


def test_commands_play_the_same_episode(tmp_path: Path) -> None:
    factory = of_files(tmp_path, action_format="bare")
    (task,) = factory.tasks("train")
    first, (found, odd, end) = played(
        factory, task, say("search Bado Kirn"), say("Bado Kirn"), say(" FINISH  Mira Voss ")
    )
    assert factory.tools == ()
    assert "finish ANSWER" in first.messages[0].content
    assert found.observation.messages == (Message("user", "[1] Bado Kirn lives in Sela Ford."),)
    assert (odd.action_valid, odd.observation.messages[0].role) == (False, "user")
    assert "say 'search WORDS' or 'finish ANSWER'" in odd.observation.messages[0].content
    assert (end.reward, end.success) == (1.0, True)


def test_f1_rewards_a_part_of_the_answer_and_success_stays_exact(tmp_path: Path) -> None:
    for reward, worth in (("em", 0.0), ("f1", 2 / 3)):
        factory = of_files(tmp_path, reward=reward)
        (task,) = factory.tasks("train")
        _, (end,) = played(factory, task, call("finish", answer="Voss"))
        assert end.reward == pytest.approx(worth)
        assert (end.terminated, end.success) == (True, False)


def test_the_limit_of_turns_truncates(tmp_path: Path) -> None:
    factory = of_files(tmp_path, max_steps=3)
    (task,) = factory.tasks("train")
    _, results = played(factory, task, *[call("search", query="Sela")] * 3)
    assert [one.truncated for one in results] == [False, False, True]
    assert (results[-1].terminated, results[-1].reward, results[-1].success) == (False, 0.0, False)
    assert results[-1].observation.messages  # the last search is answered all the same


def test_the_anchor_is_what_was_seen_however_it_was_found(own: SearchFactory) -> None:
    (task,) = own.tasks("train")
    searches = [call("search", query=one) for one in ("Bado lives", "mayor", "nobody", "Kirn")]
    first, results = played(own, task, *searches)
    anchors = [first.anchor, *(one.observation.anchor for one in results)]
    assert anchors == [
        "seen: nothing",
        "seen: 7",
        "seen: 2; 7",
        "seen: 2; 7",  # nothing was found, and nothing is known that was not
        "seen: 2; 7",
    ]
    _, other_way = played(own, task, *searches[1::-1])
    assert other_way[-1].observation.anchor == anchors[2]


def test_results_are_as_many_and_as_long_as_asked() -> None:
    documents = [Document(str(n), f"Title {n}", f"bado {'x' * 30}") for n in range(5)]
    lookup = QuickLookup(Library(documents, results=2, chars=12))
    assert lookup("bado") == "[1] Title 0\nbado\n\n[2] Title 1\nbado"
    assert lookup("nowhere") == NOTHING
    assert lookup.seen() == "0; 1"


def test_titles_are_found_in_text_the_longest_first() -> None:
    titles = ("Sela Ford", "Sela", "Bado Kirn")
    library = Library([Document(one, one, "x") for one in titles], results=1, chars=99)
    told = "The home of (Bado Kirn) is sela ford, not Sela. Bado Kirn said so."
    assert library.titles_in(told) == ["Bado Kirn", "Sela Ford", "Sela"]


def test_a_command_means_a_call_and_back() -> None:
    made = as_call("search  Bado  Kirn ")
    assert (made.name, made.arguments, made.problem) == ("search", {"query": "Bado  Kirn"}, None)
    assert as_command(made) == "search Bado  Kirn"
    for odd in ("", "search", "finish  ", "searching x", "look", "search\nx"):
        assert as_call(odd).problem is not None


def test_the_expert_solves_and_the_clumsy_one_wanders_among_names_that_were_shown() -> None:
    factory = SearchFactory(**SMALL, action_format="bare", text="compact", results=1, max_steps=6)
    solved, trainable, steps = 0, 0, 0
    for task in factory.tasks("train"):
        exact = list(factory.demonstrate(task, seed=1, noise=0.0))
        assert len(exact) == task.payload["hops"] + 1
        shown = ""
        clumsy = list(factory.demonstrate(task, seed=1, noise=0.5))
        for step in clumsy:
            shown += " ".join(one.content for one in step.observation.messages)
            verb, _, name = step.action.content.partition(" ")
            assert verb in ("search", "finish")
            assert name in shown
        solved += clumsy[-1].action == exact[-1].action
        trainable += sum(one.trainable for one in clumsy)
        steps += len(clumsy)
        assert clumsy == list(factory.demonstrate(task, seed=1, noise=0.5))
    assert 0 < solved < 30
    assert 0.3 < trainable / steps < 0.7


def test_a_task_of_another_environment_is_refused() -> None:
    factory = SearchFactory(**SMALL)
    with pytest.raises(DataError, match="plays only the tasks that its factory lists"):
        asyncio.run(factory.make(Task("t", "toy", "train", {"rooms": 3}), seed=0))


def test_braces_in_questions_and_instructions_stay(tmp_path: Path) -> None:
    corpus = lines(tmp_path / "c.jsonl", DOCUMENTS)
    asked = [{"question": f"What is {{x}} in {n}?", "answers": ["y"]} for n in range(2)]
    given = splits(tmp_path, train=asked[:1], test=asked[1:])
    factory = SearchFactory(corpus, given, instruction="{json} {question} {0}")
    first, _ = played(factory, factory.tasks("train")[0])
    assert first.messages[0].content == "{json} What is {x} in 0? {0}"
