"""What tools say, made fit for a prompt: characters only, and no more than there is room for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["clean", "cut", "share_out"]

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LONE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """``text`` as a prompt may hold it.

    Surrogate pairs are joined, lone ones become U+FFFD. Line ends become newlines, terminal
    sequences (colours, titles) vanish, other control characters but tab become U+FFFD.
    """
    if _LONE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not _CONTROL.search(text):
        return text
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", text)


def cut(
    text: str,
    chars: int,
    *,
    tokens: int | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> str:
    """``text``, or its head and tail around a marker that says how much is left out.

    Args:
        text: What is to be shown.
        chars: Most characters of the result, the marker included (as far as the marker fits).
        tokens: Most tokens of the result, likewise; needs ``count_tokens``.
        count_tokens: Number of tokens of a text.
    """
    shown = _cut(text, chars)
    if tokens is None or count_tokens is None:
        return shown
    # Counting a cut text costs no more than the cut: it starts from what the characters allow.
    size = len(shown)
    while (used := count_tokens(shown)) > tokens and size > 0:
        size = min(size - 1, size * tokens // used)
        shown = _cut(text, size)
        if len(shown) > size:  # nothing but the marker is left
            break
    return shown


def _cut(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    total = f"{len(text):,}"
    room = max(chars - len(_marker(total, total)), 0)
    tail = room // 2
    head = room - tail
    marker = _marker(f"{len(text) - room:,}", total)
    return text[:head] + marker + (text[-tail:] if tail else "")


def _marker(left_out: str, total: str) -> str:
    return f"\n[... {left_out} of {total} characters left out ...]\n"


def share_out(sizes: Sequence[int], room: int, *, least: int = 200) -> list[int]:
    """How much of ``room`` each of several texts may take.

    What a short text does not need the longer ones get, in equal shares; nothing is cut below
    ``least``. The shares add up to at most ``room``, but for texts that short.
    """
    shares = [0] * len(sizes)
    left = room
    by_size = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
    for done, place in enumerate(by_size):
        fair = left // (len(sizes) - done)
        shares[place] = min(sizes[place], max(fair, least))
        left = max(left - shares[place], 0)
    return shares
