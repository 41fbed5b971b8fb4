"""The beginning and the last few steps: bounded prompts, a new segment at every step."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message
from agentrl.core.protocols import View
from agentrl.core.trajectory import Step
from agentrl.memory.transcript import acts, as_messages

__all__ = ["Window"]


class Window:
    """Shows what the first prompt showed (system, task, first observation) and the last steps.

    While no step is hidden the view only grows; once the history is longer than ``steps`` every
    view is rewritten, so every step becomes a training row of its own. What lies outside the
    window is forgotten: an environment whose replies do not repeat the state (what is held, for
    instance) is harder to play this way. Nothing is measured: prompts grow with the size of the
    steps, and the loop's token budget ends an episode that is too long.

    Args:
        steps: How many finished steps are shown, each with its observation and action; at
            least 0.

    Raises:
        ConfigError: ``steps`` is negative or no whole number.
    """

    def __init__(self, steps: int = 3) -> None:
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ConfigError(f"memory window: steps={steps!r} must be a whole number, 0 or more")
        self._size = steps

    async def view(
        self, steps: Sequence[Step], newest: Sequence[Message], *, budget_tokens: int
    ) -> View:
        history = acts(steps)
        hidden = len(history) - self._size
        if hidden <= 0:
            return View((*as_messages(history), *newest), rewritten=False)
        return View((*history[0].shown, *as_messages(history[hidden:]), *newest), rewritten=True)
