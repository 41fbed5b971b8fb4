from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.trajectory import Group
from agentrl.credit import BiPACE, GiGPO, annotate
from agentrl.credit.functional import cosine_partition, different_peer_advantage, q_advantage
from agentrl.testing.episodes import act, episode, group, random_groups

SEEDS = st.integers(0, 10**6)


def flat(values: Any) -> np.ndarray[Any, Any]:
    return np.array([x for one in values if one is not None for x in one])


def one_hot(groups: tuple[Group, ...]) -> list[Group]:
    """Hidden states that say exactly which state it is; unlike any other for a missing anchor."""
    seen: dict[Any, int] = {}
    count = sum(len(t.steps) for g in groups for t in g.trajectories)

    def vector(step: Any, key: Any) -> tuple[float, ...]:
        position = seen.setdefault(key if step.anchor is None else step.anchor, len(seen))
        return tuple(float(k == position) for k in range(count))

    return [
        replace(
            g,
            trajectories=tuple(
                replace(
                    t,
                    steps=tuple(
                        annotate(s, hidden=vector(s, (g.id, t.id, s.index))) for s in t.steps
                    ),
                )
                for t in g.trajectories
            ),
        )
        for g in groups
    ]


def test_actions_are_compared_by_their_mean_return() -> None:
    # Cluster returns 1, 0 (action "go") and 0 ("stay"): V = 1/3, Q(go) = 1/2, Q(stay) = 0.
    returns, cluster, action = [1.0, 0.0, 0.0], [0, 0, 0], [0, 0, 1]
    np.testing.assert_allclose(
        q_advantage(returns, cluster, action), [1 / 2 - 1 / 3, 1 / 2 - 1 / 3, -1 / 3]
    )
    # peers of "go" returned 0; peers of "stay" 1/2 on average
    np.testing.assert_allclose(different_peer_advantage(returns, cluster, action), [1.0, 0.0, -0.5])


def test_one_action_or_one_member_gives_zero() -> None:
    assert q_advantage([1.0, 0.0, 5.0], [0, 0, 1], [0, 0, 0]).tolist() == [0.0, 0.0, 0.0]
    found = different_peer_advantage([1.0, 0.0, 5.0], [0, 0, 1], [0, 0, 0])
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert q_advantage([1.0, 0.0], [-1, -1], [0, 1]).tolist() == [0.0, 0.0]
    assert different_peer_advantage([1.0, 0.0], [-1, -1], [0, 1]).tolist() == [0.0, 0.0]


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2), st.integers(-5, 5)), max_size=12))
def test_comparisons_agree_with_a_loop(rows: list[tuple[int, int, int]]) -> None:
    cluster, action = (np.array([row[k] for row in rows], dtype=int) for k in (0, 1))
    returns = [float(row[2]) for row in rows]
    q = q_advantage(returns, cluster, action)
    peer = different_peer_advantage(returns, cluster, action)
    for k, (c, a, g) in enumerate(rows):
        members = [x for x in rows if x[0] == c]
        same, other = [x[2] for x in members if x[1] == a], [x[2] for x in members if x[1] != a]
        values = [x[2] for x in members]
        expected_q = 0.0 if c < 0 else sum(same) / len(same) - sum(values) / len(values)
        expected_peer = 0.0 if c < 0 or not other else g - sum(other) / len(other)
        np.testing.assert_allclose([q[k], peer[k]], [expected_q, expected_peer], atol=1e-9)


def test_directions_cluster_and_lengths_do_not_matter() -> None:
    hidden = np.array([[1, 0], [10, 0.1], [0, 1], [0, 3], [-1, 0]])
    assert cosine_partition(hidden, [0] * 5, 0.1).tolist() == [0, 0, 1, 1, 2]
    assert cosine_partition(hidden, [0, 1, 0, 0, 0], 0.1).tolist() == [0, 1, 2, 2, 3]
    assert cosine_partition(hidden, [0] * 5, 2.0).tolist() == [0] * 5


