from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.credit import GiGPO
from agentrl.credit.functional import similarity_partition, text_ratio
from agentrl.testing.episodes import episode, group

Rows = Sequence[tuple[int, str | None]]


def plain(rows: Rows, threshold: float, *, autojunk: bool = False) -> list[int]:
    """The partition from its definition: difflib on every pair, in the order of the rows."""
    clusters: list[tuple[int, str]] = []
    labels = []
    for one, text in rows:
        if text is None:
            labels.append(-1)
            continue
        for label, (owner, first) in enumerate(clusters):
            ratio = SequenceMatcher(None, text, first, autojunk=autojunk).ratio
            if owner == one and ratio() >= threshold:
                labels.append(label)
                break
        else:
            labels.append(len(clusters))
            clusters.append((one, text))
    return labels


def ours(rows: Rows, threshold: float, *, reference: bool = False) -> list[int]:
    texts, owners = [text for _, text in rows], [one for one, _ in rows]
    labels = similarity_partition(texts, owners, threshold, reference=reference)
    return [int(one) for one in labels]


# A few letters make near matches likely; wide characters, halves of pairs and NUL are text too.
LETTERS = st.sampled_from(["ab", "abc", "abcdefgh ", "aé漢🙂", "\x00\ud800\U0010ffffa"])
THRESHOLDS = st.sampled_from([0.05, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99])


@st.composite
def related_rows(draw: st.DrawFn) -> Rows:
    """Texts that come from one another by edits and swapped blocks, in up to three groups."""
    letters = draw(LETTERS)
    texts = [draw(st.text(letters, max_size=30))]
    for _ in range(draw(st.integers(0, 9))):
        text = draw(st.sampled_from(texts))
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        middle = draw(st.text(letters, max_size=3))
        texts.append(
            draw(
                st.sampled_from(
                    [
                        text,
                        text[:start] + middle + text[end:],
                        text[:start] + middle + text[start:],
                        text[start:end] + text[:start] + text[end:],
                        text[end:] + text[start:end] + text[:start],
                        text[::-1],
                        middle,
                    ]
                )
            )
        )
    return [(draw(st.integers(0, 2)), draw(st.sampled_from([*texts, None]))) for _ in texts]


@given(related_rows(), THRESHOLDS, st.booleans())
@example([(0, "abcd"), (0, "bcde")], 0.75, False)  # the ratio is the threshold
@example([(0, "abxcd"), (0, "cdxab")], 0.6, False)  # common subsequence 3, matched blocks less
@example([(0, ""), (0, "a"), (0, ""), (0, None)], 0.05, False)
@example([(0, "tide"), (0, "diet"), (0, "tide")], 0.5, False)  # asymmetric: 0.25 and 0.5
def test_the_partition_is_that_of_the_plain_loop(
    rows: Rows, threshold: float, reference: bool
) -> None:
    assert ours(rows, threshold, reference=reference) == plain(rows, threshold, autojunk=reference)


@pytest.mark.parametrize("compiled", [True, False])
def test_long_texts_too_with_and_without_the_compiled_matcher(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setitem(sys.modules, "cydifflib", None)  # importing it raises ImportError
    rng = random.Random(7)
    letters = "etaoin shrdlu"
    bases = ["".join(rng.choice(letters) for _ in range(260)) for _ in range(3)]
    rows = []
    for _ in range(36):  # 0 to 12 edits of 260 characters: ratios on both sides of 0.95
        text = list(rng.choice(bases))
        for _ in range(rng.randrange(13)):
            text[rng.randrange(len(text))] = rng.choice(letters)
        rows.append((rng.randrange(2), "".join(text)))
    for reference in (False, True):
        found = ours(rows, 0.95, reference=reference)
        assert found == plain(rows, 0.95, autojunk=reference)
        assert len(set(found)) > 6


def test_similar_texts_share_a_cluster_and_unlike_ones_do_not() -> None:
    texts = ["a red apple on table 1", "a red apple on table 2", "an empty bathroom", None]
    assert similarity_partition(texts, [0] * 4, 0.9).tolist() == [0, 0, 1, -1]
    assert similarity_partition(texts, [0, 1, 0, 0], 0.9).tolist() == [0, 1, 2, -1]


def test_the_first_cluster_takes_it_not_the_best() -> None:
    # "aaab" is like "aaaa" (0.75) and like "aabb" (0.75); "aabb" opened its own, 0.5 from "aaaa".
    assert ours([(0, "aaaa"), (0, "aabb"), (0, "aaab")], 0.7) == [0, 1, 0]
    assert ours([(0, "aabb"), (0, "aaaa"), (0, "aaab")], 0.7) == [0, 1, 0]
    # being similar is not transitive, so the order of the rows decides
    assert ours([(0, "abcd"), (0, "abcx"), (0, "abyx")], 0.7) == [0, 0, 1]
    assert ours([(0, "abcx"), (0, "abcd"), (0, "abyx")], 0.7) == [0, 0, 0]


def test_long_texts_are_compared_character_by_character() -> None:
    long = "the quick brown fox jumps over the lazy dog " * 6  # 264 characters
    one, other = "alpha " + long, "other " + long
    assert text_ratio(one, other, autojunk=True) == 0.0
    assert text_ratio(one, other) > 0.97
    assert similarity_partition([one, other], [0, 0], 0.9).tolist() == [0, 0]
    assert similarity_partition([one, other], [0, 0], 0.9, reference=True).tolist() == [0, 1]


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1.0, float("nan")])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    with pytest.raises(DataError, match="strictly"):
        similarity_partition(["a"], [0], threshold)


@pytest.mark.parametrize("anchor", [{"a": 1}, 5, b"text"])
def test_similarity_needs_text_and_names_the_step_without(anchor: Any) -> None:
    with pytest.raises(DataError, match=f"type {type(anchor).__name__}"):
        similarity_partition([anchor], [0], 0.9)
    one = group("g", episode("a", (None, 0.0), ("s", 0.0)), episode("b", ("s", 0.0), (anchor, 1.0)))
    with pytest.raises(DataError, match="group 'g', trajectory 'g/b', step 1: similarity compares"):
        GiGPO(similarity=0.9).assign([one])
