"""The calls of one message: order, ids, what runs at once, limits, and what is refused."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from agentrl.core.errors import EnvError, SandboxDiedError, ToolError
from agentrl.core.message import ToolCall, ToolSpec
from agentrl.core.protocols import ToolResult
from agentrl.tools import DispatchLimits, tool
from tests.tools.conftest import answers, called, texts

running: list[str] = []


@tool(read_only=True)
async def slow_async(value: int) -> str:
    """Answer late.

    Args:
        value: A number.
    """
    await asyncio.sleep(0.05)
    return f"slow {value}"


@tool(read_only=True)
def fast_sync(value: int) -> str:
    """Answer at once.

    Args:
        value: A number.
    """
    return f"fast {value}"


@tool(read_only=True)
async def raises(value: int) -> str:
    """Fail.

    Args:
        value: A number.
    """
    raise ToolError(f"no {value}")


class Journal:
    """Notes who begins and ends when."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def _run(self, name: str) -> str:
        self.events.append(f"{name} begins")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.events.append(f"{name} ends")
        return " ".join(self.events)

    @tool
    async def write(self, name: str) -> str:
        """Change something.

        Args:
            name: Who.
        """
        return await self._run(name)

    @tool(read_only=True)
    async def read(self, name: str) -> str:
        """Change nothing.

        Args:
            name: Who.
        """
        return await self._run(name)


@tool(may_end=True)
async def submit(answer: str) -> ToolResult:
    """Answer.

    Args:
        answer: It.
    """
    return ToolResult("received", final=True, answer=answer)


def test_parallel_calls_are_answered_in_call_order_with_their_ids() -> None:
    calls = [called(1, "slow_async", value=1), called(2, "fast_sync", value=2)]
    got = answers([slow_async, fast_sync, raises], *calls, called(3, "raises", value=3))
    assert [(one.role, one.tool_call_id, one.content) for one in got.messages] == [
        ("tool", "id-1", "slow 1"),
        ("tool", "id-2", "fast 2"),
        ("tool", "id-3", "error: no 3"),
    ]
    assert [one.problem for one in got.records] == ["", "", "error"]
    assert got.well_formed  # a tool that fails was called well
    assert got.metrics["tool_calls"] == 3
    assert got.metrics["tool_failure"] == got.metrics["tool_error"] == 1
    assert got.metrics["tool_s"] >= 0.04


def test_readers_run_at_once_and_writers_alone_in_their_place() -> None:
    names = ["read", "read", "write", "write", "read"]
    calls = [called(k, name, name=f"{name[0]}{k}") for k, name in enumerate(names)]
    last = texts(answers([Journal], *calls))[-1]
    assert last == (
        "r0 begins r1 begins r0 ends r1 ends w2 begins w2 ends w3 begins w3 ends r4 begins r4 ends"
    )


def test_an_unknown_tool_is_answered_with_what_there_is() -> None:
    got = answers([fast_sync, slow_async], called(1, "nope"), called(2, "fast_snyc", value=1))
    assert texts(got) == [
        "error: unknown tool 'nope'. There are: fast_sync, slow_async",
        "error: unknown tool 'fast_snyc'; did you mean 'fast_sync'? "
        "There are: fast_sync, slow_async",
    ]
    assert got.metrics["tool_failure"] == got.metrics["tool_unknown"] == 2
    assert not got.well_formed


def test_a_name_that_is_no_name_is_shown_short_and_clean() -> None:
    (text,) = texts(answers([fast_sync], ToolCall("1", "x\ud800\x00" * 1000, {})))
    assert text.startswith("error: unknown tool 'x\ufffd\ufffdx")
    assert len(text) < 200


