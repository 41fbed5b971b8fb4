"""The embedded corpus: what is disjoint, what leads where, and that all of it is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError
from agentrl.envs.search import SearchFactory, names, write_world
from agentrl.envs.search.generate import SPLITS, World


def entities(question: dict[str, Any]) -> set[str]:
    """Everything that the chain of a question meets."""
    return {*question["searches"], question["answers"][0]}


def relations(text: str) -> list[str]:
    """The relations of a compact question."""
    _, _, _, *words = text.split()
    return words


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, regions=15, text="compact")


def test_no_question_meets_an_entity_of_another_splits_questions(world: World) -> None:
    met: dict[str, str] = {}
    for split in SPLITS:
        questions = world.questions(split)
        assert len(questions) > 1_000
        for question in questions:
            for name in entities(question):
                assert met.setdefault(name, split) == split
    assert len(met) == len(world.documents()) == 240  # everything is asked about somewhere


def test_no_question_is_in_two_splits_or_twice(world: World) -> None:
    texts = [one["question"] for split in SPLITS for one in world.questions(split)]
    assert len(set(texts)) == len(texts)


def test_a_question_is_answered_by_following_its_relations(world: World) -> None:
    facts = {}
    for document in world.documents():
        first, last, *words = document.text.split()
        assert document.title == f"{first} {last}"
        facts[document.title] = {
            word: f"{one} {other}" for word, one, other in zip(*[iter(words)] * 3, strict=True)
        }
    for split in SPLITS:
        for question in world.questions(split):
            _, first, last, *words = question["question"].split()
            name, way = f"{first} {last}", []
            for word in words:
                way.append(name)
                name = facts[name][word]
            assert (way, [name]) == (question["searches"], question["answers"])
            assert len(words) == question["hops"]
            assert len({*way, name}) == len(way) + 1  # nothing is met twice


def test_the_numbers_of_hops_come_in_turn(world: World) -> None:
    first = world.questions("test", (1, 2, 3), 30)
    assert [one["hops"] for one in first[:6]] == [1, 2, 3, 1, 2, 3]
    assert Counter(one["hops"] for one in world.questions("test", (3, 2), 30)) == {2: 15, 3: 15}


def test_a_longer_list_begins_with_the_shorter_one_and_more_regions_keep_the_first() -> None:
    small, large = World(seed=1, regions=5), World(seed=1, regions=10)
    assert large.questions("test", count=7) == large.questions("test", count=70)[:7]
    kept = {one.id: one for one in large.documents()}
    assert all(kept[one.id] == one for one in small.documents())


def test_another_seed_is_another_world() -> None:
    one, other = World(seed=0, regions=5), World(seed=1, regions=5)
    told = [{document.text for document in world.documents()} for world in (one, other)]
    assert not told[0] & told[1]


@pytest.mark.parametrize("text", ["full", "compact"])
def test_a_search_for_a_name_finds_its_document_first(text: str) -> None:
    factory = SearchFactory(text=text, regions=20, results=1)  # type: ignore[arg-type]
    library = factory._library
    for place, document in enumerate(library.documents):
        assert library.find(document.title) == (place,)


def test_full_text_has_sentences_and_aliases_that_are_accepted() -> None:
    world = World(seed=0, regions=5)
    told = {one.title: one.text for one in world.documents()}
    for question in world.questions("train", count=60):
        name, alias = question["answers"]
        assert question["question"].startswith(("Who is the ", "What is the "))
        assert question["question"].endswith(f"of {question['searches'][0]}?")
        assert f"{name} is a " in told[name]
        assert alias in told[name]


def test_no_word_is_in_two_lists_of_names() -> None:
    words = [word for one in names.__all__ for word in getattr(names, one)]
    assert len(set(words)) == len(words)


def test_the_world_is_the_same_in_another_process() -> None:
    script = (
        "from agentrl.envs.search import SearchFactory; from agentrl.core.task import content_hash;"
        "f = SearchFactory(regions=5, tasks_per_split={'train': 50, 'validation': 9, 'test': 9});"
        "print(content_hash([[t.id for s in f.splits for t in f.tasks(s)],"
        "[d.text for d in f._library.documents]]))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


def test_what_is_written_is_played_as_what_is_embedded(tmp_path: Path) -> None:
    counts = {"train": 40, "validation": 10, "test": 10}
    write_world(tmp_path, regions=5, tasks_per_split=counts)
    assert json.loads((tmp_path / "test.jsonl").read_text().splitlines()[0])["id"] == "test-0"
    embedded = SearchFactory(regions=5, tasks_per_split=counts)
    read = SearchFactory(
        tmp_path / "corpus.jsonl", {split: tmp_path / f"{split}.jsonl" for split in SPLITS}
    )
    for split in SPLITS:
        assert read.tasks(split) == embedded.tasks(split)
    assert read._library.documents == embedded._library.documents


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regions": 4}, "regions must be from 5 to 100"),
        ({"regions": 101}, "regions must be from 5 to 100"),
        ({"regions": 5, "tasks_per_split": {"test": 100_000}}, "split 'test' has "),
        ({"tasks_per_split": {"dev": 3}}, "unknown split in tasks_per_split 'dev'"),
        ({"tasks_per_split": {"test": 0}}, "tasks_per_split.test must be"),
        ({"hops": 0}, "hops must be"),
        ({"hops": "two"}, "hops must be"),
        ({"hops": []}, "hops is empty"),
        ({"text": "short"}, "unknown text 'short'"),
        ({"reward": "em1"}, "did you mean 'em'"),
        ({"action_format": "tool"}, "did you mean 'tools'"),
        ({"results": 0}, "results must be"),
        ({"result_chars": 0}, "result_chars must be"),
        ({"max_steps": 3}, "a question needs 3 searches and an answer; raise it to 4"),
        ({"max_steps": 0}, "max_steps"),
        ({"instruction": "answer"}, "must hold {question}"),
        ({"corpus": "x.jsonl"}, "give corpus and questions together"),
        ({"questions": "x.jsonl"}, "give corpus and questions together"),
        ({"corpus": "x", "questions": "y", "seed": 1}, "seed is of the embedded corpus"),
    ],
)
def test_a_wrong_option_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    small = {} if {"corpus", "questions"} & set(options) else {"regions": 5}
    with pytest.raises(ConfigError, match=words):
        SearchFactory(**small | options)
