"""Servers that die, hang, refuse and come back: where requests go, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, EngineError, WeightSyncError
from agentrl.engines.vllm.fleet import Fleet, Patience, Server
from tests.engines.vllm.serving import Stand, choice, standing

QUICK = Patience(retries=3, health_s=0.02, answer_s=0.3, restarts=3, pause_s=0.01)
DEADLINE_S = 60.0  # generous: nothing here depends on it


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    asyncio.run(bounded())


async def until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.005)


class Renewals:
    """Gives servers their weights; notes whom, and refuses where a test says so."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.refusals = 0

    async def __call__(self, server: Server) -> None:
        if self.refusals:
            self.refusals -= 1
            raise WeightSyncError("no room for the weights")
        self.given.append(server.url)
        server.current = True


class Started:
    """A process that is a stand-in server."""

    def __init__(self) -> None:
        self.stand = Stand()
        self.death: str | None = None
        self.starts = 0
        self.fails = 0

    @property
    def url(self) -> str:
        return self.stand.url

    async def start(self, model: str) -> None:
        await self.stand.close()
        self.starts += 1
        if self.fails:
            self.fails -= 1
            raise EngineError("exit code 1: out of memory")
        self.death = None
        self.stand.port = 0
        await self.stand.open()

    async def die(self) -> None:
        self.death = "the vLLM server (pid 7) was killed by SIGKILL"
        await self.stand.close()

    async def stop(self) -> None:
        await self.stand.close()


@asynccontextmanager
async def fleet_of(
    servers: list[Server], renewals: Renewals | None = None, patience: Patience = QUICK
) -> AsyncIterator[Fleet]:
    fleet = Fleet(servers, model="m", renew=renewals or Renewals(), patience=patience)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.aclose()


def at(stand: Stand, places: int = 64) -> Server:
    return Server(stand.url, asyncio.Semaphore(places))


def started(process: Started) -> Server:
    return Server("new", asyncio.Semaphore(64), process)


async def ask(fleet: Fleet, episode: str = "one") -> Any:
    _, _, data = await fleet.ask(episode, lambda: {"model": "policy", "episode": episode})
    return data["choices"][0]["token_ids"]


def test_an_episode_stays_with_its_server_and_episodes_are_spread() -> None:
    async def work() -> None:
        async with standing(3) as stands, fleet_of([at(one) for one in stands]) as fleet:
            held = asyncio.Event()

            async def slowly(told: Any) -> tuple[int, Any]:
                await held.wait()
                return 200, choice([1])

            for one in stands:
                one.behave = slowly  # type: ignore[method-assign]
            first = [asyncio.create_task(ask(fleet, str(number))) for number in range(6)]
            await until(lambda: sum(len(one.asked) for one in stands) == 6)
            assert [len(one.asked) for one in stands] == [2, 2, 2]
            held.set()
            await asyncio.gather(*first)
            homes = [{told["episode"] for told in one.asked} for one in stands]
            for number in range(6):
                await ask(fleet, str(number))
            assert [{told["episode"] for told in one.asked} for one in stands] == homes
            assert fleet.moved == 0

    run(work)


def test_no_more_requests_are_at_a_server_than_have_places() -> None:
    async def work() -> None:
        async with standing() as [stand], fleet_of([at(stand, 3)]) as fleet:
            await asyncio.gather(*(ask(fleet, str(one)) for one in range(20)))
            assert stand.most <= 3
            assert len(stand.asked) == 20

    run(work)


def test_requests_of_a_server_that_dies_are_answered_by_another_once_each() -> None:
    async def work() -> None:
        async with standing(2) as [dying, living], fleet_of([at(dying), at(living)]) as fleet:

            async def never(told: Any) -> None:
                await asyncio.Event().wait()

            dying.behave = never  # type: ignore[method-assign]
            asked = [asyncio.create_task(ask(fleet, str(one))) for one in range(8)]
            await until(lambda: len(dying.asked) == 4)
            await dying.close()
            assert await asyncio.gather(*asked) == [[7, 8]] * 8
            assert fleet.moved == 4
            assert fleet.deaths == 1
            assert len(living.asked) == 8
            assert await ask(fleet, "0") == [7, 8]  # episodes have a new home

    run(work)


@pytest.mark.parametrize("health", [0, 503])
def test_a_server_that_hangs_is_found_out_and_its_requests_go_elsewhere(health: int) -> None:
    async def work() -> None:
        async with standing(2) as [hanging, living], fleet_of([at(hanging), at(living)]) as fleet:

            async def never(told: Any) -> None:
                await asyncio.Event().wait()

            hanging.behave = never  # type: ignore[method-assign]
            asked = [asyncio.create_task(ask(fleet, str(one))) for one in range(4)]
            await until(lambda: len(hanging.asked) == 2)
            hanging.health = health
            assert await asyncio.gather(*asked) == [[7, 8]] * 4
            await until(lambda: hanging.cut == 2)  # and it is told that nobody waits any more

    run(work)


def test_an_answer_that_is_cut_in_its_middle_is_asked_for_again() -> None:
    async def work() -> None:
        async with standing() as [stand], fleet_of([at(stand)]) as fleet:
            answers: list[Any] = [None, (200, "<html>"), (500, "CUDA error"), (200, choice([4]))]

            async def faulty(told: Any) -> Any:
                return answers.pop(0)

            stand.behave = faulty  # type: ignore[method-assign]
            assert await ask(fleet) == [4]
            assert fleet.moved == 3
            assert fleet.deaths == 0  # it is well, as it says

    run(work)