def test_a_call_with_a_problem_is_never_dispatched() -> None:
    ran: list[int] = []

    def count(value: int) -> str:
        """Count.

        Args:
            value: A number.
        """
        ran.append(value)
        return ""

    broken = ToolCall("id-1", "count", {"value": 1}, problem="invalid JSON: \x00 at 3")
    unnamed = ToolCall("", "", {}, problem="the answer was cut")
    got = answers([count], broken, unnamed, called(3, "count", value=3))
    assert texts(got)[:2] == ["error: invalid JSON: \ufffd at 3", "error: the answer was cut"]
    assert [one.tool_call_id for one in got.messages] == ["id-1", None, "id-3"]
    assert ran == [3]
    assert got.metrics["tool_unreadable"] == 2


def test_arguments_that_do_not_fit_are_refused_and_the_tool_is_not_called() -> None:
    got = answers(
        [fast_sync],
        called(1, "fast_sync", value="x"),
        called(2, "fast_sync", valeu=1),
        called(3, "fast_sync", value="\ud800"),
        called(4, "fast_sync", value="7"),
    )
    first, second, third, fourth = texts(got)
    assert first.startswith("error: 'fast_sync' was not called: 'value': input should be a valid")
    assert "did you mean 'value'" in second
    assert (
        third
        == "error: 'fast_sync' was not called: 'value' holds '\\ud800', which no text may hold"
    )
    assert fourth == "fast 7"
    assert got.metrics["tool_arguments"] == 3


def test_the_surplus_of_a_message_is_answered_and_not_run() -> None:
    calls = [called(k, "fast_sync", value=k) for k in range(5)]
    got = answers([fast_sync], *calls, limits=DispatchLimits(calls=2))
    assert texts(got) == [
        "fast 0",
        "fast 1",
        *["error: not run: one message may hold 2 calls, this one had 5"] * 3,
    ]
    assert got.metrics["tool_surplus"] == 3
    assert not got.well_formed


def test_nothing_runs_after_the_call_that_ends_the_episode() -> None:
    calls = [called(1, "fast_sync", value=1), called(2, "submit", answer="42")]
    got = answers([fast_sync, submit], *calls, called(3, "fast_sync", value=3))
    assert texts(got) == ["fast 1", "received", "error: not run: the episode is over"]
    assert got.final == ToolResult("received", final=True, answer="42")
    assert got.well_formed


