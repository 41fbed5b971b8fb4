"""Whatever an environment or its process does: the caller is told, the place is free again."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, EnvDiedError, EnvError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.envs.process import place
from agentrl.envs.process.factory import ProcessEnv, ProcessFactory
from agentrl.testing.broken import PLACES
from tests.envs.process.conftest import PATIENCE_S, Start, children, end, failure, wait_until

LOOK = Message("assistant", "look")


def task_of(factory: ProcessFactory, number: int = 0) -> Task:
    return factory.tasks("train")[number]


async def episode(factory: ProcessFactory, number: int = 0) -> int:
    """Two steps of an episode, which is always closed."""
    env = await factory.make(task_of(factory, number), seed=0)
    try:
        await env.reset()
        await env.step(LOOK)
        await env.step(LOOK)
    finally:
        await env.aclose()
    return 2


def process_of(env: ProcessEnv) -> int:
    started = env._episode._connection._started
    assert started is not None
    return started.process.pid


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "planted fault"),
        ("bug", "{} raised KeyError: 'planted bug'"),
        ("system_exit", "{} raised SystemExit: planted exit"),
        ("cancel_itself", "{} raised CancelledError: "),
    ],
)
def test_what_it_raises_is_an_env_error_and_harms_nobody(
    fault: str, words: str, place: str, start: Start, tmp_path: Path
) -> None:
    factory = start(fault, at=place, once=str(tmp_path / "once"), episodes=1)
    before = children()
    error = failure(lambda: asyncio.run(episode(factory)))
    assert type(error) is EnvError
    assert str(error) == words.format(place)
    if fault == "bug":
        assert "in _bug" in "".join(error.__notes__)
    assert asyncio.run(episode(factory)) == 2  # the only place of the only process
    assert children() == before


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fault", "words"), [("exit", "ended with exit code 9"), ("kill", "was killed by SIGKILL")]
)
def test_a_process_that_dies_is_reported_and_another_takes_its_place(
    fault: str, words: str, place: str, start: Start, tmp_path: Path
) -> None:
    factory = start(fault, at=place, once=str(tmp_path / "once"), episodes=1)
    (before,) = children()
    error = failure(lambda: asyncio.run(episode(factory)))
    assert type(error) is EnvDiedError
    assert f"env worker 0 (pid {before}) {words}\nIt had printed nothing." in str(error)
    assert asyncio.run(episode(factory)) == 2
    (after,) = children()
    assert after != before


def test_death_from_outside_is_seen_at_once_and_tells_everybody(start: Start) -> None:
    factory = start("hang", task_id="", at="step", episodes=8)
    (pid,) = children()

    async def work() -> list[BaseException | None]:
        envs = [await factory.make(task_of(factory), seed=0) for _ in range(8)]
        for env in envs:
            await env.reset()
        calls = [asyncio.create_task(env.step(LOOK)) for env in envs]
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(calls)
        assert [await end(env) for env in envs] == [""] * 8  # known already
        return [one.exception() for one in calls]

    errors = asyncio.run(work())
    assert [type(one) for one in errors] == [EnvDiedError] * 8  # as many answers as questions
    assert all(f"(pid {pid}) was killed by SIGKILL" in str(one) for one in errors)


def test_death_between_two_calls_is_told_by_the_next(start: Start) -> None:
    factory = start()
    (pid,) = children()

    async def work() -> list[str]:
        first, second = [await factory.make(task_of(factory), seed=0) for _ in range(2)]
        os.kill(pid, signal.SIGKILL)
        told = await until_it_dies(first.reset)
        return [told, await end(first), await end(first), await end(second), await end(second)]

    told, again, twice, other, other_twice = asyncio.run(work())
    assert "was killed by SIGKILL" in told
    assert (again, twice, other_twice) == ("", "", "")
    assert other == told  # it was never asked anything else


def test_printing_does_not_touch_the_protocol_and_is_shown_on_death(start: Start) -> None:
    factory = start("print")
    (pid,) = children()

    async def work() -> str:
        env = await factory.make(task_of(factory), seed=0)
        await env.reset()
        for _ in range(3):
            await env.step(LOOK)
        os.kill(pid, signal.SIGTERM)
        return await until_it_dies(lambda: env.step(LOOK))

    words = asyncio.run(work())
    assert "was killed by SIGTERM\nThe last that it printed:" in words
    assert "  printed by the environment\n" in words
    assert "  written to stderr\n" in words


def test_printing_megabytes_blocks_nothing(start: Start) -> None:
    assert asyncio.run(episode(start("print_much"))) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nothing", "step returned None, expected a StepResult"),
        ("array", "step returned what cannot leave its process: observation.anchor['grid'][0] is"),
        ("holds_itself", "nested too deeply, or holds itself"),
    ],
)
def test_malformed_answers_are_refused_where_they_arise(
    fault: str, words: str, start: Start
) -> None:
    error = failure(lambda: asyncio.run(episode(start(fault))))
    assert type(error) is EnvError
    assert words in str(error)


async def until_it_dies(call: Callable[[], Awaitable[Any]]) -> str:
    """What ``call`` raises once the death of its process is known, which takes a moment."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await call()
            except EnvDiedError as error:
                return str(error)
            except EnvError:
                await asyncio.sleep(0.01)  # the environment's own: it is called out of order


