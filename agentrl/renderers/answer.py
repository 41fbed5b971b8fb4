"""Sampled ids to the assistant's message: shared by every renderer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentrl.core.message import Message, ParseFailure
from agentrl.dialects.thinking import THINK_CLOSE, THINK_OPEN
from agentrl.renderers.encoding import TextEncoder

__all__ = ["THINK_CLOSE", "THINK_OPEN", "join_reasoning", "read_answer", "split_reasoning"]


def split_reasoning(text: str, *, opened: bool = False) -> tuple[str | None, str] | None:
    """Split ``<think>reasoning</think>content``.

    Only a block at the very beginning is the model's thinking; later ``<think>`` is content.

    Args:
        text: Answer without control tokens.
        opened: The prompt already ended with an open ``<think>``.

    Returns:
        (reasoning, content), stripped; reasoning is ``None`` if there is no block or an empty one.
        ``None`` when the block is never closed.
    """
    body = text.lstrip()
    if body.startswith(THINK_OPEN):
        body = body[len(THINK_OPEN) :]
    elif not opened:
        return None, text.strip()
    reasoning, closing, content = body.partition(THINK_CLOSE)
    return (reasoning.strip() or None, content.strip()) if closing else None


def join_reasoning(message: Message) -> str:
    """The text a model says for ``message``: what ``split_reasoning`` takes apart again."""
    if message.reasoning is None:
        return message.content
    return f"{THINK_OPEN}{message.reasoning}{THINK_CLOSE}{message.content}"


def read_answer(
    token_ids: Sequence[int],
    *,
    encoder: TextEncoder,
    stop_token_ids: Collection[int],
    think_opened: bool = False,
) -> Message | ParseFailure:
    """The assistant message in sampled ids.

    Kinds of failure: ``truncated`` (no stop token at the end), ``control_token`` (one inside the
    answer: a turn of somebody else made up, for instance), ``unknown_token`` (an id without a
    token), ``unclosed_think``. An answer that is nothing but its stop token is an empty message.
    """
    ids = list(token_ids)
    text = encoder.decode(ids, control=False)
    unknown = encoder.unknown(ids)
    if unknown is not None:
        return ParseFailure(
            "unknown_token",
            f"sampled id {unknown}, but the tokenizer has ids 0 to {encoder.size - 1}",
            text,
        )
    if not ids or ids[-1] not in stop_token_ids:
        return ParseFailure(
            "truncated", "the answer hit its length limit before a stop token ended it", text
        )
    inside = next((one for one in ids[:-1] if one in encoder.control_ids), None)
    if inside is not None:
        token = encoder.decode([inside])
        return ParseFailure("control_token", f"the answer holds the control token {token}", text)
    parts = split_reasoning(text, opened=think_opened)
    if parts is None:
        return ParseFailure(
            "unclosed_think", f"the answer ends inside its {THINK_OPEN} block", text
        )
    reasoning, content = parts
    return Message("assistant", content, reasoning=reasoning)
