"""What every memory must do. The subject makes one: ``assert_contract(CHECKS, Transcript)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentrl.core.message import Message
from agentrl.core.protocols import Memory, View
from agentrl.core.trajectory import Observation, Sample, Step, StepResult
from agentrl.testing.contract import require

__all__ = ["CHECKS", "history"]

MakeMemory = Callable[[], Memory]
LENGTH = 8
BUDGET = 1_000_000


def history(name: str = "house", length: int = LENGTH) -> tuple[Step, ...]:
    """An episode of ``length`` steps; every message is different."""
    steps = []
    for index in range(length):
        shown: tuple[Message, ...] = (Message("user", f"{name}: room {index}"),)
        if index == 0:
            shown = (Message("system", f"{name}: rules"), Message("user", f"{name}: find it"))
        steps.append(
            Step(
                index=index,
                shown=shown,
                anchor=f"room {index}",
                prompt_ids=(1, 2),
                sample=Sample((3,), (-1.0,), ((0, 0),), "stop"),
                action=Message("assistant", f"{name}: go {index}", reasoning=f"thought {index}"),
                action_key=f"go {index}",
                parse_status="ok",
                result=StepResult(Observation(()), 0.0, terminated=False),
            )
        )
    return tuple(steps)


async def first_view_is_what_was_shown(make: MakeMemory) -> None:
    """The first view is the newest messages, all of them, and not rewritten."""
    newest = history()[0].shown
    view = await make().view((), newest, budget_tokens=BUDGET)
    require(view.messages == newest, f"expected {newest}, got {view.messages}")
    require(not view.rewritten, "nothing came before the first view, so it cannot be rewritten")


async def newest_comes_last(make: MakeMemory) -> None:
    """Every view ends with the newest messages."""
    for newest, view in await _views(make(), history()):
        end = view.messages[len(view.messages) - len(newest) :]
        require(end == newest, f"expected the view to end with {newest}, got {end}")


async def rewriting_is_said(make: MakeMemory) -> None:
    """A view that is more than the last one, the answer and the newest says ``rewritten``."""
    steps = history()
    views = await _views(make(), steps)
    for position in range(1, len(views)):
        newest, view = views[position]
        grown = (*views[position - 1][1].messages, steps[position - 1].action, *newest)
        require(
            view.rewritten or view.messages == grown,
            f"view {position} does not extend view {position - 1}, yet rewritten is False; the "
            "policy would be shown something else than the record says",
        )


async def the_task_stays_in_view(make: MakeMemory) -> None:
    """What the first prompt showed can be read in every view."""
    steps = history()
    for _, view in await _views(make(), steps):
        for message in steps[0].shown:
            require(
                any(message.content in one.content for one in view.messages),
                f"'{message.content}' of the first prompt is gone from a later view",
            )


async def nothing_is_put_into_the_policys_mouth(make: MakeMemory) -> None:
    """Assistant messages in a view are actions of recorded steps."""
    steps = history()
    actions = [step.action for step in steps]
    for _, view in await _views(make(), steps):
        for message in view.messages:
            require(
                message.role != "assistant" or message in actions,
                f"the view holds an assistant message that was never an action: {message}",
            )


async def episodes_do_not_mix(make: MakeMemory) -> None:
    """Two memories used in turn give what each gives alone."""
    first, second = history("house"), history("shop")
    alone = [await _views(make(), first), await _views(make(), second)]
    one, other = make(), make()
    for position in range(LENGTH):
        for memory, steps, views in ((one, first, alone[0]), (other, second, alone[1])):
            view = await _view(memory, steps, position)
            require(view == views[position][1], "a view depends on another episode's memory")


async def _view(memory: Memory, steps: Sequence[Step], position: int) -> View:
    return await memory.view(steps[:position], steps[position].shown, budget_tokens=BUDGET)


async def _views(memory: Memory, steps: Sequence[Step]) -> list[tuple[tuple[Message, ...], View]]:
    """For every step: what was new, and the view before it."""
    return [(steps[k].shown, await _view(memory, steps, k)) for k in range(len(steps))]


CHECKS = (
    first_view_is_what_was_shown,
    newest_comes_last,
    rewriting_is_said,
    the_task_stays_in_view,
    nothing_is_put_into_the_policys_mouth,
    episodes_do_not_mix,
)
