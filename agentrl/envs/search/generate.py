"""The embedded corpus: short documents about invented people, towns and firms, and questions.

The world is made of regions. A region is closed: whatever its documents say of an entity leads to
an entity of the same region. Each region belongs to one split, so a question of one split never
begins at, passes through or ends at an entity of another split's questions. There is one corpus:
the search also finds what other regions say.

Region number k is the same however many there are; a longer list of questions begins with the
shorter one. Everything is drawn from ``seed``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from agentrl.core.errors import ConfigError
from agentrl.core.task import derive_seed
from agentrl.envs.search import names
from agentrl.envs.search.sources import Document

__all__ = ["HOPS", "MOST_REGIONS", "SPLITS", "TASKS_PER_SPLIT", "Text", "World", "write_world"]

Kind = Literal["person", "town", "firm"]
Text = Literal["full", "compact"]

SPLITS = ("train", "validation", "test")
TASKS_PER_SPLIT = {"train": 4096, "validation": 256, "test": 256}
HOPS = (1, 2, 3)
_SPLIT_OF_FIVE = ("train", "train", "train", "validation", "test")
_MEMBERS: Mapping[Kind, int] = {"person": 8, "town": 4, "firm": 4}
MOST_REGIONS = 100


@dataclass(frozen=True, slots=True)
class _Relation:
    """Something that a document of ``kind`` says: ``word`` in compact text."""

    word: str
    kind: Kind
    value: Kind
    called: str
    sentence: str


_RELATIONS = (
    _Relation("home", "person", "town", "home town", "The home town of {name} is {value}."),
    _Relation("teacher", "person", "person", "teacher", "{name} was taught by {value}."),
    _Relation("employer", "person", "firm", "employer", "{name} works for {value}."),
    _Relation("mayor", "town", "person", "mayor", "The mayor of {name} is {value}."),
    _Relation("twin", "town", "town", "twin town", "{name} is twinned with {value}."),
    _Relation("plant", "town", "firm", "main company", "{value} runs the mill of {name}."),
    _Relation("founder", "firm", "person", "founder", "{name} was founded by {value}."),
    _Relation("seat", "firm", "town", "seat", "{name} has its seat in {value}."),
    _Relation("rival", "firm", "firm", "chief rival", "The chief rival of {name} is {value}."),
)


@dataclass(frozen=True, slots=True)
class _Entity:
    """``alias`` is another name for it; ``facts`` lead from a relation's word to a name."""

    name: str
    kind: Kind
    alias: str
    facts: Mapping[str, str]


class World:
    """A corpus and its questions.

    Args:
        seed: Which world.
        regions: How many; 5 to ``MOST_REGIONS``, 16 documents each. Three of five are for training.
        text: ``full``: sentences, and aliases; ``compact``: few tokens, for tiny models.

    Raises:
        ConfigError: an argument is out of range.
    """

    def __init__(self, *, seed: int = 0, regions: int = 60, text: Text = "full") -> None:
        if not 5 <= regions <= MOST_REGIONS:
            raise ConfigError(
                f"env 'search': regions must be from 5 to {MOST_REGIONS}, so that each split has "
                f"one and the names suffice; got {regions!r}"
            )
        self._seed = seed
        self._text = text
        shuffled = _shuffled_names(seed)
        self._regions = [_region(seed, number, shuffled) for number in range(regions)]

    def documents(self) -> list[Document]:
        """One for each entity; its id and title are the entity's name."""
        entities = [one for region in self._regions for one in region.values()]
        # Sorted, so that the place of a document says nothing about its region.
        return [self._document(one) for one in sorted(entities, key=lambda one: one.name)]

    def questions(
        self, split: str, hops: Sequence[int] = HOPS, count: int | None = None
    ) -> list[dict[str, Any]]:
        """The first ``count`` questions of a split (``None``: all), the numbers of hops in turn.

        Raises:
            ConfigError: there are not so many.
        """
        by_hops = [list(self._chains(split, number)) for number in sorted(set(hops))]
        for number, chains in zip(sorted(set(hops)), by_hops, strict=True):
            random.Random(derive_seed(self._seed, "questions", split, number)).shuffle(chains)
        dealt = [one for one in chain.from_iterable(zip_longest(*by_hops)) if one is not None]
        if count is not None and count > len(dealt):
            raise ConfigError(
                f"env 'search': split '{split}' has {len(dealt)} questions of {list(hops)} hops in "
                f"{len(self._regions)} regions, and {count} are wanted: lower tasks_per_split."
                f"{split}, or raise regions (up to {MOST_REGIONS})"
            )
        return [self._question(entities, words) for entities, words in dealt[:count]]

    def by_split(
        self, hops: Sequence[int] = HOPS, counts: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, list[dict[str, Any]]]:
        """The questions of every split: as many as ``counts`` says, else ``TASKS_PER_SPLIT``.

        Raises:
            ConfigError: there are not as many as ``counts`` says.
        """
        return {
            split: self.questions(split, hops, counts.get(split))[: counts.get(split, most)]
            for split, most in TASKS_PER_SPLIT.items()
        }

    def _chains(
        self, split: str, hops: int
    ) -> Iterator[tuple[tuple[_Entity, ...], tuple[str, ...]]]:
        """Every way of ``hops`` relations that meets no entity twice."""
        for number, region in enumerate(self._regions):
            if _SPLIT_OF_FIVE[number % 5] != split:
                continue
            ways: list[tuple[tuple[_Entity, ...], tuple[str, ...]]]
            ways = [((one,), ()) for one in region.values()]
            for _ in range(hops):
                ways = [
                    ((*met, region[name]), (*words, word))
                    for met, words in ways
                    for word, name in met[-1].facts.items()
                    if all(name != one.name for one in met)
                ]
            yield from ways

    def _document(self, entity: _Entity) -> Document:
        rng = random.Random(derive_seed(self._seed, "document", entity.name))
        facts = rng.sample(list(entity.facts.items()), len(entity.facts))
        if self._text == "compact":
            text = " ".join([entity.name, *(f"{word} {name}" for word, name in facts)])
        else:
            told = {one.word: one.sentence for one in _RELATIONS if one.kind == entity.kind}
            text = " ".join(
                [
                    f"{entity.name} is a {entity.kind}, also called {entity.alias}.",
                    *(told[word].format(name=entity.name, value=name) for word, name in facts),
                ]
            )
        return Document(entity.name, entity.name, text)

    def _question(self, entities: Sequence[_Entity], words: Sequence[str]) -> dict[str, Any]:
        first, last = entities[0], entities[-1]
        if self._text == "compact":
            text, answers = f"from {' '.join([first.name, *words])}", [last.name]
        else:
            called = {one.word: one.called for one in _RELATIONS}
            asked = "".join(f"the {called[word]} of " for word in reversed(words))
            who = "Who" if last.kind == "person" else "What"
            text, answers = f"{who} is {asked}{first.name}?", [last.name, last.alias]
        return {
            "question": text,
            "answers": answers,
            "hops": len(words),
            "searches": [one.name for one in entities[:-1]],
        }


