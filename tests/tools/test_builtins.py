"""The tools that come with agentrl: each keeps the contract, and does what it says."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, DataError, MissingDependencyError, ToolError
from agentrl.registry import names
from agentrl.testing import mcp_servers
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.tool import CHECKS, ToolSubject
from agentrl.tools.calculator import Calculator, evaluate
from agentrl.tools.search import Search
from tests.tools.conftest import answers, called, texts

CORPUS: list[str | dict[str, str]] = [
    "The cat sat on the mat.",
    {"title": "Dogs", "text": "A dog chases the cat."},
    "Bicycles have two wheels.",
    "A dog chases the cat.",
]
OPTIONS: dict[str, dict[str, Any]] = {
    "mcp": {"command": [sys.executable, "-I", mcp_servers.__file__]},
    "search": {"corpus": CORPUS},
}


@pytest.mark.parametrize("name", names("tool"))
def test_built_in_tools_keep_the_contract(name: str) -> None:
    assert_contract(CHECKS, ToolSubject({"name": name, "options": OPTIONS.get(name, {})}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(17 + 4) * 2 / 3", "14"),
        ("0.1 + 0.2", "0.3"),
        ("7 // 2 - -1 % 3", "1"),
        ("2 ** 10 ** 0", "2"),
        ("sqrt(2) ** 2", "2"),
        ("round(2.6) + max(1, 2, 3)", "6"),
        ("log(8, 2) + floor(pi)", "6"),
        (" 1e3 ", "1000"),
        ("2 ** 4095", str(2**4095)),
        ("10 ** -2", "0.01"),
        ("+1_000", "1000"),
    ],
)
def test_arithmetic_is_evaluated(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "no arithmetic expression"),
        ("2 +", "no arithmetic expression"),
        ("__import__('os').system('true')", "is no arithmetic"),
        ("().__class__", "is no arithmetic"),
        ("[1 for _ in (1,)]", "is no arithmetic"),
        ("'a' * 3", "is no arithmetic"),
        ("True + 1", "is no arithmetic"),
        ("1j * 1j", "is no arithmetic"),
        ("1 if 2 else 3", "is no arithmetic"),
        ("x", "unknown name 'x'; there are e, pi"),
        ("exit()", "unknown function 'exit'; there are abs"),
        ("sqrt()", "sqrt takes 1 arguments, got 0"),
        ("max(*[1, 2])", "max takes 2 to 20 arguments|is no arithmetic"),
        ("round(1, ndigits=2)", "is no arithmetic"),
        ("2 ^ 3", r"'\^' is not known; write \*\* for a power"),
        ("1 / 0", "divides by zero"),
        ("1 % 0", "divides by zero"),
        ("(-1) ** 0.5", "no real number"),
        ("sqrt(-1)", "has no value"),
        ("log(0)", "has no value"),
        ("1e308 * 10", "no finite value"),
        ("exp(1e6)", "has no value"),
        ("10 ** 10 ** 10", "too large"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("(2 ** 4000) * (2 ** 4000)", "too large"),
        ("2.0 ** 1e9", "has no value"),
        ("-" * 400 + "1", "nested too deeply"),
        ("(" * 240 + "1" + ")" * 240, "no arithmetic|nested"),
        ("1 + " * 100 + "1", "nested too deeply"),
        ("1" * 501, "501 characters; at most 500"),
        ("1\x00", "no arithmetic|no value"),
    ],
)
def test_what_is_no_arithmetic_is_refused_at_once(expression: str, said: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ToolError, match=said):
        evaluate(expression)
    assert time.perf_counter() - started < 5


def test_the_calculator_is_a_tool() -> None:
    assert texts(answers([Calculator], called(1, "calculator", expression="6*7"))) == ["42"]


def test_notes_are_kept_for_an_episode_and_bounded() -> None:
    got = answers(
        [{"name": "notes", "options": {"most_chars": 20}}],
        called(1, "list_notes"),
        called(2, "write_note", title="key", text="under the mat"),
        called(3, "write_note", title="door", text="locked, I think"),
        called(4, "write_note", title="key", text="in the drawer"),
        called(5, "read_note", title="key"),
        called(6, "read_note", title="kay"),
        called(7, "write_note", title=" ", text="x"),
    )
    assert texts(got) == [
        "There are no notes.",
        "noted 'key'",
        "error: no room: 16 of 20 characters are taken by other notes",
        "noted 'key'",
        "in the drawer",
        "error: no note 'kay'; did you mean 'key'?. Notes: key",
        "error: a note needs a title",
    ]


def test_search_finds_the_best_documents_and_equal_ones_in_corpus_order() -> None:
    search = Search(CORPUS, results=2)
    assert search.find("dog chases", 3) == [3, 1]
    assert search.find("wheels", 3) == [2]
    assert search.find("the", 3) == []  # a stop word
    assert Search(["same words"] * 5).find("same", 3) == [0, 1, 2]
    shown = "[1] Dogs\nA dog chases the cat.\n\n[2] Bicycles have two wheels."
    assert search("dogs wheels!") == shown
    assert search("zebra") == "No document has any of these words."


def test_long_documents_are_shown_in_part() -> None:
    assert Search(["mouse " * 100], chars=11)("mouse") == "[1] mouse mouse"


def test_a_corpus_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in CORPUS) + "\n")
    assert Search(path).find("dog", 9) == [3, 1]


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (None, ConfigError, "cannot read the corpus"),
        ("", DataError, "holds no documents"),
        ('"a"\n{', DataError, "line 2: .*expected one JSON value a line"),
        ('{"title": "a"}', DataError, "document 1: expected a text, or a mapping with 'text'"),
        ('" "', DataError, "document 1"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, kind: type[Exception], said: str
) -> None:
    path = tmp_path / "corpus.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(kind, match=said):
        Search(path)
    with pytest.raises(ConfigError, match="must be at least 1"):
        Search(CORPUS, results=0)


def test_without_bm25s_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[retrieval\]'"):
        Search(CORPUS)