async def cancelled(call: Awaitable[Any], after_s: float = 0.05) -> None:
    """Begin a call and cancel it, as a deadline does."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(after_s)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def reached(place: str, factory: ProcessFactory) -> ProcessEnv | None:
    """Cancel the call at ``place`` after what comes before it; the environment, if there is one."""
    if place == "make":
        await cancelled(factory.make(task_of(factory), seed=0))
        return None
    env = await factory.make(task_of(factory), seed=0)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "reset": env.reset,
        "step": lambda: env.step(LOOK),
        "close": env.aclose,
    }
    if place == "step":
        await env.reset()
    await cancelled(calls[place]())
    return env


@pytest.mark.parametrize("place", PLACES)
def test_a_cancelled_call_ends_the_episode_and_frees_its_place(
    place: str, start: Start, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    once = str(tmp_path / "once")
    factory = start("hang", at=place, once=once, ledger=str(ledger), episodes=1)
    before = children()

    async def work() -> int:
        env = await reached(place, factory)
        if env is not None:
            assert await end(env) == ""
            with pytest.raises(EnvError, match="was closed, cancelled, or had died"):
                await env.reset()
        return await episode(factory)

    assert asyncio.run(work()) == 2
    assert children() == before  # what can be cancelled costs no process
    lines = ledger.read_text().splitlines()
    assert lines.count("open") == lines.count("close") == (1 if place == "make" else 2)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("block", "was blocked by an episode that had been cancelled, and was killed after 0.6 s"),
        ("stop", "did not answer for 0.6 s and was killed: it was stopped, or stuck in native"),
    ],
)
def test_what_cannot_be_cancelled_is_killed(
    fault: str, words: str, place: str, start: Start, tmp_path: Path
) -> None:
    factory = start(fault, at=place, once=str(tmp_path / "once"), episodes=2)
    before = children()

    async def work() -> list[str]:
        neighbour = await factory.make(task_of(factory, 1), seed=0) if place != "make" else None
        env = await reached(place, factory)
        said = [await end(env)] if env is not None else []
        if neighbour is not None:
            with pytest.raises(EnvDiedError) as caught:
                await neighbour.reset()
            said.append(str(caught.value))
        assert await episode(factory) == 2
        return said

    said = asyncio.run(work())
    assert all(words in one for one in said)
    assert len(said) == (0 if place == "make" else 2)
    if fault == "block" and said:
        assert "broken.py:" in said[0]  # where it was
    wait_until(lambda: len(children()) == 1)
    assert children() != before


def test_a_process_is_not_killed_for_a_neighbour_who_holds_it(start: Start) -> None:
    # The first holds the process for 1.5 s, within its own deadline. The second is cancelled and
    # cannot be dropped for longer than the grace time: not its fault, and not the first one's.
    factory = start("block_a_while")
    before = children()

    async def work() -> None:
        first, second = [await factory.make(task_of(factory), seed=0) for _ in range(2)]
        await first.reset()
        await second.reset()
        step = asyncio.create_task(first.step(LOOK))
        await asyncio.sleep(0.1)
        await cancelled(second.step(LOOK))
        assert await end(second) == ""
        assert not (await step).terminated
        assert await end(first) == ""

    asyncio.run(work())
    assert children() == before


def test_a_late_answer_to_an_abandoned_call_is_nobodys(start: Start, tmp_path: Path) -> None:
    factory = start("block_a_while", once=str(tmp_path / "once"), grace_s=20.0)
    before = children()

    async def work() -> None:
        late, other = [await factory.make(task_of(factory), seed=0) for _ in range(2)]
        await late.reset()
        await cancelled(late.step(LOOK))  # its answer comes after this
        await other.reset()
        first = await other.step(LOOK)
        assert "You cannot do that." in first.observation.messages[0].content
        assert await end(late) == ""
        assert await end(other) == ""

    asyncio.run(work())
    assert children() == before


@pytest.mark.parametrize("place", ["reset", "step", "close"])
def test_what_ignores_its_cancelling_harms_no_neighbour(
    place: str, start: Start, tmp_path: Path
) -> None:
    factory = start("ignore_cancelling", at=place, once=str(tmp_path / "once"))
    (before,) = children()

    async def work() -> None:
        neighbour = await factory.make(task_of(factory), seed=0)
        env = await reached(place, factory)
        assert env is not None
        assert "did not end within 0.3 s after it had been cancelled" in await end(env)
        await neighbour.reset()  # goes on
        fresh = await factory.make(task_of(factory), seed=0)
        assert process_of(neighbour) == before
        assert process_of(fresh) != before
        await neighbour.step(LOOK)
        await neighbour.aclose()
        await fresh.aclose()

    asyncio.run(work())
    wait_until(lambda: before not in children())  # it was the last one there
    assert len(children()) == 1


def test_ten_clients_vanish_and_four_places_are_free_again(start: Start, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    factory = start(ledger=str(ledger), processes=2, episodes=2)
    assert factory.capacity == 4

    async def forget() -> None:
        async with asyncio.timeout(PATIENCE_S):
            env = await factory.make(task_of(factory), seed=0)
            await env.reset()
        del env

    async def crash() -> None:
        await factory.make(task_of(factory), seed=0)
        raise RuntimeError("the client is gone")

    for _ in range(10):
        asyncio.run(forget())
        with pytest.raises(RuntimeError):
            asyncio.run(crash())
        gc.collect()

    async def cancel() -> None:
        for _ in range(10):  # at any point of making one
            for after_s in (0.0, 0.0005, 0.002):
                task = asyncio.ensure_future(factory.make(task_of(factory), seed=0))
                await asyncio.sleep(after_s)
                task.cancel()
                await asyncio.wait([task])
            del task
        async with asyncio.timeout(PATIENCE_S):
            envs = [await factory.make(task_of(factory), seed=0) for _ in range(4)]
        for env in envs:
            await env.aclose()

    asyncio.run(cancel())

    def balanced() -> bool:
        lines = ledger.read_text().splitlines()
        return lines.count("open") == lines.count("close") >= 24

    wait_until(balanced)


def test_those_who_wait_for_a_place_can_be_cancelled(start: Start) -> None:
    factory = start(episodes=1)

    async def work() -> None:
        env = await factory.make(task_of(factory), seed=0)
        for _ in range(3):
            await cancelled(factory.make(task_of(factory), seed=0))
        waiting = asyncio.create_task(factory.make(task_of(factory), seed=0))
        await asyncio.sleep(0.05)
        await env.aclose()
        await (await waiting).aclose()

    asyncio.run(work())


def test_as_many_answers_as_questions_while_processes_die(start: Start) -> None:
    factory = start(processes=2, episodes=8)

    async def work() -> list[Any]:
        calls = [asyncio.create_task(episode(factory, number % 10)) for number in range(40)]
        for _ in range(2):
            await asyncio.sleep(0.05)
            for pid in children():
                os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(work())
    assert len(answers) == 40
    assert {type(one) for one in answers} <= {int, EnvDiedError}
    assert asyncio.run(episode(factory)) == 2


def module(folder: Path, name: str, text: str) -> str:
    """A factory's ``module:attr`` in a new file."""
    (folder / f"{name}.py").write_text(text)
    return f"{name}:Factory"


