"""The whole history, growing only at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentrl.core.message import Message
from agentrl.core.protocols import View
from agentrl.core.trajectory import Step

__all__ = ["Transcript", "acts", "as_messages"]


def acts(steps: Sequence[Step]) -> list[Step]:
    """The steps that the environment answered; calls that served a memory are not history."""
    return [step for step in steps if step.kind == "act"]


def as_messages(steps: Iterable[Step]) -> Iterator[Message]:
    """What each step showed, then what the model answered."""
    for step in steps:
        yield from step.shown
        yield step.said


class Transcript:
    """Everything that was shown and done, in order: one growing sequence, one training row.

    It neither measures nor drops anything: an episode too long for its budget is ended by the
    loop's token budget.
    """

    async def view(
        self, steps: Sequence[Step], newest: Sequence[Message], *, budget_tokens: int
    ) -> View:
        return View((*as_messages(acts(steps)), *newest), rewritten=False)
