"""Transcript and window: exact views."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message
from agentrl.core.protocols import Memory, View
from agentrl.core.trajectory import Step
from agentrl.memory.transcript import Transcript
from agentrl.memory.window import Window
from agentrl.testing.contract import Finding, assert_contract, run_checks
from agentrl.testing.contracts.memory import CHECKS, history

STEPS = history("e", length=5)
NEWEST = (Message("user", "e: now"),)


def view(memory: Memory, steps: Sequence[Step]) -> View:
    return asyncio.run(memory.view(steps, NEWEST, budget_tokens=1))


def texts(memory: Memory, steps: Sequence[Step]) -> list[str]:
    return [message.content.removeprefix("e: ") for message in view(memory, steps).messages]


@pytest.mark.parametrize("memory", [Transcript, Window, lambda: Window(0), lambda: Window(100)])
def test_contract(memory: type[Memory]) -> None:
    assert_contract(CHECKS, memory)


def test_the_transcript_is_everything_in_order() -> None:
    assert texts(Transcript(), STEPS[:3]) == [
        *("rules", "find it", "go 0"),
        *("room 1", "go 1"),
        *("room 2", "go 2"),
        "now",
    ]
    assert not view(Transcript(), STEPS).rewritten


def test_the_window_shows_the_beginning_and_the_last_steps() -> None:
    window = Window(2)
    assert texts(window, STEPS) == [
        *("rules", "find it"),
        *("room 3", "go 3"),
        *("room 4", "go 4"),
        "now",
    ]
    assert view(window, STEPS).rewritten


def test_the_window_only_grows_until_it_is_full() -> None:
    for length in range(6):
        shown = view(Window(2), STEPS[:length])
        assert shown.rewritten == (length > 2)
        if length <= 2:
            assert shown == view(Transcript(), STEPS[:length])


def test_a_window_of_nothing_shows_the_beginning_and_the_newest() -> None:
    assert texts(Window(0), STEPS) == ["rules", "find it", "now"]
    assert texts(Window(0), ()) == ["now"]


def test_calls_that_served_the_memory_are_not_history() -> None:
    summary = replace(STEPS[1], kind="summary", result=None)
    steps = (STEPS[0], summary, STEPS[2])
    for memory in (Transcript(), Window(2)):
        assert texts(memory, steps) == ["rules", "find it", "go 0", "room 2", "go 2", "now"]


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_a_window_of_no_size_is_refused(steps: int) -> None:
    with pytest.raises(ConfigError, match="must be a whole number, 0 or more"):
        Window(steps)


class Planted:
    """A memory with one fault, to see the contract go red."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    async def view(
        self, steps: Sequence[Step], newest: Sequence[Message], *, budget_tokens: int
    ) -> View:
        shown = await Transcript().view(steps, newest, budget_tokens=budget_tokens)
        messages = shown.messages
        if steps and self.fault == "silent":
            messages = messages[1:]
        elif self.fault == "cut":
            messages = messages[:-1]
        elif steps and self.fault == "forgets":
            return View(tuple(newest), rewritten=True)
        elif self.fault == "invents" and steps:
            made_up = Message("assistant", "I am done")
            return View((*messages[:-1], made_up, messages[-1]), rewritten=True)
        return replace(shown, messages=messages)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("silent", "says ``rewritten``"),
        ("cut", "ends with the newest"),
        ("forgets", "What the first prompt showed"),
        ("invents", "Assistant messages"),
    ],
)
def test_the_contract_sees_a_planted_fault(fault: str, rule: str) -> None:
    findings: list[Finding] = asyncio.run(run_checks(CHECKS, lambda: Planted(fault)))
    assert any(rule in one.rule for one in findings if not one.ok)
