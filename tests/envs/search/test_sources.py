"""Corpora and questions of one's own: every form, and every fault by file and line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import AgentRLError, ConfigError, DataError
from agentrl.envs.search import SearchFactory
from agentrl.envs.search.sources import Document, read_documents, read_questions

DOCUMENTS: list[dict[str, Any]] = [
    {"id": 7, "title": "Bado Kirn", "text": "Bado Kirn lives in Sela Ford."},
    {"id": "b", "title": None, "text": "Line one\u2028line two."},
    {"text": "The mayor of Sela Ford is Mira Voss.", "title": "Sela Ford", "extra": [1]},
]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "q1", "question": "Where does Bado Kirn live?", "answers": ["Sela Ford"]},
    {"id": "q2", "question": "Who is the mayor of Sela Ford?", "answer": "Mira Voss", "hops": 1},
    {
        "question": "Who is the mayor of the home of Bado Kirn?",
        "answers": ["Mira Voss", "M. Voss"],
        "hops": 2,
        "searches": ["Bado Kirn", "Sela Ford"],
    },
]


def lines(path: Path, rows: Sequence[Any]) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in rows]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return lines(tmp_path / "corpus.jsonl", [DOCUMENTS[0], "", *DOCUMENTS[1:]])


def splits(folder: Path, **rows: Sequence[Any]) -> dict[str, Any]:
    return {name: lines(folder / f"{name}.jsonl", some) for name, some in rows.items()}


def test_documents_are_read_with_what_they_leave_out(corpus: Path) -> None:
    assert read_documents(str(corpus)) == [
        Document("7", "Bado Kirn", "Bado Kirn lives in Sela Ford."),
        Document("b", "", "Line one\u2028line two."),
        Document("2", "Sela Ford", "The mayor of Sela Ford is Mira Voss."),
    ]


def test_a_title_is_shown_once() -> None:
    assert Document("1", "Bado", "Bado is here.").shown == "Bado is here."
    assert Document("1", "Bado", "He is here.").shown == "Bado\nHe is here."
    assert Document("1", "", "He is here.").shown == "He is here."


def test_questions_are_read_with_where_they_stand(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", QUESTIONS)
    (where, first), (_, second), (_, third) = read_questions(path)
    assert where == f"{path}, line 1"
    assert first == {"question": "Where does Bado Kirn live?", "answers": ["Sela Ford"]}
    assert second["answers"] == ["Mira Voss"]
    assert third == QUESTIONS[2]


def test_fields_of_other_names_are_renamed(tmp_path: Path) -> None:
    rows = [{"query": "Who?", "golden_answers": ["Bado"], "answer": 3, "contents": "x"}]
    path = lines(tmp_path / "nq.jsonl", rows)
    fields = {"question": "query", "answers": "golden_answers"}
    ((_, question),) = read_questions({"path": path, "fields": fields})
    assert question == {"question": "Who?", "answers": ["Bado"]}
    (document,) = read_documents({"path": path, "fields": {"text": "contents"}})
    assert document.text == "x"


def test_parquet_and_data_sets_on_disk_are_read(tmp_path: Path) -> None:
    import datasets

    rows = [{"question": one["question"], "answers": ["x"]} for one in QUESTIONS]
    whole = datasets.Dataset.from_list(rows)
    whole.to_parquet(str(tmp_path / "q.parquet"))
    whole.save_to_disk(str(tmp_path / "whole"))
    parts = {"train": whole.select([0, 1]), "test": whole.select([2])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "parts"))
    for source in (tmp_path / "q.parquet", tmp_path / "whole"):
        read = read_questions(source)
        assert [one["question"] for _, one in read] == [one["question"] for one in rows]
        assert read[2][0] == f"{source}, row 3"
    parted = tmp_path / "parts"
    ((where, last),) = read_questions({"path": parted, "split": "test"})
    assert (where, last["question"]) == (f"{parted} (test), row 1", rows[2]["question"])
    with pytest.raises(ConfigError, match=r"has the splits train, test: name one.*got None"):
        read_questions(parted)
    with pytest.raises(ConfigError, match="did you mean 'test'"):
        read_questions({"path": parted, "split": "tset"})
    with pytest.raises(ConfigError, match="has no splits, and split: test"):
        read_questions({"path": tmp_path / "whole", "split": "test"})


def test_load_dataset_reads_local_files_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder without what save_to_disk writes is data for load_dataset, as a name on the hub is.
    (tmp_path / "data").mkdir()
    lines(tmp_path / "data" / "train.jsonl", [QUESTIONS[0]])
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    ((where, question),) = read_questions({"dataset": str(tmp_path / "data"), "split": "train"})
    assert question["answers"] == ["Sela Ford"]
    assert where.endswith("(train), row 1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": ', "line 2: .*expected one JSON object a line"),
        ("[" * 100_000, "line 2: .*expected one JSON object a line"),
        ([1], "line 2: expected one JSON object a line"),
        ({"title": "x"}, "line 2: a document needs a 'text'.*has the fields title"),
        ({"text": "  "}, "line 2: a document needs a 'text'"),
        ({"text": 5}, "line 2: a document needs a 'text'"),
        ({"text": "x", "title": 5}, "line 2: the title of a document is a text"),
        ({"text": "x", "id": "7"}, "line 2: the id '7' is also that of .*line 1"),
    ],
)
def test_a_damaged_document_is_named_by_file_and_line(
    tmp_path: Path, line: Any, words: str
) -> None:
    path = lines(tmp_path / "corpus.jsonl", [DOCUMENTS[0], line])
    with pytest.raises(DataError, match=f"corpus.jsonl, {words}"):
        read_documents(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"answers": ["x"]}, "'question' must be a text"),
        ({"question": "", "answers": ["x"]}, "'question' must be a text"),
        ({"question": "q"}, "'answers' must be .* got None for the question 'q'.*renames"),
        ({"question": "q", "answers": []}, "'answers' must be"),
        ({"question": "q", "answers": ["x", ""]}, "'answers' must be"),
        ({"question": "q", "answers": [1]}, "'answers' must be"),
        ({"question": "q", "answers": {"text": ["x"]}}, "'answers' must be"),
        ({"question": "q", "answers": "x", "hops": 0}, "'hops' must be"),
        ({"question": "q", "answers": "x", "hops": True}, "'hops' must be"),
        ({"question": "q", "answers": "x", "searches": []}, "'searches' must be"),
        ({"question": "q", "answers": "x", "searches": "a"}, "'searches' must be"),
    ],
)
def test_a_damaged_question_is_named_by_file_and_line(
    tmp_path: Path, line: Any, words: str
) -> None:
    path = lines(tmp_path / "q.jsonl", [QUESTIONS[0], line])
    with pytest.raises(DataError, match=f"q.jsonl, line 2: {words}"):
        read_questions(path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "exactly one of 'path'"),
        ({"path": "a", "dataset": "b"}, "exactly one of 'path'"),
        ({"pth": "a"}, "did you mean 'path'"),
        ({"path": "a.jsonl", "split": "train"}, "'split' chooses a part of a data set"),
        ({"path": "a.jsonl", "fields": ["x"]}, "fields must map"),
        (3, "expected a path"),
        ("no-such-file.jsonl", "cannot read the corpus 'no-such-file.jsonl'"),
        ("no-such-file.parquet", "cannot read the corpus"),
    ],
)
def test_a_source_that_is_none_is_refused(source: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_documents(source)


def test_a_field_that_no_row_has_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", QUESTIONS)
    with pytest.raises(DataError, match=r"line 1: there is no field 'query'.*has id, question"):
        read_questions({"path": path, "fields": {"question": "query"}})


def test_bytes_folders_and_empty_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    (tmp_path / "folder").mkdir()
    lines(tmp_path / "empty.jsonl", [])
    for name, kind, words in (
        ("latin.jsonl", ConfigError, "cannot read the corpus"),
        ("damaged.parquet", ConfigError, "cannot read the corpus"),
        ("folder", ConfigError, "datasets cannot load the corpus"),
        ("empty.jsonl", DataError, "holds no documents"),
    ):
        with pytest.raises(kind, match=words):
            read_documents(tmp_path / name)
    with pytest.raises(DataError, match="holds no questions"):
        read_questions(tmp_path / "empty.jsonl")


def test_splits_that_overlap_are_refused_with_both_places(corpus: Path, tmp_path: Path) -> None:
    again = {"question": "where does  the BADO KIRN live", "answers": ["elsewhere"], "id": "new"}
    given = splits(tmp_path, train=[QUESTIONS[0]], test=[QUESTIONS[1], again])
    with pytest.raises(DataError) as refused:
        SearchFactory(corpus, given)
    assert f"{tmp_path / 'test.jsonl'}, line 2 (split 'test')" in str(refused.value)
    assert f"{tmp_path / 'train.jsonl'}, line 1 (split 'train')" in str(refused.value)


def test_without_splits_questions_are_shared_out_by_what_they_ask(
    corpus: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"question": f"What is number {n}?", "answers": [str(n)]} for n in range(200)
    ]
    first = SearchFactory(corpus, lines(tmp_path / "a.jsonl", rows))
    assert first.splits == ("train", "validation", "test")
    assert 80 < len(first.tasks("train")) < 160
    shuffled = [{**one, "id": n, "question": f"{one['question']} "} for n, one in enumerate(rows)]
    second = SearchFactory(corpus, lines(tmp_path / "b.jsonl", shuffled[::-1]))
    for split in first.splits:
        ids = {one.id for one in first.tasks(split)}
        assert ids == {one.id for one in second.tasks(split)}


def test_hops_choose_questions_that_say_them(corpus: Path, tmp_path: Path) -> None:
    given = splits(tmp_path, train=[QUESTIONS[1]], test=[QUESTIONS[2]])
    with pytest.raises(DataError, match=r"no question of \[2\] hops is in the split 'train'"):
        SearchFactory(corpus, given, hops=2)
    both = splits(tmp_path, train=QUESTIONS[1:], test=[{**QUESTIONS[2], "question": "And who?"}])
    factory = SearchFactory(corpus, both, hops=2)
    assert [one.kind for one in factory.tasks("train")] == ["2-hop"]
    silent = splits(tmp_path, train=[QUESTIONS[0]], test=[QUESTIONS[1]])
    with pytest.raises(DataError, match=r"train.jsonl, line 1: hops was asked for"):
        SearchFactory(corpus, silent, hops=1)


def test_an_expert_needs_every_question_to_say_what_to_search_for(
    corpus: Path, tmp_path: Path
) -> None:
    some = splits(tmp_path, train=[QUESTIONS[2]], test=[QUESTIONS[0]])
    assert not hasattr(SearchFactory(corpus, some), "demonstrate")
    known = splits(tmp_path, train=[QUESTIONS[2]], test=[{**QUESTIONS[2], "question": "Who?"}])
    factory = SearchFactory(corpus, known)
    (task,) = factory.tasks("train")
    steps = list(factory.demonstrate(task, seed=0, noise=0.0))
    assert [one.action.tool_calls[0].name for one in steps] == ["search", "search", "finish"]


def test_no_split_and_few_tasks(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(AgentRLError, match="names no split"):
        SearchFactory(corpus, {})
    given = splits(tmp_path, train=QUESTIONS[:2], test=QUESTIONS[2:])
    factory = SearchFactory(corpus, given, tasks_per_split={"train": 1})
    assert [len(factory.tasks(one)) for one in factory.splits] == [1, 1]