def test_seventy_thousand_characters_are_cut_to_the_budget() -> None:
    @tool(read_only=True)
    def dump(size: int) -> str:
        """Dump.

        Args:
            size: How much.
        """
        return "x" * size

    (text,) = texts(answers([dump], called(1, "dump", size=70_839)))
    assert len(text) <= 16_000
    assert "of 70,839 characters left out" in text

    sizes = (70_839, 100, 70_839)
    calls = [called(k, "dump", size=size) for k, size in enumerate(sizes)]
    got = answers([dump], *calls, limits=DispatchLimits(output_chars=2100))
    assert [len(one) for one in texts(got)] == [1000, 100, 1000]
    assert got.metrics["tool_output_cut"] == 2

    # "xx" is a token: 35,420 of them do not fit into 1,000.
    limits = DispatchLimits(output_tokens=1000, count_tokens=lambda text: (len(text) + 1) // 2)
    (text,) = texts(answers([dump], calls[0], limits=limits))
    assert 1800 < len(text) <= 2000


def test_whatever_else_a_tool_raises_ends_the_episode_by_name_and_stops_its_siblings() -> None:
    ended: list[str] = []

    @tool(read_only=True)
    async def patient() -> str:
        """Wait."""
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("patient")
        return ""

    @tool(read_only=True)
    async def broken() -> str:
        """Break."""
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(EnvError, match="the tool 'broken' raised KeyError: 'x'"):
        answers([patient, broken], called(1, "patient"), called(2, "broken"))
    assert ended == ["patient"]


class Unwilling(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("bad"), EnvError, "the tool 'fails' raised ValueError: bad"),
        (SandboxDiedError("gone"), SandboxDiedError, "the tool 'fails': gone"),
        (StopIteration("s"), EnvError, "raised (StopIteration|RuntimeError)"),
        (SystemExit(3), EnvError, r"raised SystemExit: it tried to end the process \(3\)"),
        (TimeoutError("net"), EnvError, "raised TimeoutError: net"),
        (asyncio.CancelledError(), EnvError, "cancelled by its own code"),
        (ExceptionGroup("two", [ToolError("a"), ValueError("b")]), EnvError, "ExceptionGroup"),
        (Unwilling(), EnvError, "raised Unwilling"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else "",
)
@pytest.mark.parametrize("manner", ["async", "thread", "quick"])
def test_errors_keep_their_class_and_name_the_tool(
    error: BaseException, kind: type[Exception], said: str, manner: str
) -> None:
    async def fails_async() -> str:
        """Fail."""
        raise error

    def fails() -> str:
        """Fail."""
        raise error

    if manner == "async":
        source: Any = tool(name="fails")(fails_async)
    else:
        source = tool(quick=manner == "quick")(fails)
    if isinstance(error, asyncio.CancelledError) and manner != "async":
        return  # code that is not async is not cancelled
    with pytest.raises(kind, match=said):
        answers([source], called(1, "fails"))


def test_tool_errors_that_come_together_are_told_together() -> None:
    async def both() -> str:
        """Fail twice."""
        raise ExceptionGroup("two", [ToolError("a"), ExceptionGroup("in", [ToolError("")])])

    got = texts(answers([both], called(1, "both")))
    assert got == ["error: a; the tool failed and gave no reason"]


def _broken(value: int) -> int:
    raise RuntimeError("oops")


def test_a_validator_that_breaks_is_the_tools_fault() -> None:
    def takes(value: Annotated[int, AfterValidator(_broken)]) -> str:
        """Take.

        Args:
            value: A number.
        """
        return ""

    with pytest.raises(EnvError, match="'takes' raised RuntimeError while its arguments were"):
        answers([takes], called(1, "takes", value=1))


def test_a_tool_ends_the_episode_only_if_it_is_said_to() -> None:
    async def sly() -> ToolResult:
        """End."""
        return ToolResult("", final=True)

    with pytest.raises(EnvError, match=r"'sly' ended the episode .* set may_end = True"):
        answers([sly], called(1, "sly"))


def test_what_a_tool_returns_wrongly_is_named() -> None:
    def promises() -> str:  # type: ignore[empty-body]
        """Promise."""

    def lists() -> list[Any]:
        """List."""
        return [object()]

    async def forgets() -> Any:
        """Forget an await."""
        return asyncio.sleep(0)

    for source, said in (
        (promises, "the tool 'promises' returned None, and its return type promises a value"),
        (lists, "the tool 'lists' returned a list, which has no JSON form"),
        (forgets, "the tool 'forgets' returned a coroutine that nobody awaits"),
    ):
        with pytest.raises(EnvError, match=said):
            answers([source], called(1, source.__name__))


def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    async def work(value: int) -> str:
        await asyncio.sleep(0)
        return f"did {value}"

    def decorated(value: int) -> Any:
        """Work.

        Args:
            value: A number.
        """
        return work(value)

    for source in (decorated, tool(quick=True, name="quick")(decorated)):
        name = getattr(source, "name", "decorated")
        assert texts(answers([source], called(1, name, value=2))) == ["did 2"]


def test_a_tool_with_its_own_spec_is_guarded_too() -> None:
    class Remote:
        spec = ToolSpec(
            "remote",
            "Far away.",
            {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
            read_only=True,
        )

        async def __call__(self, q: str) -> str:
            return q.upper()

    calls = [called(1, "remote", q="a"), called(2, "remote"), called(3, "remote", q="a", z=1)]
    got = texts(answers([Remote()], *calls))
    assert got[0] == "A"
    assert got[1] == "error: 'remote' was not called: missing: q"
    assert "unexpected keyword argument 'z'" in got[2]


def test_ten_thousand_calls_in_a_message_are_each_answered() -> None:
    started = time.perf_counter()
    calls = [called(k, "fast_sync", value=k) for k in range(10_000)]
    got = answers([fast_sync], *calls)
    assert len(got.messages) == 10_000
    assert time.perf_counter() - started < 30
