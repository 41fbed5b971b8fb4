"""Content hashes and seeds are the same on every machine, in every process, for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.task import content_hash, derive_seed


def test_known_values_never_change() -> None:
    # sha256 of the text in the comment, first 16 hex digits / first 8 bytes halved.
    assert content_hash({"a": 1}) == "015abd7f5cc57a2d"  # {"a":1}
    assert content_hash(["é", None, 0.1]) == "49ff5468853f35af"  # ["é",null,0.1]
    assert derive_seed(0, "task", 1) == 2854144629912706074  # int:0 US str:task US int:1


def test_mapping_order_does_not_matter_and_sequence_order_does() -> None:
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash([1, 2]) != content_hash([2, 1])


def test_tuples_and_lists_are_equal_content() -> None:
    assert content_hash((1, (2,))) == content_hash([1, [2]])


def test_what_is_not_json_like_has_no_hash() -> None:
    with pytest.raises(TypeError):
        content_hash({"a": object()})


def test_seeds_tell_numbers_from_text_and_where_parts_end() -> None:
    seeds = {derive_seed(1, "2"), derive_seed("1", 2), derive_seed("12"), derive_seed(12)}
    assert len(seeds) == 4
    assert derive_seed("ab", "c") != derive_seed("a", "bc")


@given(st.lists(st.integers() | st.text(), max_size=4))
def test_seeds_fit_63_bits(parts: list[int | str]) -> None:
    assert 0 <= derive_seed(*parts) < 2**63


def test_nothing_depends_on_the_hash_seed_of_the_process() -> None:
    code = (
        "from agentrl.core.task import *;"
        "print(content_hash({'a': {'b': 1, 'c': 2}}), derive_seed(3, 'x'))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
