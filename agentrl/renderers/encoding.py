"""Text to ids as text: whatever an environment says, no control token comes out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from agentrl.core.errors import ConfigError

__all__ = ["CALL_TOKENS", "TextEncoder", "clean_text"]

# Marks of tool calls and of thinking that some tokenizers hold as special tokens. In an answer they
# are what the model says, not a change of who speaks: decoding must not drop them.
CALL_TOKENS = frozenset(
    (
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"),
        *("<think>", "</think>", "[THINK]", "[/THINK]"),
    )
)

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD.

    Python strings may hold lone surrogates (a broken decode somewhere upstream); UTF-8 cannot.
    Control characters stay as they are.
    """
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class TextEncoder:
    """Encodes text of the outside world with a fast tokenizer.

    The literal text of a control token (``<|im_end|>`` in a web page, ``<think>`` in a log) is
    encoded by its characters, never as the control token: an observation cannot change who speaks.

    Args:
        tokenizer: A fast tokenizer of transformers.
        call_tokens: Special tokens that are marks of calls, besides ``CALL_TOKENS``.

    Attributes:
        control_ids: Ids that are no text: added tokens marked special, but for marks of calls.
        added: Text of every added token, special or not, with its id.
        size: Number of ids; larger ones (padding of the embedding) mean nothing.
    """

    def __init__(self, tokenizer: Any, *, call_tokens: Iterable[str] = ()) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"a renderer needs a fast tokenizer (one with a tokenizer.json), got "
                f"{type(tokenizer).__name__}; load it with agentrl.models.load_tokenizer"
            )
        self.backend = backend
        added = backend.get_added_tokens_decoder()
        self.added = {token.content: token_id for token_id, token in sorted(added.items())}
        marks = CALL_TOKENS.union(call_tokens)
        self.control_ids = frozenset(
            token_id
            for token_id, token in added.items()
            if token.special and token.content not in marks
        )
        self.size = backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def _text_only(self) -> Any:
        """The tokenizer without added tokens, built on first need: a large one takes a second."""
        from tokenizers import Tokenizer

        data = json.loads(self.backend.to_str())
        data.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
        return Tokenizer.from_str(json.dumps(data))

    def encode_text(self, text: str) -> list[int]:
        """Ids of ``text`` in which no added token is recognised."""
        ids: list[int] = self._text_only.encode(clean_text(text), add_special_tokens=False).ids
        return ids

    def encode_scaffold(self, text: str) -> list[int]:
        """Ids of text that a template wrote: its control tokens are control tokens."""
        ids: list[int] = self.backend.encode(clean_text(text), add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int], *, control: bool = True) -> str:
        """Text of ids; ``control`` keeps the text of control tokens. Unknown ids give nothing."""
        dropped = () if control else self.control_ids
        known = [one for one in token_ids if 0 <= one < self.size and one not in dropped]
        text: str = self.backend.decode(known, skip_special_tokens=False)
        return text

    def unknown(self, token_ids: Sequence[int]) -> int | None:
        """The first id that no token has, or ``None``."""
        return next((one for one in token_ids if not 0 <= one < self.size), None)
