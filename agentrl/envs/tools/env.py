"""One episode made of an instruction, tools, perhaps a user, and a scorer.

What ends it:

- a call whose tool ends episodes (``finish``): terminated; its answer is the policy's;
- text without a call, where there is no user and no tool that ends episodes: terminated; the text
  is the answer. Where there is such a tool, text alone is answered with a reminder;
- the user, who has left: terminated. Text without a call goes to the user, if there is one;
- ``max_steps`` messages of the policy: truncated. Calls of the last one are still answered.

The scorer is asked once, at a termination. A truncated episode has reward 0 and is no success, as
one that a budget of the agent's cut off. Every call is answered, with its id, in call order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentrl.core.errors import AgentRLError, EnvError, UserError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import UserSimulator
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.tools.situation import Score, Scorer, Situation, StateKey, judge
from agentrl.tools.dispatch import CallRecord
from agentrl.tools.text import clean
from agentrl.tools.toolbox import OpenTools, Toolbox

__all__ = ["ToolEnv"]

NOTHING_SAID = "Your message was empty: call a tool, or say something."


@dataclass(frozen=True, slots=True)
class _Turn:
    """What came of one message of the policy."""

    messages: tuple[Message, ...] = ()
    over: bool = False
    valid: bool = True
    answer: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


class ToolEnv:
    """One episode; see the module. ``ToolEnvFactory`` makes it."""

    def __init__(
        self,
        task: Task,
        toolbox: Toolbox,
        score: Scorer,
        *,
        seed: int,
        instruction: str,
        user: UserSimulator | None = None,
        anchor: Callable[[Situation], Any] | Literal["facts"] | None = "facts",
        max_steps: int | None = None,
        success_at: float = 1.0,
    ) -> None:
        self._task = task
        self._toolbox = toolbox
        self._score = score
        self._seed = seed
        self._instruction = instruction
        self._user = user
        self._anchor = anchor
        self._max_steps = max_steps
        self._success_at = success_at
        self._opening: AbstractAsyncContextManager[OpenTools] | None = None
        self._tools: OpenTools | None = None
        self._messages: list[Message] = []
        self._conversation: list[Message] = []
        self._calls: list[CallRecord] = []
        self._facts = StateKey()
        self._steps = 0
        self._over = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Before ``reset``: those that are known before the episode."""
        return self._toolbox.specs if self._tools is None else self._tools.specs

    async def reset(self) -> Observation:
        if self._opening is not None or self._over:
            raise EnvError("reset called twice or after aclose; an Env plays one episode: make one")
        self._opening = self._toolbox.open(self._task, seed=self._seed)
        self._tools = await self._opening.__aenter__()
        shown: list[Message] = []
        if self._instruction:
            shown.append(Message("user" if self._user is None else "system", self._instruction))
        if self._user is not None:
            reply = await self._heard("")
            if reply is None:
                raise UserError("the simulated user left before saying anything")
            shown.append(reply)
        return self._observation(shown)

    async def step(self, action: Message) -> StepResult:
        if self._tools is None or self._over:
            raise EnvError("step called before reset, or after the episode was over or closed")
        self._messages.append(action)
        self._steps += 1
        text = clean(action.content).strip()
        if action.tool_calls:
            turn = await self._called(action, self._tools)
        elif not text:
            turn = _Turn((Message("user", NOTHING_SAID),), valid=False)
        elif self._user is not None:
            turn = await self._spoken(text)
        elif self._tools.ending:
            turn = _Turn((Message("user", self._reminder()),), valid=False)
        else:
            turn = _Turn(over=True, answer=text)
        return await self._result(turn)

    async def aclose(self) -> None:
        """Close tools, sandbox and user. The tools' own errors are raised when all is closed."""
        self._over = True
        opening, opened, self._opening = self._opening, self._tools is not None, None
        user, self._user = self._user, None
        try:
            if opening is not None and opened:
                await opening.__aexit__(None, None, None)
        finally:
            close = getattr(user, "aclose", None)
            if close is not None:
                await close()

    async def _called(self, action: Message, tools: OpenTools) -> _Turn:
        answered = await tools.answer(action.tool_calls)
        for record in answered.records:
            self._facts.called(record)
        self._calls += answered.records
        final = answered.final
        return _Turn(
            answered.messages,
            over=final is not None,
            valid=answered.well_formed,
            answer=None if final is None else final.answer,
            metrics=answered.metrics,
        )

    async def _spoken(self, text: str) -> _Turn:
        reply = await self._heard(text)
        if reply is None:
            return _Turn(over=True, answer=text)
        return _Turn((reply,))

    async def _heard(self, text: str) -> Message | None:
        """What the user says to ``text``; ``None``: the user has left."""
        assert self._user is not None
        if text:
            self._conversation.append(Message("assistant", text))
        try:
            reply = await self._user.reply(tuple(self._conversation))
        except AgentRLError:
            raise
        except Exception as error:
            raise UserError(f"the simulated user raised {type(error).__name__}: {error}") from error
        if reply is None:
            return None
        if not isinstance(reply, Message) or not clean(reply.content).strip():
            raise UserError(
                f"the simulated user said {reply!r}; expected a Message with text, or None for "
                "having left"
            )
        reply = replace(reply, role="user", content=clean(reply.content))
        self._conversation.append(reply)
        self._facts.said(text, reply.content)
        return reply

    async def _result(self, turn: _Turn) -> StepResult:
        truncated = not turn.over and self._steps == self._max_steps
        self._over = turn.over or truncated
        observation = self._observation(turn.messages, answer=turn.answer)
        score = Score(0.0, False)
        metrics = dict(turn.metrics)
        if self._over:
            metrics |= getattr(self._user, "metrics", {})
        if turn.over:
            situation = self._situation(turn.answer)
            score = await judge(self._score, situation, success_at=self._success_at)
        return StepResult(
            observation,
            reward=score.reward,
            terminated=turn.over,
            truncated=truncated,
            action_valid=turn.valid,
            success=score.success if self._over else None,
            metrics=metrics,
        )

    def _observation(self, shown: Sequence[Message], answer: str | None = None) -> Observation:
        self._messages += shown
        key = self._facts.value() if self._anchor == "facts" else None
        if callable(self._anchor):
            key = self._anchor(self._situation(answer))
        return Observation(tuple(shown), anchor=key)

    def _situation(self, answer: str | None) -> Situation:
        assert self._tools is not None
        return Situation(
            self._task,
            self._seed,
            tuple(self._messages),
            tuple(self._calls),
            answer,
            self._tools.parts,
        )

    def _reminder(self) -> str:
        assert self._tools is not None
        names = " or ".join(f"'{one}'" for one in self._tools.ending)
        return f"Text alone is no answer here: call a tool. The task is over when you call {names}."
