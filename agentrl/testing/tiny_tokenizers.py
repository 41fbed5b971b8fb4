"""A small tokenizer that every renderer can be tried with: nothing is downloaded."""

from __future__ import annotations

from typing import Any

__all__ = ["CHATML", "tiny_tokenizer"]

TEXTS = tuple(
    text
    for number in (1, 2)
    for text in (f"go to desk {number}", f"You arrive at desk {number}. Find a mug.", "Be brief.")
)
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tiny_tokenizer() -> Any:
    """About 330 tokens: those of the plain renderer, and a chat template with its own."""
    from agentrl.models.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=320)
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"}
    )
    tokenizer.chat_template = CHATML
    return tokenizer