def write_world(
    folder: str | Path,
    *,
    seed: int = 0,
    regions: int = 60,
    text: Text = "full",
    hops: Sequence[int] = HOPS,
    tasks_per_split: Mapping[str, int] | None = None,
) -> None:
    """Write ``corpus.jsonl`` and ``train``, ``validation`` and ``test.jsonl`` into ``folder``.

    They are what the environment plays by default, in the form in which it reads files.
    """
    world = World(seed=seed, regions=regions, text=text)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    corpus = [{"id": one.id, "title": one.title, "text": one.text} for one in world.documents()]
    _write(place / "corpus.jsonl", corpus)
    for split, questions in world.by_split(hops, tasks_per_split or {}).items():
        numbered = [{"id": f"{split}-{n}", **one} for n, one in enumerate(questions)]
        _write(place / f"{split}.jsonl", numbered)


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(dict(one))}\n" for one in records), encoding="utf-8")


def _shuffled_names(seed: int) -> dict[Kind, list[str]]:
    lists: dict[Kind, tuple[Sequence[str], Sequence[str]]] = {
        "person": (names.FIRST_NAMES, names.LAST_NAMES),
        "town": (names.TOWN_NAMES, names.TOWN_ENDINGS),
        "firm": (names.FIRM_NAMES, names.KINDS_OF_FIRM),
    }
    shuffled = {}
    for kind, (left, right) in lists.items():
        shuffled[kind] = [f"{one} {other}" for one, other in product(left, right)]
        random.Random(derive_seed(seed, "names", kind)).shuffle(shuffled[kind])
    return shuffled


def _region(seed: int, number: int, shuffled: Mapping[Kind, Sequence[str]]) -> dict[str, _Entity]:
    """Entities by name, each of whose facts leads to another of them."""
    rng = random.Random(derive_seed(seed, "region", number))
    members = {
        kind: shuffled[kind][number * count : (number + 1) * count]
        for kind, count in _MEMBERS.items()
    }
    region = {}
    for kind, own in members.items():
        for name in own:
            facts = {
                one.word: rng.choice([other for other in members[one.value] if other != name])
                for one in _RELATIONS
                if one.kind == kind
            }
            region[name] = _Entity(name, kind, _alias(name, kind, rng), facts)
    return region


def _alias(name: str, kind: Kind, rng: random.Random) -> str:
    if kind == "person":
        first, last = name.split()
        return f"{first} {rng.choice(names.MIDDLE_NAMES)} {last}"
    return f"{name} on {rng.choice(names.RIVERS)}" if kind == "town" else f"{name} Limited"
