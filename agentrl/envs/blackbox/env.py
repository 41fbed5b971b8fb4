"""One episode of an agent that speaks to our endpoint: what it asks is what the policy sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

from agentrl.core.errors import EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.blackbox.chat import same_conversation
from agentrl.envs.blackbox.endpoint import Endpoint
from agentrl.envs.blackbox.exchange import Asked, Broken, Ended, Exchange
from agentrl.envs.blackbox.running import Runs
from agentrl.envs.tools.situation import Score

__all__ = ["BlackBoxEnv"]

Anchor = Literal["new", "conversation"] | None


class BlackBoxEnv:
    """One episode; ``BlackBoxFactory`` makes it.

    ``step`` answers the agent's question and waits for its next one, or for its end. A question
    that goes on where the last answer ended shows the policy its new messages alone; any other (the
    agent has summarised, or runs a second conversation) begins afresh, and a new segment with it.
    """

    def __init__(
        self,
        exchange: Exchange,
        endpoint: Endpoint,
        runs: Runs,
        *,
        anchor: Anchor,
        success_at: float,
    ) -> None:
        self._exchange = exchange
        self._endpoint = endpoint
        self._runs = runs
        self._anchor = anchor
        self._success_at = success_at
        self._asked: Asked | None = None
        self._held: tuple[Message, ...] = ()
        self._begun = self._over = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Those of the question under way: an agent may offer others each time."""
        return () if self._asked is None else self._asked.question.tools

    async def reset(self) -> Observation:
        if self._begun or self._over:
            raise EnvError("reset called twice or after aclose; an Env plays one episode: make one")
        self._begun = True
        await self._runs.start(self._exchange, self._endpoint.url)
        event = await self._exchange.next()
        if isinstance(event, Asked):
            return replace(self._observed(event), fresh=False)  # nothing came before it
        if isinstance(event, Broken):
            raise EnvError(f"the agent failed before it asked anything: {event.why}")
        raise EnvError(
            f"the agent ended with {event.result!r} before it asked its model anything, so there "
            "is no step to learn from. Does it use the endpoint and the key that it was given?"
        )

    async def step(self, action: Message) -> StepResult:
        if self._asked is None or self._over:
            raise EnvError("step called before reset, or after the episode was over or closed")
        asked = self._asked
        self._held = (*asked.question.messages, action)
        offered = {one.name for one in asked.question.tools}
        called = [one.name in offered for one in action.tool_calls if one.problem is None]
        valid = all(called) if called else bool(action.content.strip())
        self._exchange.answer(asked, action)
        event = await self._exchange.next()
        if isinstance(event, Asked):
            return StepResult(self._observed(event), 0.0, terminated=False, action_valid=valid)
        self._over = True
        if isinstance(event, Broken):
            raise EnvError(f"the agent failed: {event.why}")
        score = _score(event, self._success_at)
        return StepResult(
            Observation(()),
            score.reward,
            terminated=True,
            action_valid=valid,
            success=score.success,
        )

    async def aclose(self) -> None:
        """Refuse whatever the agent asks from now on, and end it."""
        self._over = True
        self._endpoint.forget(self._exchange, "its environment was closed")
        await self._runs.stop()

    def _observed(self, asked: Asked) -> Observation:
        before, told = self._asked, asked.question
        goes_on = (
            before is not None
            and before.question.tools == told.tools
            and same_conversation(self._held, told.messages)
        )
        self._asked = asked
        new = told.messages[len(self._held) :] if goes_on else told.messages
        anchor: Any = None
        if self._anchor is not None:
            of = new if self._anchor == "new" else told.messages
            anchor = [[one.role, one.content] for one in of]
        return Observation(new, anchor=anchor, fresh=not goes_on)


def _score(ended: Ended, success_at: float) -> Score:
    """What the agent returned, as a score.

    Raises:
        EnvError: it is none.
    """
    result = ended.result
    if isinstance(result, Score):
        result = {"reward": result.reward, "success": result.success}
    if isinstance(result, Real) and math.isfinite(result):  # a bool is a number
        reward = float(result)
        return Score(reward, reward >= (0.5 if isinstance(result, bool) else success_at))
    if isinstance(result, Mapping) and "reward" in result:
        reward, success = result["reward"], result.get("success")
        known = reward is None or (isinstance(reward, Real) and math.isfinite(reward))
        if known and isinstance(success, bool | None):
            value = None if reward is None else float(reward)
            if success is None:
                success = value is not None and value >= success_at
            return Score(value, success)
    raise EnvError(
        f"the agent returned {result!r}; expected its reward: a finite number, a bool, or "
        '{"reward": number or null, "success": bool}'
    )
