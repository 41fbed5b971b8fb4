"""A scorer that asks a model: for answers that no string comparison can judge."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from agentrl.completions.client import CompletionClient
from agentrl.core.errors import EnvError
from agentrl.core.message import Message
from agentrl.envs.tools.situation import Score, Situation

__all__ = ["ModelJudge"]

ASKED = (
    "You judge how an assistant solved a task. Judge only by the criteria. Answer with one JSON "
    'object and nothing after it: {"reason": "one sentence", "score": a number from 0 to 1}.'
)
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


def shown(situation: Situation) -> str:
    """The episode as a judge reads it: the task, what was said and called, the answer."""
    lines = [f"{one.role}: {one.content}" for one in situation.messages if one.content]
    called = [
        f"call: {one.call.name} {json.dumps(dict(one.call.arguments))} -> {one.result.content}"
        for one in situation.calls
    ]
    answer = "" if situation.answer is None else f"\n\nThe answer:\n{situation.answer}"
    return "The episode:\n" + "\n".join([*lines, *called]) + answer


class ModelJudge:
    """A scorer for ``ToolEnvFactory(score=...)``.

    A model's judgement is an opinion: fix its temperature, keep its replies (``record``), and
    measure how often it agrees with people before a policy learns to please it.

    Args:
        client: The endpoint.
        criteria: What a good solution is, in words; may be a function of the situation.
        describe: What the judge is shown of the episode.
        success_at: The score from which a task counts as solved.
        retries: Further questions where a reply is no score.
    """

    def __init__(
        self,
        client: CompletionClient,
        criteria: str | Callable[[Situation], str],
        *,
        describe: Callable[[Situation], str] = shown,
        success_at: float = 1.0,
        retries: int = 1,
    ) -> None:
        self._client = client
        self._criteria = criteria
        self._describe = describe
        self._success_at = success_at
        self._retries = retries

    async def __call__(self, situation: Situation) -> Score:
        """Ask for a score.

        Raises:
            EnvError: no reply was one, so the episode cannot be scored.
            EngineError: the endpoint could not answer.
        """
        criteria = self._criteria(situation) if callable(self._criteria) else self._criteria
        question = f"The criteria:\n{criteria}\n\n{self._describe(situation)}"
        said = ""
        for _ in range(self._retries + 1):
            answer = await self._client.complete(
                [Message("system", ASKED), Message("user", question)], temperature=0.0
            )
            said = answer.message.content
            score = _score(said)
            if score is not None:
                return Score(score, score >= self._success_at)
        model = self._client.model
        raise EnvError(f"the judge ({model}) gave no score from 0 to 1: {said[:300]!r}")


def _score(text: str) -> float | None:
    found = _OBJECT.search(text)
    try:
        score = json.loads(found[0])["score"] if found else None
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    return float(score) if 0 <= score <= 1 else None  # NaN is neither
