"""The corpus with its index, and the tool by which an episode searches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from agentrl.core.errors import ConfigError
from agentrl.envs.search.sources import Document
from agentrl.tools.search import Search

__all__ = ["QUICK_DOCUMENTS", "Library", "Lookup", "QuickLookup"]

#: Up to so many documents a search takes a fraction of a millisecond: less than a thread costs.
QUICK_DOCUMENTS = 10_000
_TITLE_WORDS = 6
_SEARCHES_KEPT = 8_192
NOTHING = "No document has any of these words."


class Library:
    """Documents, found by BM25 over title (twice) and text. One for all; it never changes.

    Args:
        documents: The corpus. results: how many are shown for a search.
        chars: Most characters of each.

    Raises:
        ConfigError: an option is out of range.
        MissingDependencyError: bm25s is not installed.
    """

    def __init__(self, documents: Sequence[Document], *, results: int, chars: int) -> None:
        for name, value in (("results", results), ("result_chars", chars)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"env 'search': {name} must be a whole number of at least 1, got {value!r}"
                )
        self.documents = tuple(documents)
        # Words of a title count twice: what is about a thing comes before what mentions it.
        texts = [f"{one.title}\n{one.title}\n{one.text}" for one in self.documents]
        search = Search(texts, results=results, chars=chars)
        # A group plays one question many times: most searches were made before.
        self._found = lru_cache(_SEARCHES_KEPT)(lambda query: tuple(search.find(query, results)))
        self._chars = chars
        self._titles = {one.title.lower(): one.title for one in self.documents if one.title}

    def find(self, query: str) -> tuple[int, ...]:
        """Places of the documents that a search shows, the best match first."""
        return self._found(query)

    def shown(self, places: Sequence[int]) -> str:
        """What the policy is shown of the documents at ``places``."""
        texts = (self.documents[place].shown[: self._chars] for place in places)
        return "\n\n".join(f"[{rank}] {text}" for rank, text in enumerate(texts, 1)) or NOTHING

    def titles_in(self, text: str) -> list[str]:
        """Titles of documents that stand in ``text``, in its order; the longest where they overlap.

        Only titles of up to 6 words, set off by white space or punctuation, are seen.
        """
        return list(dict.fromkeys(self._titles_in(text)))

    def _titles_in(self, text: str) -> Iterator[str]:
        words = [one.strip(".,:;?!()[]\"'") for one in text.split()]
        start = 0
        while start < len(words):
            for count in range(min(_TITLE_WORDS, len(words) - start), 0, -1):
                title = self._titles.get(" ".join(words[start : start + count]).lower())
                if title is not None:
                    yield title
                    start += count - 1
                    break
            start += 1


class Lookup:
    """Search the documents for words and show the best matches.

    Args:
        query: Words to look for.
    """

    name = "search"
    read_only = True

    def __init__(self, library: Library) -> None:
        self._library = library
        self._seen: set[int] = set()

    def __call__(self, query: str) -> str:
        places = self._library.find(query)
        self._seen.update(places)
        return self._library.shown(places)

    def seen(self) -> str:
        """Which documents this episode has been shown, in no order of time: what it can know."""
        documents = self._library.documents
        return "; ".join(sorted(documents[place].id for place in self._seen)) or "nothing"


class QuickLookup(Lookup):
    """Search the documents for words and show the best matches.

    Args:
        query: Words to look for.
    """

    quick = True
