from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.credit.functional import (
    anchor_key,
    cluster_sizes,
    context_partition,
    exact_partition,
    number,
    refine,
    share_of_singletons,
)

NAN = float("nan")
DIFFERENT: list[Any] = [
    1,
    True,
    1.0,
    "1",
    b"1",
    0,
    False,
    "",
    [],
    {},
    [1],
    [True],
    [[1]],
    [1, [2]],
    [1, 2],
    [[1, 2]],
    {"a": 1},
    {"a": 1.0},
    {"a": None},
    {1: "a"},
    {"1": "a"},
    [None],
    {1, 2},
    NAN,
    "nan",
    [NAN],
    np.zeros((2, 3)),
    np.zeros((3, 2)),
    np.zeros(6),
    np.zeros(6, dtype=np.float32),
    np.zeros(6, dtype=np.int64),
    [0.0] * 6,
    float("inf"),
]


class Room(enum.StrEnum):
    KITCHEN = "kitchen"


SAME: list[tuple[Any, Any]] = [
    (NAN, float("nan")),
    ([1, NAN], [1, float("nan")]),
    (0.0, -0.0),
    ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    ((1, 2), [1, 2]),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.array([0.0]), np.array([-0.0])),
    (np.float64(0.5), 0.5),
    (np.int64(3), 3),
    (np.bool_(True), True),
    ({1, 2}, {2, 1}),
    (Room.KITCHEN, "kitchen"),
]


def test_anchors_of_different_content_type_or_shape_differ() -> None:
    keys = [anchor_key(one) for one in DIFFERENT]
    assert len(set(keys)) == len(keys)
    assert number(keys).tolist() == list(range(len(keys)))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_anchors_of_equal_content_are_equal(one: Any, other: Any) -> None:
    assert anchor_key(one) == anchor_key(other)
    assert hash(anchor_key(one)) == hash(anchor_key(other))


def test_an_anchor_of_unknown_equality_is_refused() -> None:
    with pytest.raises(DataError, match="JSON-like"):
        exact_partition([object()], [0])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=1), inner),
    max_leaves=4,
)


@given(JSON, JSON)
def test_keys_are_equal_exactly_for_equal_values(one: Any, other: Any) -> None:
    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return "dict", sorted((k, repr(typed(v))) for k, v in value.items())
        if isinstance(value, list):
            return "list", [typed(v) for v in value]
        return type(value).__name__, value + 0.0 if isinstance(value, float) else value

    assert (anchor_key(one) == anchor_key(other)) == (
        type(one) is type(other) and typed(one) == typed(other)
    )


def test_exact_groups_stay_inside_their_task_group() -> None:
    labels = exact_partition(["s", "t", "s", "s", None, None], [0, 0, 0, 1, 1, 1])
    assert labels.tolist() == [0, 1, 0, 2, -1, -1]


def test_reference_equality_keeps_the_published_collisions() -> None:
    anchors = [1, True, 1.0, np.zeros((2, 3)), np.zeros((3, 2)), [0.0] * 6, NAN, NAN]
    assert exact_partition(anchors, [0] * 8, reference=True).tolist() == [0, 0, 0, 1, 1, 1, 2, 3]
    assert len(set(exact_partition(anchors, [0] * 8).tolist())) == 7  # only the NaNs agree


@given(
    st.lists(st.lists(st.integers(-1, 2), max_size=6), max_size=4),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_contexts_agree_with_their_definition(
    episodes: list[list[int]], length: int, rng: object
) -> None:
    rows = [(k, t) for k, one in enumerate(episodes) for t in range(len(one))]
    rng.shuffle(rows)  # type: ignore[attr-defined]
    state = np.array([episodes[k][t] for k, t in rows], dtype=int)
    trajectory = np.array([k for k, _ in rows], dtype=int)
    index = np.array([3 * t for _, t in rows], dtype=int)  # gaps between acts are fine
    for level, labels in enumerate(context_partition(state, trajectory, index, length), start=1):
        contexts = []
        for k, t in rows:
            window = episodes[k][t - level + 1 : t + 1] if t >= level - 1 else []
            contexts.append(None if not window or -1 in window else tuple(window))
        for i, one in enumerate(contexts):
            assert (labels[i] == -1) == (one is None)
            for j, other in enumerate(contexts):
                if one is not None and other is not None:
                    assert (labels[i] == labels[j]) == (one == other)


def test_refine_numbers_by_first_appearance() -> None:
    assert refine([5, 5, 3, 5, -1], [2, 1, 2, 2, 0]).tolist() == [0, 1, 2, 0, -1]


def test_sizes_and_singletons() -> None:
    assert cluster_sizes([0, 0, 1, -1, -1]).tolist() == [2, 2, 1, 1, 1]
    assert share_of_singletons([0, 0, 1, -1]) == 0.5
    assert share_of_singletons([]) == 0.0
    with pytest.raises(DataError, match=">= 1"):
        context_partition([0], [0], [0], 0)


def test_groups_in_any_order_are_numbered_by_first_appearance() -> None:
    anchors = ["x", "x", None, "y", "x", "x", 1]
    found = exact_partition(iter(anchors), [7, 0, 7, 7, 7, 0, 0])
    np.testing.assert_array_equal(found, [0, 1, -1, 2, 0, 1, 3])


@pytest.mark.parametrize("anchors", [["x"], ["x", "y", "z"]])
def test_anchors_and_groups_of_unequal_number_are_refused(anchors: list[str]) -> None:
    with pytest.raises(DataError, match="must have the same length, here 2"):
        exact_partition(anchors, [0, 0])