def test_one_that_dies_at_every_start_stops_with_its_own_words(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import os\nprint('no licence found')\nos._exit(3)\n"
    error = failure(lambda: start(name=module(tmp_path, "tests_dies_at_import", text)))
    assert type(error) is ConfigError
    assert "ended with exit code 3\nThe last that it printed:\n  no licence found" in str(error)
    assert "was started 3 times in a row and is given up" in str(error)


def test_a_place_that_cannot_be_filled_is_left_alone_for_a_while(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(place, "ATTEMPTS_LATER", 2)
    monkeypatch.setattr(place, "REST_S", 0.5)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = """
import os
from agentrl.testing.broken import BrokenFactory

class Factory(BrokenFactory):
    def __init__(self, *, broken, **options):
        super().__init__(**options)
        if os.path.exists(broken):
            print("the disk is gone")
            os._exit(5)
"""
    broken = tmp_path / "broken"
    name = module(tmp_path, "tests_breaks_later", text)
    factory = start(name=name, options={"broken": str(broken)}, processes=2, episodes=1)

    async def work() -> str:
        first, second = [await factory.make(task_of(factory), seed=0) for _ in range(2)]
        broken.touch()
        os.kill(process_of(first), signal.SIGKILL)
        await until_it_dies(first.reset)
        await second.reset()  # the other process plays on
        await second.aclose()
        for _ in range(3):
            assert await episode(factory) == 2
        os.kill(process_of(second), signal.SIGKILL)
        await until_it_dies(lambda: episode(factory))
        return await until_it_dies(lambda: episode(factory))

    words = asyncio.run(work())
    assert "ended with exit code 5\nThe last that it printed:\n  the disk is gone" in words
    assert re.search(r"It was started \d times in a row and is given up\.", words)
    assert "a worker less for 0.5 s" in caplog.text
    broken.unlink()

    def plays_again() -> bool:
        try:
            return asyncio.run(episode(factory)) == 2
        except EnvDiedError:
            return False

    wait_until(plays_again)


def test_one_that_is_only_half_made_is_closed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = """
from agentrl.testing.broken import BrokenEnv, BrokenFactory

class NoText(Exception):
    def __str__(self): raise RuntimeError

class HalfMade(BrokenEnv):
    @property
    def tools(self): raise NoText

class Factory(BrokenFactory):
    async def make(self, task, *, seed):
        env = await super().make(task, seed=seed)
        env.__class__ = HalfMade
        return env
"""
    ledger = tmp_path / "ledger"
    name = module(tmp_path, "tests_half_made", text)
    factory = start(name=name, options={"ledger": str(ledger)}, episodes=1)
    for _ in range(2):
        error = failure(lambda: asyncio.run(episode(factory)))
        assert str(error) == "make raised NoText: (its text raised RuntimeError)"
    wait_until(lambda: ledger.read_text().split() == ["open", "close"] * 2)


def test_a_listing_that_does_not_end_is_given_up(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = """
import time

class Factory:
    splits = ("train",)
    def tasks(self, split): time.sleep(10_000)
    async def make(self, task, *, seed): ...
    def demonstrate(self, task, *, seed, noise):
        yield from ()
        time.sleep(10_000)
"""
    name = module(tmp_path, "tests_lists_for_ever", text)
    factory: Any = start(name=name, start_timeout_s=1.5)
    error = failure(lambda: factory.tasks("train"))
    assert "did not list the tasks of split 'train' within 1.5 s and was killed" in str(error)
    steps = factory.demonstrate(Task("t", "e", "train"), seed=0, noise=0.0)
    assert "the expert gave no step within 1.5 s" in str(failure(lambda: next(steps)))


def test_an_expert_that_fails_does_so_after_what_it_gave(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = """
from agentrl.testing.broken import BrokenFactory

class Factory(BrokenFactory):
    def demonstrate(self, task, *, seed, noise):
        yield next(super().demonstrate(task, seed=seed, noise=noise))
        raise ValueError("no way")
"""
    factory: Any = start(name=module(tmp_path, "tests_expert_fails", text))
    steps = factory.demonstrate(task_of(factory), seed=0, noise=0.0)
    assert next(steps).trainable
    error = failure(lambda: next(steps))
    assert "next raised ValueError: no way" in str(error)
    assert "tests_expert_fails.py" in str(error)
