"""Text search over a corpus, by BM25."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, DataError, MissingDependencyError

__all__ = ["Search", "read_corpus"]


class Search:
    """Search the documents for words and show the best matches.

    Args:
        query: Words to look for.
    """

    read_only = True
    shared = True  # one index for all episodes

    def __init__(
        self,
        corpus: str | Path | Iterable[str | Mapping[str, Any]],
        *,
        results: int = 3,
        chars: int = 1000,
        stopwords: str | Sequence[str] = "en",
    ) -> None:
        """Build the index.

        Args:
            corpus: Documents: texts or mappings with ``text`` and perhaps ``title``; or the path
                of a JSONL file of such.
            results: How many matches are shown.
            chars: Most characters of each.
            stopwords: Words that do not count: a language of bm25s, or the words.

        Raises:
            ConfigError: an option out of range, or a corpus that cannot be read.
            DataError: no documents, or some without text.
            MissingDependencyError: bm25s is not installed.
        """
        try:
            import bm25s
        except ImportError:
            raise MissingDependencyError.for_extra(
                "bm25s", "retrieval", "the tool 'search'"
            ) from None
        if results < 1 or chars < 1:
            raise ConfigError(
                f"the tool 'search': results and chars must be at least 1, got {results} and "
                f"{chars}"
            )
        self._documents = read_corpus(corpus)
        self._results = results
        self._chars = chars
        self._stopwords = stopwords if isinstance(stopwords, str) else list(stopwords)
        self._index = bm25s.BM25()
        self._index.index(self._tokens(self._documents), show_progress=False)
        self._known = self._index.vocab_dict

    def __call__(self, query: str) -> str:
        found = self.find(query, self._results)
        if not found:
            return "No document has any of these words."
        return "\n\n".join(
            f"[{rank}] {self._documents[place][: self._chars]}"
            for rank, place in enumerate(found, start=1)
        )

    def find(self, query: str, count: int) -> list[int]:
        """Places in the corpus of the best matches, the best first; equal ones in corpus order."""
        import numpy as np

        words = [one for one in self._tokens([query])[0] if one in self._known]
        if not words:
            return []
        scores = self._index.get_scores(words)
        least = np.partition(scores, -count)[-count] if count < len(scores) else 0.0
        places = np.flatnonzero((scores >= least) & (scores > 0))
        return [int(one) for one in places[np.argsort(-scores[places], kind="stable")][:count]]

    def _tokens(self, texts: Sequence[str]) -> list[list[str]]:
        import bm25s

        tokens: list[list[str]] = bm25s.tokenize(
            list(texts), stopwords=self._stopwords, return_ids=False, show_progress=False
        )
        return tokens


def read_corpus(corpus: str | Path | Iterable[str | Mapping[str, Any]]) -> list[str]:
    """The documents of a corpus as texts, a title on a line of its own.

    Raises:
        ConfigError: the file cannot be read.
        DataError: a line that is no JSON, a document without text, or no documents.
    """
    if isinstance(corpus, str | Path):
        where = str(corpus)
        try:
            lines = Path(corpus).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the corpus '{where}': {error}") from None
        documents: list[Any] = [_parsed(line, where, n) for n, line in enumerate(lines, 1) if line]
    else:
        where, documents = "the corpus", list(corpus)
    texts = [_text(one, where, number) for number, one in enumerate(documents, start=1)]
    if not texts:
        raise DataError(f"{where} holds no documents; one per line, as JSON with 'text'")
    return texts


def _parsed(line: str, where: str, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}, line {number}: {error}; expected one JSON value a line"
        ) from None


def _text(document: Any, where: str, number: int) -> str:
    title = ""
    if isinstance(document, Mapping):
        title, document = document.get("title") or "", document.get("text")
    if not isinstance(document, str) or not document.strip():
        raise DataError(
            f"{where}, document {number}: expected a text, or a mapping with 'text' and perhaps "
            f"'title', got {document!r}"
        )
    return f"{title}\n{document}" if title else document
