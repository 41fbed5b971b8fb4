"""A user played by a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentrl.completions.client import CompletionClient
from agentrl.core.errors import EngineError, UserError
from agentrl.core.message import Message

__all__ = ["ModelUser"]

OPENS = "Hello. How can I help you today?"
LEAVES = "###STOP###"


class ModelUser:
    """The user of one episode; the client may serve many.

    To the model the agent is the one who asks: it is shown the conversation with the roles turned
    round, after an opening of the agent's that it answers with its first words.

    Args:
        client: The endpoint.
        instruction: Who the user is, what they want, and how they talk. It should tell the model
            to say ``leaves`` when the user is done.
        leaves: What the user says to leave, wherever it stands in a reply. Said alone it ends the
            episode. Text beside it is delivered without it, the policy has one more turn (to do
            what the user has just agreed to), and then the user is gone.
        opens: What the agent is taken to have said first.
        temperature: Of its replies. max_tokens: The longest.
        seed: Sent along; how far an endpoint heeds it is its own affair.
    """

    def __init__(
        self,
        client: CompletionClient,
        instruction: str,
        *,
        leaves: str = LEAVES,
        opens: str = OPENS,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int | None = None,
    ) -> None:
        self._client = client
        self._instruction = instruction
        self._leaves = leaves
        self._opens = opens
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._seed = seed
        self._reminder = f"(You said nothing. Say something, or {leaves} if you are done.)"
        self._left_talking = False

    @property
    def metrics(self) -> Mapping[str, float]:
        """``premature_stop``: whether they left with something still said."""
        return {"premature_stop": float(self._left_talking)}

    async def reply(self, conversation: Sequence[Message]) -> Message | None:
        """What the user says next; ``None``: they have left.

        Raises:
            UserError: the endpoint could not answer, or answered nothing, twice.
        """
        if self._left_talking:
            return None
        shown = [Message("system", self._instruction), Message("user", self._opens)]
        for said in conversation:
            turned = Message("assistant" if said.role == "user" else "user", said.content)
            shown.append(turned)
        text = await self._ask(shown)
        if not text:  # asked once more; that question is no part of the conversation
            text = await self._ask([*shown, Message("user", self._reminder)])
        if not text:
            raise UserError(
                f"the model that plays the user ({self._client.model}) said nothing, twice"
            )
        spoken = text.replace(self._leaves, " ").strip()
        if self._leaves in text:
            if not spoken:
                return None
            # Said in one breath with leaving: it is heard, and the policy may still act on it.
            self._left_talking = True
        return Message("user", spoken)

    async def _ask(self, shown: Sequence[Message]) -> str:
        try:
            answer = await self._client.complete(
                shown,
                temperature=self._temperature,
                max_tokens=self._max_tokens,
                seed=self._seed,
            )
        except EngineError as error:
            raise UserError(f"the simulated user: {error}") from error
        return answer.message.content.strip()
