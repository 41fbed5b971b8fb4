"""Questions of yours, by split; none is in two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.task import content_hash
from agentrl.envs.search.scoring import normalise_answer
from agentrl.envs.search.sources import Source, is_source, read_questions

__all__ = ["Questions", "questions_by_split"]

Questions = Source | Mapping[str, Source]
SPLITS = ("train", "validation", "test")


def questions_by_split(
    questions: Questions, hops: Sequence[int] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Read questions, and see to it that no question is in two splits.

    A question is the same if its words are (SQuAD's normalisation: case, punctuation and articles
    aside), whatever its answers. Without splits, 6 of 10 are in ``train``, 2 in ``validation`` and
    2 in ``test``, decided by the hash of those words.

    Args:
        questions: A source, or sources by split.
        hops: Keep only questions with these numbers of hops; empty: all.

    Raises:
        ConfigError, DataError: as ``read_questions``; a question in two splits, with both places;
            ``hops`` asked of a question that does not say; a split that is left empty.
    """
    by_split: Mapping[str, Any]
    if is_source(questions):
        by_split = {"": questions}
    else:
        by_split = questions  # type: ignore[assignment]
        if not by_split:
            raise ConfigError("env 'search': questions names no split; give it some")
    found: dict[str, list[dict[str, Any]]] = {
        one: [] for one in (by_split if "" not in by_split else SPLITS)
    }
    home: dict[str, tuple[str, str]] = {}
    for named, source in by_split.items():
        for where, question in read_questions(source):
            words = normalise_answer(question["question"])
            split = named or _drawn(words)
            first, place = home.setdefault(words, (split, where))
            if first != split:
                raise DataError(
                    f"{where} (split '{split}'): the question {question['question']!r} is also at "
                    f"{place} (split '{first}'): what is trained on measures nothing; leave it in "
                    "one"
                )
            if not hops or _hops_of(question, where) in hops:
                found[split].append(question)
    return _not_empty(found, hops)


def _hops_of(question: Mapping[str, Any], where: str) -> int:
    if "hops" not in question:
        raise DataError(
            f"{where}: hops was asked for, and the question does not say how many it has: give it "
            "'hops', or leave the option out"
        )
    number: int = question["hops"]
    return number


def _not_empty(
    found: dict[str, list[dict[str, Any]]], hops: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    empty = [split for split, some in found.items() if not some]
    if empty:
        why = f" of {list(hops)} hops" if hops else ""
        raise DataError(
            f"env 'search': no question{why} is in the split '{empty[0]}': give it some, or name "
            "the splits (questions: {train: ..., validation: ..., test: ...})"
        )
    return found


def _drawn(words: str) -> str:
    tenth = int(content_hash(words), 16) % 10
    return "train" if tenth < 6 else "validation" if tenth < 8 else "test"