def test_a_moving_centroid_can_reach_further_than_the_first_member() -> None:
    # angles 0, 20 and 38 degrees; radius 1 - cos(25 deg): 38 is near the mean (10), not near 0
    degrees = np.deg2rad([0.0, 20.0, 34.0])
    hidden = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
    radius = 1 - np.cos(np.deg2rad(25.0))
    moving = cosine_partition(hidden, [0] * 3, radius, reference=True)
    fixed = cosine_partition(hidden, [0] * 3, radius, centroid="first", reference=True)
    assert moving.tolist() == [0, 0, 0]
    assert fixed.tolist() == [0, 0, 1]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(1, 3)), max_size=8),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_clusters_do_not_depend_on_the_order_of_rows(
    rows: list[tuple[int, int, int]], radius: float, rng: Any
) -> None:
    order = list(range(len(rows)))
    rng.shuffle(order)

    def partition(chosen: list[int]) -> set[frozenset[int]]:
        hidden = np.array([rows[i][1:] for i in chosen], dtype=float).reshape(-1, 2)
        labels = cosine_partition(hidden, np.array([rows[i][0] for i in chosen], int), radius)
        return {
            frozenset(i for i, one in zip(chosen, labels.tolist(), strict=True) if one == label)
            for label in set(labels.tolist())
        }

    assert partition(order) == partition(sorted(order))


@given(SEEDS)
def test_one_hot_states_and_plain_comparison_are_gigpo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    one = BiPACE(radius=0.0, comparison="mean").assign(one_hot(groups))
    other = GiGPO().assign(groups)
    for name in ("episode", "step"):
        np.testing.assert_allclose(flat(one.parts[name]), flat(other.parts[name]), atol=1e-9)


@given(SEEDS)
def test_q_parts_sum_to_zero_in_every_cluster(seed: int) -> None:
    result = BiPACE().assign(one_hot(random_groups(random.Random(seed))))
    labels, step = flat(result.groups["cluster"]), flat(result.parts["step"])
    for label in set(labels[labels >= 0].tolist()):
        assert abs(step[labels == label].sum()) < 1e-9


def test_actions_may_be_told_apart_by_their_first_tokens() -> None:
    # One key, different tokens: episode() numbers tokens by position, so give different counts.
    pair = group(
        "g",
        episode("a", annotate(act("s", 1.0, "go", tokens=2), hidden=(1.0,))),
        episode("b", annotate(act("s", 0.0, "go", tokens=3), hidden=(1.0,))),
    )
    assert flat(BiPACE().assign([pair]).parts["step"]).tolist() == [0.0, 0.0]
    by_tokens = BiPACE(action="first_tokens").assign([pair])
    assert flat(by_tokens.parts["step"]).tolist() == [0.5, -0.5]


def test_missing_or_wrong_hidden_states_are_refused_in_words() -> None:
    plain = [group("g", episode("a", ("s", 1.0)))]
    with pytest.raises(DataError, match="no annotation 'hidden', found none; add an annotator"):
        BiPACE().assign(plain)
    with pytest.raises(DataError, match="row 0 is 0: it points nowhere"):
        cosine_partition([[0.0, 0.0]], [0], 0.1)
    with pytest.raises(DataError, match="radius"):
        cosine_partition([[1.0]], [0], 3.0)
    uneven = group(
        "g",
        episode("a", annotate(act("s", 1.0), hidden=(1.0,)), annotate(act("s"), hidden=(1, 2))),
    )
    with pytest.raises(
        DataError, match=r"'g/a', step 1 has \[1, 2\] of shape \(2,\) as annotation 'hidden'"
    ):
        BiPACE().assign([uneven])
    with pytest.raises(ConfigError, match="comparison must be one of q, different_peer, mean"):
        BiPACE(comparison="v")  # type: ignore[arg-type]
