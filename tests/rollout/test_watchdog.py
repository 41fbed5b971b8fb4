"""What blocks the event loop is named; what does not move is stopped; nothing hangs for ever."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from agentrl.agents.flight import Deadlines
from agentrl.core.errors import EpisodeError
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Failure
from agentrl.rollout.runner import Limits, Runner
from agentrl.rollout.thread import Blockage, LoopThread
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from agentrl.testing.simulated_time import SimulatedLoop
from tests.rollout.playing import WIN, Ledger, agent, corridor, requests, run, runner


def watched(
    give_up_s: float = 60.0, on_blocked: Callable[[Blockage], None] = lambda one: None
) -> LoopThread:
    return LoopThread(
        blocked_after_s=0.1, give_up_s=give_up_s, teardown_s=5.0, on_blocked=on_blocked
    )


def blocking(until: threading.Event) -> ScriptedFactory:
    """Three tasks; the step of the first holds the thread until ``until`` is set."""

    async def block() -> object:
        deadline = time.monotonic() + 30
        while not until.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)  # noqa: ASYNC251 - blocking the loop is the fault
        return WIN

    def script(task: Task, _attempt: int) -> ScriptedEnv:
        return ScriptedEnv(say("s"), [block if task.payload["number"] == 0 else WIN])

    return ScriptedFactory(script, count=3)


def test_code_that_blocks_the_loop_is_named_while_it_does() -> None:
    name, named = "episode g0/0/0 in environment 'scripted'", threading.Event()
    factory, patient = blocking(named), agent(deadlines=Deadlines())
    said: list[Blockage] = []

    def tell(one: Blockage) -> None:  # a slow machine may find others to name before
        said.append(one)
        if one.task == name:
            named.set()

    with watched(on_blocked=tell) as loop:
        groups = loop.run(runner(factory, patient).run(requests(factory, 3, 1)))
        assert named.is_set()
        one = next(one for one in said if one.task == name)
        assert one.where.endswith(("in block", "in is_set"))
        text = str(one)
        assert "worker processes (env.workers)" in text
        deadline = time.monotonic() + 20
        while name not in [one.task for one in loop.blockages] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert name in [one.task for one in loop.blockages]
    assert all(group.trajectories[0].success for group in groups)


def test_c3_a_blocking_step_meets_its_deadline_once_it_returns_and_its_siblings_do_not() -> None:
    async def block() -> object:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.block(0.5)  # the deadline of a step is 0.2 s
        return WIN

    def script(task: Task, attempt: int) -> ScriptedEnv:
        bad = task.payload["number"] == 0 and attempt == 0
        return ScriptedEnv(say("s"), [block if bad else WIN])

    factory, ledger = ScriptedFactory(script, count=4), Ledger([])
    groups = run(Runner(factory, agent(), Limits(), ledger).run(requests(factory, 4, 1)))
    assert all(one.failure is None for group in groups for one in group.trajectories)
    (failed,) = [one for one in ledger.records if one.failure]
    assert failed.id == "g0/0/0"
    assert failed.failure is not None
    assert failed.failure.error == "DeadlineError"
    assert "blocked the event loop for 0.5 s" in failed.failure.message


def test_c3_a_loop_that_is_blocked_for_good_is_given_up_and_its_episode_blamed() -> None:
    release = threading.Event()
    factory, ledger = blocking(release), Ledger([])
    playing = Runner(factory, agent(), Limits(concurrency=1), ledger)
    started = time.monotonic()
    with watched(give_up_s=0.5) as loop:
        with pytest.raises(EpisodeError, match=r"blocked for .* by episode g0/0/0 in environment"):
            loop.run(playing.run(requests(factory, 3, 1)), on_given_up=playing.blame)
        (blamed,) = ledger.records
        assert blamed.failure is not None
        assert (blamed.failure.boundary, blamed.failure.error) == ("step", "BlockedError")
        assert blamed.id == "g0/0/0"
        with pytest.raises(EpisodeError, match="blocked"):  # nothing can run there any more
            loop.run(asyncio.sleep(0))
    assert time.monotonic() - started < 25  # leaving does not wait for it either
    assert playing.stats.in_flight == 0
    release.set()


def test_what_a_blamed_episode_brings_at_last_is_dropped() -> None:
    release, entered = threading.Event(), threading.Event()

    async def block() -> object:
        entered.set()
        release.wait(30.0)
        return WIN

    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [block]))
    ledger = Ledger([])
    patient = agent(deadlines=replace(agent().deadlines, step_s=90.0))
    playing = Runner(factory, patient, Limits(), ledger)

    def play(loop: LoopThread) -> None:
        with contextlib.suppress(CancelledError):  # it has no end: its episode is nobody's
            loop.run(playing.run(requests(factory, 1, 1)))

    with watched() as loop:
        thread = threading.Thread(target=play, args=(loop,), daemon=True)
        thread.start()
        assert entered.wait(20)
        playing.blame("episode g0/0/0 in environment 'scripted'", 5.0)
        playing.blame("some other task", 5.0)
        release.set()
        deadline = time.monotonic() + 20
        while not playing.stats.counts().late and time.monotonic() < deadline:
            time.sleep(0.01)
    thread.join(20)
    assert playing.stats.counts().late == 1
    assert [one.failure.error for one in ledger.records if one.failure] == ["BlockedError"]
    assert len(ledger.records) == 1


def test_a_blamed_episode_is_not_played_by_a_resumed_run() -> None:
    factory, ledger = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [WIN]), count=2), Ledger([])
    asked = requests(factory, 2, 1)
    run(Runner(factory, agent(), Limits(), ledger).run(asked[1:]))
    (won,) = ledger.records
    ledger.records.append(
        replace(
            won,
            id="g0/0/0",
            group_id="g0",
            task_id=asked[0].task.id,
            seed=derive_seed(5, asked[0].task.id, 0),
            success=None,
            failure=Failure("step", "BlockedError", "it blocked"),
        )
    )
    playing = Runner(factory, agent(), Limits(), ledger, ledger.recorded)
    groups = run(playing.run(asked))
    assert playing.stats.counts().recorded == 2
    assert groups[0].trajectories[0].failure is not None


def test_when_nothing_moves_the_run_stops_and_says_what_everybody_waits_for() -> None:
    never: Callable[[], object] = lambda: asyncio.Event().wait()  # noqa: E731
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [never]), count=30)
    patient = agent(deadlines=replace(agent().deadlines, step_s=60.0))
    with pytest.raises(EpisodeError) as caught:
        run(runner(factory, patient, stall_s=0.3).run(requests(factory, 30, 1)))
    text = str(caught.value)
    assert "nothing has moved for" in text
    assert "g0/0/0 (environment 'scripted', 0 steps): 'step' for" in text
    assert text.endswith("and 10 more")
    assert all(env.closes == 1 for env in factory.made)


def test_a_run_that_moves_slowly_is_not_stopped() -> None:
    slow: Callable[[], object] = lambda: asyncio.sleep(0.15, WIN)  # noqa: E731
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [slow]), count=6)
    patient = agent(deadlines=replace(agent().deadlines, step_s=60.0))
    playing = runner(factory, patient, stall_s=5.0, concurrency=2)
    assert len(run(playing.run(requests(factory, 6, 1)))) == 6


def test_a_consumer_that_takes_its_time_is_no_stall() -> None:
    async def scenario() -> int:
        factory = corridor()
        playing = runner(factory, stall_s=0.05)
        taken = 0
        async with playing.stream(requests(factory), ahead=1) as groups:
            async for _ in groups:
                taken += 1
                await asyncio.sleep(0.2)
        return taken

    assert run(scenario()) == 4


def test_calls_in_threads_that_hang_take_no_others_place_and_hold_up_no_end() -> None:
    release = threading.Event()

    async def in_thread() -> object:
        await asyncio.to_thread(release.wait, 60.0)
        return WIN

    def script(task: Task, _attempt: int) -> ScriptedEnv:
        hangs = task.payload["number"] < 40  # more than the usual pool of threads holds
        quick = lambda: asyncio.to_thread(lambda: WIN)  # noqa: E731
        return ScriptedEnv(say("s"), [in_thread if hangs else quick])

    factory = ScriptedFactory(script, count=44)
    playing = runner(factory, retries=0, give_up_after=99)
    started = time.monotonic()
    with watched() as loop:
        groups = loop.run(playing.run(requests(factory, 44, 1)))
    assert sum(group.trajectories[0].failure is None for group in groups) == 4
    assert time.monotonic() - started < 25
    release.set()


def test_a_part_that_ends_the_loops_thread_does_not_leave_the_caller_waiting() -> None:
    async def end() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    with LoopThread() as loop, pytest.raises(EpisodeError, match="Stopping"):
        loop.run(end())


def test_interrupting_the_caller_lets_episodes_close_what_they_opened() -> None:
    closed = threading.Event()

    class SlowToClose(ScriptedEnv):
        async def aclose(self) -> None:
            await asyncio.sleep(0.05)
            closed.set()

    entered = threading.Event()

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    factory = ScriptedFactory(lambda *_: SlowToClose(say("s"), [hang]))
    patient = agent(deadlines=Deadlines())
    playing = runner(factory, patient)
    with LoopThread() as loop:
        # SIGINT reaches the main thread, as Ctrl-C does.
        target = threading.main_thread().ident
        assert target is not None

        def interrupt(thread: int) -> None:
            assert entered.wait(20)
            signal.pthread_kill(thread, signal.SIGINT)

        threading.Thread(target=interrupt, args=(target,), daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            loop.run(playing.run(requests(factory, 1, 1)))
        assert closed.is_set()
    assert playing.stats.in_flight == 0
