"""``ProcessEngine``: samples through a process of its own, which has weights of its own.

So an optimiser step and a forward pass may run at the same time, and neither sees the other's
half-made weights. ``set_version`` publishes: it writes the weights as they are and returns; the
process takes them up between two forward passes, with requests in flight, and nobody waits. What is
asked for after ``set_version`` has returned is sampled with those weights or newer ones.

A process that dies fails the calls it had (``EngineError``: their episodes are played again) and
is started anew from the last publication. Calls that come meanwhile wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentrl.core.errors import EngineError, WeightSyncError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.process.child import Call, Child, Limits, Program
from agentrl.engines.process.weights import Publication, WeightFolder
from agentrl.engines.work import EngineWork

__all__ = ["DEFAULT_LIMITS", "Limits", "ProcessEngine", "ProcessStats", "Program"]

T = TypeVar("T")
FIRST_PAUSE_S = 0.1
DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """What the engine has done since it was made, all its processes together.

    Attributes:
        forwards: Forward passes. busy_s: seconds spent in them.
        mean_batch: Mean number of requests in a pass.
        sampled_tokens: Tokens drawn.
        deaths: Processes that died.
        taken_up: Publications of weights that came into use.
    """

    busy_s: float = 0.0
    forwards: int = 0
    mean_batch: float = 0.0
    sampled_tokens: int = 0
    deaths: int = 0
    taken_up: int = 0


class ProcessEngine:
    """An engine of another process. May be called from any event loop and thread.

    Args:
        program: What the process runs.
        save: Writes the weights as they are now to the path it is given; called by ``set_version``
            in its thread.
        prepare: Called once with the private folder: what the process needs beside the weights.
        size: Bytes of the weights.
        context_tokens: Longest prompt plus answer, for whoever checks budgets; ``None``: unknown.
        policy_version: Version of the weights now.
        limits: How long the process may take.

    Attributes:
        own_weights: The learner's weights may change while it samples.
    """

    own_weights = True

    def __init__(
        self,
        program: Program,
        *,
        save: Callable[[Path], None],
        prepare: Callable[[Path], None] = lambda folder: None,
        size: int = 0,
        context_tokens: int | None = None,
        policy_version: int = 0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.context_tokens = context_tokens
        self._program, self._save, self._limits = program, save, limits
        self._folder = WeightFolder(size)
        try:
            prepare(self._folder.path)
            self._folder.publish(policy_version, save)
        except BaseException:
            self._folder.close()
            raise
        self._publishing = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._child: Child | None = None
        self._given = 0  # number of the last publication that the child was given
        self._failure: str | None = None
        self._closed = False
        self._deaths = self._taken_up = self._stillborn = 0
        self._before, self._work = EngineWork(0.0, 0, 0.0, 0), EngineWork(0.0, 0, 0.0, 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="engine-process", daemon=True)
        self._thread.start()
        self._life: Future[None] = self._begin(self._live())

    @property
    def policy_version(self) -> int:
        """Version of the last publication."""
        newest = self._folder.newest
        assert newest is not None
        return newest.version

    @property
    def stats(self) -> ProcessStats:
        before, now = self._before, self._work
        forwards = before.forwards + now.forwards
        return ProcessStats(
            busy_s=before.busy_s + now.busy_s,
            forwards=forwards,
            mean_batch=(before.rows + now.rows) / forwards if forwards else 0.0,
            sampled_tokens=before.sampled_tokens + now.sampled_tokens,
            deaths=self._deaths,
            taken_up=self._taken_up,
        )

    @property
    def pid(self) -> int | None:
        """Of the process now; ``None`` between two."""
        child = self._child
        return None if child is None else child.pid

    def set_version(self, version: int) -> None:
        """Publish the weights as they are now, as ``version``. Never waits for the process.

        Raises:
            WeightSyncError: they could not be written, or the engine is closed.
        """
        with self._publishing:
            if self._closed:
                raise WeightSyncError(
                    f"version {version} of the weights was published after the engine had been "
                    "closed; make a new one"
                )
            self._post(self._announce, self._folder.publish(version, self._save))

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        """Sample an answer; cancelling the call frees its place in the process.

        Raises:
            EngineError: what the engine in the process refuses; the process died, or is given up;
                the engine is closed.
        """
        kind = sampling
        call = Call(
            {
                "prompt": list(prompt_ids),
                "sampling": [kind.temperature, kind.top_p, kind.top_k, kind.max_tokens],
                "stop": list(stop_token_ids),
                "seed": seed,
                "episode": episode_id,
            }
        )
        self._post(self._ask, call)
        try:
            return await asyncio.wrap_future(call.answer)
        except asyncio.CancelledError:
            self._post(self._forget, call)
            raise

    def release(self, episode_id: str) -> None:
        """Free what is kept for an episode. Unknown ids are fine."""
        self._post(self._release, episode_id)

    async def aclose(self) -> None:
        """Fail pending calls and end the process; returns when it is gone."""
        if not self._closed:
            self._closed = True
            closing = self._begin(self._close())
        elif not self._thread.is_alive():
            return
        else:
            closing = self._life
        await asyncio.wait([asyncio.wrap_future(closing)])
        await asyncio.to_thread(self._thread.join, 5.0)

    # The engine's own thread

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _post(self, function: Callable[..., None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # the thread has ended
            if isinstance(argument, Call):
                argument.fail(_closed())

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _ask(self, call: Call) -> None:
        if call.answer.done():
            return  # cancelled before it was sent
        if self._closed:
            call.fail(_closed())
        elif self._failure is not None:
            call.fail(EngineError(self._failure))
        elif self._child is None:
            self._waiting.append(call)
        else:
            self._child.send(call)

    def _forget(self, call: Call) -> None:
        if self._child is not None:
            self._child.cancel(call)

    def _release(self, episode_id: str) -> None:
        if self._child is not None:
            self._child.release(episode_id)

    def _announce(self, weights: Publication) -> None:
        """Weights pass the child in the order they were published, each once."""
        if self._child is not None and weights.number > self._given:
            self._given = weights.number
            self._child.give(weights)

    def _used(self, number: int) -> None:
        self._taken_up += 1
        self._folder.forget_before(number)

    def _worked(self, work: Mapping[str, float]) -> None:
        self._work = EngineWork(
            work["busy_s"], int(work["forwards"]), work["rows"], int(work["sampled_tokens"])
        )

    async def _live(self) -> None:
        """One process after another, until the engine is closed or given up."""
        while not self._closed and self._failure is None:
            child = Child(
                self._program,
                self._folder.path,
                self._limits,
                on_taken_up=self._used,
                on_work=self._worked,
            )
            first = self._folder.newest
            assert first is not None
            try:
                ready = await child.open(first)
            except EngineError as error:
                await self._mourn(child, str(error))
                continue
            except asyncio.CancelledError:
                await child.bury("was not wanted any more", at_once=True)
                raise
            self._welcome(child, first, ready)
            try:
                await child.serve()
            except asyncio.CancelledError:
                await child.end()
                raise
            await self._mourn(child, str(child.death))

    def _welcome(self, child: Child, first: Publication, ready: Mapping[str, Any]) -> None:
        """The process can sample: it is given what has come meanwhile."""
        if self.context_tokens is None:
            self.context_tokens = ready.get("context_tokens")
        self._child, self._given = child, first.number
        self._used(first.number)
        newest = self._folder.newest
        if newest is not None:
            self._announce(newest)
        while self._waiting:
            call = self._waiting.popleft()
            if not call.answer.done():
                child.send(call)

    async def _mourn(self, child: Child, death: str) -> None:
        """A process is gone; perhaps too many of them."""
        self._child = None
        self._deaths += 1
        self._before, self._work = _sum(self._before, self._work), EngineWork(0.0, 0, 0.0, 0)
        self._stillborn = 0 if child.answered else self._stillborn + 1
        if self._stillborn < self._limits.rebirths:
            await asyncio.sleep(FIRST_PAUSE_S * 2 ** max(self._stillborn - 1, 0))
            return
        self._failure = (
            f"{death}\n{self._stillborn} processes in a row died without an answer: the engine is "
            "given up"
        )
        while self._waiting:
            self._waiting.popleft().fail(EngineError(self._failure))

    async def _close(self) -> None:
        while self._waiting:
            self._waiting.popleft().fail(_closed())
        self._life.cancel()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)
        self._child = None
        self._folder.close()
        self._loop.call_soon(self._loop.stop)


def _closed() -> EngineError:
    return EngineError("the engine is closed; make a new one")


def _sum(one: EngineWork, other: EngineWork) -> EngineWork:
    return EngineWork(
        one.busy_s + other.busy_s,
        one.forwards + other.forwards,
        one.rows + other.rows,
        one.sampled_tokens + other.sampled_tokens,
    )
