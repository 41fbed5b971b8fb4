"""One call of one tool: its slot, its thread, its deadline, and who is to blame if it fails."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentrl.core.errors import AgentRLError, DeadlineError, EnvError, ToolError
from agentrl.core.protocols import ToolResult
from agentrl.tools.blocking import LoopWatch
from agentrl.tools.definition import Definition
from agentrl.tools.results import result_of
from agentrl.tools.text import clean
from agentrl.tools.threads import Threads

__all__ = ["LiveTool", "Ran", "Runs"]

CANCEL_S = 1.0
ABANDONED = 64

# asyncio holds only weak references to tasks: what ignores its cancellation is held here.
_STRAYS: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a call. ``problem`` is empty, ``error`` (a ToolError) or ``late``."""

    result: ToolResult
    problem: Literal["", "error", "late"]
    seconds: float
    waited_s: float


@dataclass(slots=True)
class Runs:
    """What the calls of one tool share over all episodes: its slots, its lost threads."""

    definition: Definition
    lost_threads: int = 0
    threads: Threads = field(init=False)
    _slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def __post_init__(self) -> None:
        self.threads = Threads(f"tool {self.definition.name}")

    def slot(self) -> asyncio.Semaphore | None:
        """The semaphore of the running event loop, if calls at once are limited."""
        most = self.definition.settings.max_parallel
        if most is None:
            return None
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(most)
        return self._slots[loop]


@dataclass(frozen=True, slots=True)
class LiveTool:
    """A tool of one episode. ``call`` is what is called with the arguments by name."""

    definition: Definition
    call: Callable[..., Any]
    runs: Runs

    async def run(
        self,
        arguments: Mapping[str, Any],
        *,
        deadline_s: float,
        watch: LoopWatch,
        clock: Callable[[], float],
    ) -> Ran:
        """Call the tool.

        Raises:
            DeadlineError: it did not answer in time, and the model is not to blame.
            AgentRLError: what the tool itself raised of that kind, with its name.
            EnvError: it raised or returned what no tool should.
        """
        asked = clock()
        slot = self.runs.slot()
        if slot is not None:
            await slot.acquire()
        started = clock()
        try:
            result, problem = await self._answer(arguments, deadline_s, watch)
        finally:
            if slot is not None:
                slot.release()
        return Ran(result, problem, clock() - started, started - asked)

    async def _answer(
        self, arguments: Mapping[str, Any], deadline_s: float, watch: LoopWatch
    ) -> tuple[ToolResult, Literal["", "error", "late"]]:
        settings, label = self.definition.settings, f"the tool '{self.definition.name}'"
        deadline_s = settings.deadline_s or deadline_s
        try:
            if settings.quick and not _is_async(self.call):
                value = self._quickly(arguments, watch)
                if not inspect.isawaitable(value):
                    return self._read(value), ""
                work: Coroutine[Any, Any, Any] = self._awaited(value, watch)
            elif _is_async(self.call):
                work = watch.follow(self.definition.name, self.call(**arguments))
            else:
                work = self._in_thread(arguments, watch)
            return self._read(await _within(work, deadline_s)), ""
        except _Late:
            text = f"{label} gave no answer within {deadline_s:g} s"
            if settings.tell_late:
                return ToolResult(f"error: {text}"), "late"
            raise DeadlineError(text) from None
        except (Exception, SystemExit) as error:
            told = _told(error)
            if told is None:
                raise _blamed(error, label) from error
            return ToolResult(f"error: {clean(told)}"), "error"

    def _read(self, value: Any) -> ToolResult:
        definition = self.definition
        label = f"the tool '{definition.name}'"
        return result_of(value, label, may_be_none=definition.may_return_none)

    def _quickly(self, arguments: Mapping[str, Any], watch: LoopWatch) -> Any:
        started = watch.enter(self.definition.name)
        try:
            return self.call(**arguments)
        finally:
            watch.leave(self.definition.name, started)

    async def _awaited(self, value: Any, watch: LoopWatch) -> Any:
        """What a plain function returned to be awaited, as a decorated one may."""
        if inspect.iscoroutine(value):
            return await watch.follow(self.definition.name, value)
        return await value

    async def _in_thread(self, arguments: Mapping[str, Any], watch: LoopWatch) -> Any:
        value = await self._from_thread(arguments)
        return await self._awaited(value, watch) if inspect.isawaitable(value) else value

    async def _from_thread(self, arguments: Mapping[str, Any]) -> Any:
        """Call in a thread that no other call uses meanwhile."""
        runs = self.runs
        if runs.lost_threads >= ABANDONED:
            raise EnvError(
                f"{runs.lost_threads} calls of it have not returned though their time is over; "
                "give it a deadline of its own inside (a timeout of the request, say)"
            )
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        lost = False

        def work() -> None:
            error: BaseException | None = None
            value: Any = None
            try:
                value = self.call(**arguments)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                _settle_late(value)  # the loop is closed: nobody waits any more

        def settle(value: Any, error: BaseException | None) -> None:
            if lost:
                runs.lost_threads -= 1
            if done.done():
                _settle_late(value)
            elif error is not None:
                done.set_exception(_Raised(error))
            else:
                done.set_result(value)

        runs.threads.run(work)
        try:
            return await done
        except _Raised as raised:
            raise raised.error from None
        except asyncio.CancelledError:
            lost = True
            runs.lost_threads += 1
            raise


def _settle_late(value: Any) -> None:
    """Drop what came too late; a coroutine is closed, or Python would warn."""
    if inspect.iscoroutine(value):
        value.close()


class _Raised(Exception):
    """Carries what a thread raised: a future refuses StopIteration, and the loop SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Late(Exception):
    """The deadline is over."""


async def _within(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """The result of ``work``; after so many ``seconds`` it is cancelled, and left if it goes on.

    Raises:
        _Late: it was late.
    """
    task = asyncio.get_running_loop().create_task(_shielded(work))
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if done:
        value, error = task.result()
        if error is not None:
            raise error
        return value
    await _end(task)
    raise _Late


async def _shielded(work: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """The value or the error: SystemExit leaving a task would end the whole event loop."""
    try:
        return await work, None
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return None, EnvError("it was cancelled by its own code")
    except (Exception, SystemExit) as error:
        return None, error


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _STRAYS.add(task)
    task.add_done_callback(_STRAYS.discard)
    await asyncio.wait((task,), timeout=CANCEL_S)


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def _told(error: BaseException) -> str | None:
    """The text for the model, if ``error`` is meant for it."""
    if isinstance(error, BaseExceptionGroup):
        tool_errors, others = error.split(ToolError)
        if tool_errors is None or others is not None:
            return None
        return "; ".join(filter(None, (_told(one) for one in tool_errors.exceptions)))
    if not isinstance(error, ToolError):
        return None
    return str(error).strip() or "the tool failed and gave no reason"


def _blamed(error: BaseException, label: str) -> AgentRLError:
    """The infra failure that names the tool. A class of ours is kept, for statistics."""
    text = str(error)
    if isinstance(error, AgentRLError):
        if text.startswith(label):
            return error
        kind = type(error)
        own = kind.__module__ == AgentRLError.__module__
        return (kind if own else EnvError)(f"{label}: {text}")
    if isinstance(error, SystemExit):
        text = f"it tried to end the process ({text})"
    return EnvError(f"{label} raised {type(error).__name__}: {text}")
