"""Exact match and F1, by hand and by their properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.envs.search import exact_match, f1, normalise_answer

WORDS = st.lists(st.sampled_from(["bado", "kirn", "sela", "ford", "The", "a", "X."]), max_size=6)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Bado\tKirn.", "bado kirn"),
        ("U.S.", "us"),
        ("an apple a day", "apple day"),
        ("the-end", "theend"),
        ("Theodore", "theodore"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation, as in SQuAD
        ("THE", ""),
        ("", ""),
    ],
)
def test_case_articles_punctuation_and_spaces_do_not_count(text: str, normal: str) -> None:
    assert normalise_answer(text) == normal


def test_any_accepted_answer_will_do() -> None:
    assert exact_match("bado heron kirn!", ["Bado Kirn", "Bado Heron Kirn"]) == 1.0
    assert exact_match("Kirn Bado", ["Bado Kirn"]) == 0.0
    assert exact_match("Bado Kirn", []) == 0.0


@pytest.mark.parametrize(
    ("answer", "accepted", "value"),
    [
        ("Bado Kirn", ["Kirn, Bado"], 1.0),  # a multiset has no order
        ("Bado", ["Bado Kirn"], 2 / 3),  # precision 1, recall 1/2
        ("Bado Kirn of Sela Ford", ["Bado Kirn"], 4 / 7),  # precision 2/5, recall 1
        ("kirn kirn", ["Bado Kirn"], 1 / 2),  # each word as often as in both
        ("Bado", ["Sela Ford", "Bado Bay"], 2 / 3),  # the best of them
        ("", ["Bado"], 0.0),
        ("the", ["a"], 1.0),  # nothing is left of either
        ("Bado", [], 0.0),
    ],
)
def test_f1_by_hand(answer: str, accepted: list[str], value: float) -> None:
    assert f1(answer, accepted) == pytest.approx(value)


@given(WORDS, WORDS)
def test_f1_is_symmetric_bounded_and_1_where_the_match_is_exact(
    left: list[str], right: list[str]
) -> None:
    one, other = " ".join(left), " ".join(right)
    value = f1(one, [other])
    assert 0.0 <= value <= 1.0
    assert value == f1(other, [one])
    if exact_match(one, [other]):
        assert value == 1.0
    assert (value == 1.0) == (
        sorted(normalise_answer(one).split()) == sorted(normalise_answer(other).split())
    )


@given(st.text(), st.text())
def test_odd_text_is_compared_too(answer: str, accepted: str) -> None:
    assert exact_match(answer, [accepted]) <= f1(answer, [accepted])
    assert f1(answer, [answer]) == exact_match(answer, [answer]) == 1.0
