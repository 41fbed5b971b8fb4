"""What tools say, made fit for a prompt: characters, and how many of them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tools.text import clean, cut, share_out

ANY = st.text(st.characters(codec=None, exclude_categories=()))  # surrogates included


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("a\ud83d\ude00b", "a\U0001f600b"),
        ("a\ud800b", "a\ufffdb"),
        ("a\x00b\x07", "a\ufffdb\ufffd"),
        ("\x1b[1;31mred\x1b[0m\x1b]0;title\x07!", "red!"),
        ("a\r\nb\rc\n\td", "a\nb\nc\n\td"),
        ("\x9b31m\x85", "\ufffd31m\ufffd"),
        ("no change: \u202e \u00e9 \U0001f511", "no change: \u202e \u00e9 \U0001f511"),
    ],
)
def test_characters_are_cleaned(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@given(ANY)
def test_clean_text_can_be_encoded_and_is_clean(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in cleaned)


def test_seventy_thousand_characters_become_head_marker_and_tail() -> None:
    text = "x" * 35_000 + "y" * 35_839
    shown = cut(text, 16_000)
    assert len(shown) <= 16_000
    head, marker, tail = shown.partition("\n[... 54,887 of 70,839 characters left out ...]\n")
    assert marker
    assert set(head) == {"x"}
    assert set(tail) == {"y"}
    assert len(head) + len(tail) == 15_952


@given(st.text(max_size=300), st.integers(0, 300))
def test_a_cut_text_keeps_head_and_tail_within_the_limit(text: str, chars: int) -> None:
    shown = cut(text, chars)
    if len(text) <= chars:
        assert shown == text
    else:
        head, _, rest = shown.partition("\n[... ")
        tail = rest.partition(" characters left out ...]\n")[2]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(shown) <= max(chars, 60)  # the marker itself is at most that


@given(st.text("ab ", max_size=400), st.integers(1, 200))
def test_a_budget_of_tokens_is_kept(text: str, tokens: int) -> None:
    def count(one: str) -> int:  # a letter is a token, a blank is two
        return len(one) + one.count(" ")

    shown = cut(text, 1000, tokens=tokens, count_tokens=count)
    marker = count("\n[... 400 of 400 characters left out ...]\n")
    assert count(shown) <= max(tokens, marker)
    if count(text) <= tokens:
        assert shown == text


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.integers(1, 5000))
def test_room_is_shared_fairly(sizes: list[int], room: int) -> None:
    shares = share_out(sizes, room, least=50)
    assert all(share <= size for share, size in zip(shares, sizes, strict=True))
    if sum(sizes) <= room:
        assert shares == sizes
    over = [share for share in shares if share > 50]
    assert sum(over) <= room
    cut_ones = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    if cut_ones:  # what is cut got as much as any other, up to the remainder of a division
        assert max(shares) - min(cut_ones) <= 1 or max(shares) <= 50
