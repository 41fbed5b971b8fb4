"""What a tool list may hold, what is made for each episode, and that it is closed again."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from agentrl.core.errors import ConfigError, EnvError, UnknownPluginError
from agentrl.core.message import ToolSpec
from agentrl.core.task import Task
from agentrl.tools import OpenTools, Toolbox, tool
from tests.tools.conftest import NEVER, TASK, answers, called, texts, using


class Counter:
    """Count the calls of this episode."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def __call__(self) -> int:
        self.count += 1
        return self.count


class Asking:
    """Say what the episode is."""

    def __init__(self, task: Task, seed: int) -> None:
        self.shown = f"{task.payload['number']} {seed}"

    async def __call__(self) -> str:
        return self.shown


def test_each_episode_has_tools_of_its_own() -> None:
    toolbox = Toolbox([functools.partial(Counter, start=10)], watch=NEVER)

    async def use(first: OpenTools) -> None:
        async with toolbox.open(TASK, seed=1) as second:
            assert texts(await first.answer([called(1, "counter")])) == ["11"]
            assert texts(await first.answer([called(1, "counter")])) == ["12"]
            assert texts(await second.answer([called(1, "counter")])) == ["11"]

    using(toolbox, use)


def test_a_tool_gets_what_its_init_asks_for() -> None:
    assert texts(answers([Asking], called(1, "asking"))) == ["3 5"]


def test_one_object_for_all_episodes_must_be_read_only() -> None:
    with pytest.raises(
        ConfigError, match=r"'counter' .*one object for all episodes.*partial\(Coun"
    ):
        Toolbox([Counter()])
    shared = tool(read_only=True)(Counter())
    assert texts(answers([shared], called(1, "counter"))) == ["1"]


def test_a_shared_class_is_made_once() -> None:
    class Index:
        """Look it up."""

        shared = True
        read_only = True
        made: ClassVar[list[int]] = []

        def __init__(self) -> None:
            self.made.append(1)

        def __call__(self) -> str:
            return str(len(self.made))

    toolbox = Toolbox([Index], watch=NEVER)

    async def use(tools: OpenTools) -> list[str]:
        return texts(await tools.answer([called(1, "index")]))

    assert using(toolbox, use) == using(toolbox, use) == ["1"]

    class Wrong(Counter):
        """Count."""

        shared = True

    with pytest.raises(ConfigError, match=r"'wrong' .* is one object for all episodes"):
        Toolbox([Wrong])


def test_names_and_options_of_a_run_file() -> None:
    got = answers(
        ["calculator", {"name": "tests.tools.test_toolbox:Counter", "options": {"start": 4}}],
        called(1, "calculator", expression="2 + 3"),
        called(2, "counter"),
    )
    assert texts(got) == ["5", "5"]