def test_a_request_is_sent_only_so_often_and_the_last_words_are_told() -> None:
    async def work() -> None:
        async with standing() as [stand], fleet_of([at(stand)]) as fleet:

            async def broken(told: Any) -> Any:
                return 500, "EngineDeadError: no memory"

            stand.behave = broken  # type: ignore[method-assign]
            with pytest.raises(EngineError, match="with 500: EngineDeadError: no memory"):
                await ask(fleet)
            assert len(stand.asked) == 4

            async def refused(told: Any) -> Any:
                return 400, "prompt is longer than 512 tokens"

            stand.behave = refused  # type: ignore[method-assign]
            with pytest.raises(EngineError, match="with 400: prompt is longer than 512"):
                await ask(fleet)
            assert len(stand.asked) == 5  # it would be refused again

            async def missing(told: Any) -> Any:
                return 404, {"detail": "Not Found"}

            stand.behave = missing  # type: ignore[method-assign]
            with pytest.raises(EngineError, match=r"Not Found.*--enable-scale-out"):
                await ask(fleet)

    run(work)


def test_a_server_that_comes_back_gets_the_weights_before_it_is_asked() -> None:
    async def work() -> None:
        renewals = Renewals()
        async with standing() as [stand], fleet_of([at(stand)], renewals) as fleet:
            await stand.close()
            await until(lambda: not fleet.servers[0].up)
            with pytest.raises(EngineError, match="no vLLM server answers:\ncannot reach"):
                await ask(fleet)
            renewals.refusals = 2
            await stand.open()
            await until(lambda: fleet.servers[0].up)
            assert renewals.given == [stand.url, stand.url]
            assert renewals.refusals == 0
            assert await ask(fleet) == [7, 8]

    run(work)


def test_a_process_that_dies_is_started_again_and_requests_wait_for_it() -> None:
    async def work() -> None:
        process, renewals = Started(), Renewals()
        async with fleet_of([started(process)], renewals) as fleet:
            assert await ask(fleet) == [7, 8]
            before = process.url
            process.fails = 1
            await process.die()
            assert await asyncio.gather(*(ask(fleet, str(one)) for one in range(5))) == [[7, 8]] * 5
            assert process.starts == 3
            assert renewals.given == [before, process.url]
            assert fleet.deaths == 1

    run(work)


def test_a_process_that_dies_again_and_again_is_given_up_with_its_words() -> None:
    async def work() -> None:
        process = Started()
        async with fleet_of([started(process)]) as fleet:
            process.fails = 100
            await process.die()
            words = r"no vLLM server answers:\nexit code 1: out of memory\nIt was started 3 times"
            with pytest.raises(EngineError, match=words):
                await ask(fleet)
            assert process.starts == 4

    run(work)


def test_one_that_starts_but_never_answers_is_given_up_as_well() -> None:
    async def work() -> None:
        process = Started()

        async def dies(told: Any) -> None:
            process.death = "the vLLM server ended with exit code 1"

        process.stand.behave = dies  # type: ignore[method-assign]
        patience = Patience(retries=9, health_s=0.02, answer_s=0.3, restarts=3, pause_s=0.01)
        async with fleet_of([started(process)], patience=patience) as fleet:
            with pytest.raises(EngineError, match="It was started 3 times in vain"):
                await ask(fleet)
            assert process.starts == 4

    run(work)


def test_a_call_that_is_cancelled_ends_its_request() -> None:
    async def work() -> None:
        async with standing() as [stand], fleet_of([at(stand, 1)]) as fleet:

            async def never(told: Any) -> None:
                await asyncio.Event().wait()

            good, stand.behave = stand.behave, never  # type: ignore[method-assign]
            call = asyncio.create_task(ask(fleet))
            await until(lambda: len(stand.asked) == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: stand.cut == 1)
            stand.behave = good  # type: ignore[method-assign]
            assert await ask(fleet) == [7, 8]  # its place is free

    run(work)


def test_a_server_that_is_not_there_is_said_at_the_start() -> None:
    async def work() -> None:
        stand = Stand()
        await stand.open()
        await stand.close()
        with pytest.raises(EngineError, match=r"cannot reach .*correct engine\.opt"):
            async with fleet_of([at(stand)]):
                pass

    run(work)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"version": "0.20.1"}, "is vLLM 0.20.1, and agentrl works with"),
        ({"detail": "none"}, "does not say which vLLM it is"),
        ("<html>", "does not say which vLLM it is"),
    ],
)
def test_a_server_of_another_kind_is_refused_at_the_start(says: Any, words: str) -> None:
    async def work() -> None:
        async with standing() as [stand]:
            stand.vllm = says
            with pytest.raises(ConfigError, match=words):
                async with fleet_of([at(stand)]):
                    pass

    run(work)


def test_where_one_of_two_does_not_start_the_other_is_ended() -> None:
    async def work() -> None:
        good, bad = Started(), Started()
        bad.fails = 1
        with pytest.raises(EngineError, match="out of memory"):
            async with fleet_of([started(good), started(bad)]):
                pass
        assert good.stand._server is None

    run(work)
