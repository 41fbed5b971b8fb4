"""SUMMARY

Check it: agentrl check tool MODULE:Skeleton
"""

from __future__ import annotations

from typing import Literal

from agentrl.core.errors import ToolError


class Skeleton:
    """Count how often a word stands in a text. Replace it by your own.

    The model is shown this text, so say what it needs to know.

    Args:
        text: Where to look.
        word: What to count.
        case: Whether capital letters matter.
    """

    read_only = True  # it changes nothing: calls of it run at once, others one after the other

    async def __call__(
        self, text: str, word: str, case: Literal["matters", "ignored"] = "ignored"
    ) -> str:
        """What is returned is what the model reads: a text, a number, a list, a dict."""
        if not word.strip():
            raise ToolError("give a word")  # told to the model; anything else ends the episode
        if case == "ignored":
            text, word = text.lower(), word.lower()
        return f"{text.split().count(word)} times"