@pytest.mark.parametrize(
    ("entries", "kind", "said"),
    [
        (["calculater"], UnknownPluginError, "did you mean 'calculator'"),
        ([{"name": "notes", "options": {"most": 1}}], ConfigError, "has no option 'most'"),
        ([{"nam": "notes"}], ConfigError, "a mapping of 'name' and 'options', got"),
        (["search"], ConfigError, "needs the option 'corpus'"),
        ([Counter, Counter], ConfigError, r"two tools are called 'counter'.*Counter and .*Counter"),
        (["finish", "finish"], ConfigError, "two tools are called 'finish'"),
    ],
    ids=str,
)
def test_lists_that_cannot_work_are_refused(
    entries: Sequence[Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        Toolbox(entries)


def test_what_nobody_supplies_is_refused_before_any_episode() -> None:
    class Needy:
        """Need."""

        def __init__(self, folder: str) -> None: ...

        def __call__(self) -> str:
            return ""

    with pytest.raises(
        ConfigError, match=r"'needy' .* needs folder to be made.*partial\(Class, fol"
    ):
        Toolbox([Needy])
    Toolbox([functools.partial(Needy, folder=".")])


class Sandboxed:
    """Run."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox = sandbox

    async def __call__(self) -> str:
        return f"in {self.sandbox}"


class Sandboxes:
    """Opens sandboxes that are only names; notes which are open."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    @asynccontextmanager
    async def open(self, spec: Any) -> AsyncIterator[str]:
        name = f"sandbox {spec}"
        self.opened.append(name)
        try:
            yield name
        finally:
            self.opened.remove(name)


def test_a_sandbox_is_opened_if_a_tool_asks_for_it() -> None:
    with pytest.raises(ConfigError, match=r"'sandboxed' .* asks for a sandbox, and there is none"):
        Toolbox([Sandboxed])
    sandboxes = Sandboxes()

    async def use(tools: OpenTools) -> list[str]:
        assert sandboxes.opened == ["sandbox small"]
        return texts(await tools.answer([called(1, "sandboxed")]))

    toolbox = Toolbox([Sandboxed], sandbox=sandboxes, sandbox_spec="small", watch=NEVER)
    assert using(toolbox, use) == ["in sandbox small"]
    assert sandboxes.opened == []

    async def look(tools: OpenTools) -> None:
        assert sandboxes.opened == []

    using(Toolbox([Counter], sandbox=sandboxes), look)


class Session:
    """Hold one of four seats."""

    seats: ClassVar[int] = 4

    def __init__(self) -> None:
        if Session.seats == 0:
            raise RuntimeError("no seat left")
        Session.seats -= 1

    def __call__(self) -> str:
        return ""

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        Session.seats += 1


def test_what_an_episode_opened_is_closed_however_it_ends() -> None:
    class Breaks:
        """Break."""

        def __init__(self) -> None:
            raise OSError("no such device")

        def __call__(self) -> str:
            return ""

    async def vanish(tools: OpenTools) -> None:
        raise ConnectionError("the client is gone")

    for _ in range(10):
        with pytest.raises(ConnectionError):
            using(Toolbox([Session]), vanish)
        with pytest.raises(EnvError, match=r"'breaks' .* could not be made for the episode: OSErr"):
            using(Toolbox([Session, Breaks]), vanish)
    assert Session.seats == 4


def test_one_that_does_not_close_keeps_no_other_open() -> None:
    class Stuck:
        """Stick."""

        def __call__(self) -> str:
            return ""

        def close(self) -> None:
            raise OSError("stuck")

    async def use(tools: OpenTools) -> None: ...

    for entries in ([Session, Stuck], [Stuck, Session]):
        with pytest.raises(EnvError, match=r"'stuck' .* did not close: OSError: stuck"):
            using(Toolbox(entries), use)
    assert Session.seats == 4


class Provider:
    """Opens tools that are known only then."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.open_now = 0

    @asynccontextmanager
    async def open(self, task: Task, seed: int) -> AsyncIterator[Sequence[Any]]:
        self.open_now += 1
        try:
            yield [_Remote(name, f"{name} {seed}") for name in self.names]
        finally:
            self.open_now -= 1


class _Remote:
    def __init__(self, name: str, text: str) -> None:
        self.spec = ToolSpec(name, "Far away.", {"type": "object", "properties": {}})
        self.text = text

    async def __call__(self, **arguments: Any) -> str:
        return self.text


def test_a_provider_opens_tools_for_an_episode() -> None:
    provider = Provider("one", "two")
    toolbox = Toolbox([provider, Counter], watch=NEVER)
    assert [one.name for one in toolbox.specs] == ["counter"]

    async def use(tools: OpenTools) -> list[str]:
        assert [one.name for one in tools.specs] == ["one", "two", "counter"]
        assert provider.open_now == 1
        return texts(await tools.answer([called(1, "two"), called(2, "counter")]))

    assert using(toolbox, use) == ["two 5", "1"]
    assert provider.open_now == 0

    async def nothing(tools: OpenTools) -> None: ...

    with pytest.raises(ConfigError, match="two tools are called 'counter'"):
        using(Toolbox([Provider("counter"), Counter]), nothing)


def test_the_parts_behind_the_tools_can_be_reached() -> None:
    async def use(tools: OpenTools) -> None:
        (counter,) = tools.parts
        await tools.answer([called(1, "counter")])
        assert isinstance(counter, Counter)
        assert counter.count == 1

    using(Toolbox([Counter], watch=NEVER), use)


def test_results_are_fitted_to_the_policys_budget() -> None:
    def dump() -> str:
        """Dump."""
        return "x" * 70_839

    toolbox = Toolbox([dump], watch=NEVER)
    toolbox.fit_to(len, 1000)

    async def use(tools: OpenTools) -> int:
        return len(texts(await tools.answer([called(1, "dump")]))[0])

    assert using(toolbox, use) == 500
