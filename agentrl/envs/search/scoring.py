"""How an answer is compared with the right ones: exact match and F1, as SQuAD does it."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

__all__ = ["exact_match", "f1", "normalise_answer"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without the articles a, an, the, single spaces.

    Source: Rajpurkar et al., SQuAD (arXiv 1606.05250), section 6.1: "we ignore punctuations and
    articles"; in this order, so that "U.S." becomes "us" and "the-end" becomes "theend".
    """
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if ``answer`` is one of ``accepted`` after normalisation, else 0."""
    given = normalise_answer(answer)
    return float(any(given == normalise_answer(one) for one in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The best F1 of ``answer`` against one of ``accepted``, over multisets of normalised words.

    With ``c`` words in common (each as often as it is in both)::

        precision = c / words of the answer,   recall = c / words of the accepted answer
        F1 = 2 precision recall / (precision + recall),   0 if c = 0

    An answer without words is right only against an accepted one without words.

    Returns:
        In [0, 1]; 0 if nothing is accepted.
    """
    return max(
        (_f1(normalise_answer(answer), normalise_answer(one)) for one in accepted), default=0.0
    )


def _f1(given: str, right: str) -> float:
    left, wanted = given.split(), right.split()
    if not left or not wanted:
        return float(left == wanted)
    common = sum((Counter(left) & Counter(wanted)).values())
    return 2.0 * common / (len(left) + len(wanted))
