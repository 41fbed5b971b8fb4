from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.trajectory import Group
from agentrl.credit import GRPO, HGPO, GiGPO
from agentrl.credit.functional import level_contributions, level_weights, weighted_sum
from agentrl.testing.episodes import act, episode, failed_episode, group, random_groups, summary

SEEDS = st.integers(0, 10**6)


def flat(values: Any) -> np.ndarray[Any, Any]:
    return np.array([x for one in values if one is not None for x in one])


def test_d9_a_level_of_value_zero_counts() -> None:
    # (0*1 + 0.5*2 + 1*3) / 6 = 4/6, not 4/5
    values, counted = [[0.0], [0.5], [1.0]], [[True], [True], [True]]
    parts = level_contributions(values, counted, level_weights([0, 1, 2], 1.0))
    np.testing.assert_allclose(parts.ravel(), [0.0, 1 / 6, 3 / 6])
    assert level_contributions([[0.0], [0.0]], [[True], [True]], [2.0, 3.0]).sum() == 0.0


def test_d9_a_missing_level_is_left_out_of_the_weights() -> None:
    values = [[1.0, 1.0], [0.5, 9.0], [1.0, 9.0]]
    counted = [[True, True], [True, False], [True, False]]
    parts = level_contributions(values, counted, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(parts.sum(axis=0), [(1 + 1 + 3) / 6, 1.0])
    assert level_contributions([[7.0]], [[False]], [1.0]).tolist() == [[0.0]]


@pytest.mark.parametrize("history_length", [1, 2, 5])
def test_d9_an_early_step_has_no_past_and_never_borrows_one_from_the_end(
    history_length: int,
) -> None:
    # With a negative slice the first step of both would be preceded by "end", of "a" and "b" alone.
    three = group(
        "g",
        episode("a", ("s", 0.0), ("t", 0.0), ("end", 1.0)),
        episode("b", ("s", 0.0), ("t", 0.0), ("end", 0.0)),
        episode("c", ("s", 0.0), ("u", 0.0)),
    )
    result = HGPO(history_length=history_length, discount=1.0).assign([three])
    for k in range(2, history_length + 2):
        for row in result.groups[f"context_{k}"]:
            assert row is not None
            assert set(row[: k - 1]) == {-1}
        level = result.parts[f"level_{k}"]
        assert all(x == 0.0 for row in level if row for x in row[: k - 1])
    # "s": levels 0 and 1 only, both of scores 1, 0, 0
    assert [row[0] for row in result.step_advantages if row] == pytest.approx(
        [2 / 3, -1 / 3, -1 / 3]
    )


def test_d9_agreement_at_depth_shrinks_what_shallow_levels_say() -> None:
    # "t" after "s": both win, so level 2 says 0; "t" alone says that winners differ from "c".
    three = group(
        "g",
        episode("a", ("s", 0.0), ("t", 1.0)),
        episode("b", ("s", 0.0), ("t", 1.0)),
        episode("c", ("r", 0.0), ("t", 0.0)),
    )
    counted = HGPO(history_length=1, discount=1.0).assign([three])
    dropped = HGPO(history_length=1, discount=1.0, drop_zero_levels=True).assign([three])
    assert counted.step_advantages[0] is not None
    assert dropped.step_advantages[0] is not None
    # levels 0, 1, 2 of a's "t": 1/3, 1/3, 0 with weights 1, 2, 3
    assert counted.step_advantages[0][1] == pytest.approx((1 / 3 + 2 / 3) / 6)
    assert dropped.step_advantages[0][1] == pytest.approx((1 / 3 + 2 / 3) / 3)


def test_longer_shared_histories_weigh_more() -> None:
    # "t" is reached from "s" twice and from "r" once; only one of the former wins.
    three = group(
        "g",
        episode("a", ("s", 0.0), ("t", 1.0)),
        episode("b", ("s", 0.0), ("t", 0.0)),
        episode("c", ("r", 0.0), ("t", 0.0)),
    )
    result = HGPO(history_length=1, discount=1.0).assign([three])
    a, b, c = (row or () for row in result.step_advantages)
    # level 0: scores 1, 0, 0: +2/3, -1/3, -1/3.  "t", level 1: the same.
    # "s" -> "t", level 2: +1/2, -1/2.  Weights 1, 2, 3; "r" and its "t" lack level 2.
    np.testing.assert_allclose(a[1], (1 * 2 / 3 + 2 * 2 / 3 + 3 * 1 / 2) / 6)
    np.testing.assert_allclose(b[1], (-1 / 3 - 2 / 3 - 3 / 2) / 6)
    np.testing.assert_allclose(c[1], (-1 / 3 - 2 / 3) / 3)
    # "s", level 1: returns 1 and 0; it has no past.  "r" is alone: level 0 only.
    np.testing.assert_allclose(a[0], (2 / 3 + 2 * 1 / 2) / 3)
    np.testing.assert_allclose(c[0], -1 / 3)
    assert result.groups["context_2"] == ((-1, 0), (-1, 0), (-1, 1))


def test_d3_a_step_alone_on_every_level_keeps_the_episode_part() -> None:
    pair = group("g", episode("a", ("x", 1.0)), episode("b", ("y", 0.0)))
    assert HGPO().assign([pair]).step_advantages == ((0.5,), (-0.5,))
    assert HGPO(base_group=False).assign([pair]).step_advantages == ((0.0,), (0.0,))


def test_d2_a_lone_survivor_gets_zero_even_where_it_met_itself() -> None:
    lone = group("g", episode("a", ("s", 0.0), ("s", 1.0)), failed_episode("b"))
    assert HGPO().assign([lone]).step_advantages == ((0.0, 0.0), None)


def test_a_summary_between_two_acts_does_not_break_their_context() -> None:
    pair = group(
        "g",
        episode("a", ("s", 0.0), summary(), ("t", 1.0)),
        episode("b", ("s", 0.0), ("t", 0.0)),
    )
    result = HGPO(history_length=1).assign([pair])
    assert result.groups["context_2"] == ((-1, -1, 0), (-1, 0))
    assert (result.step_advantages[0] or ())[1] == 0.5  # the summary: level 0 only


def slow_hgpo(groups: tuple[Group, ...], depth: int, discount: float, alpha: float) -> list[float]:
    """HGPO with level 0, mean only, from its definition."""
    found = []
    for one in groups:
        scored = [t for t in one.trajectories if t.scored]
        scores = {t.id: sum(s.reward or 0.0 for s in t.steps) for t in scored}
        rows: dict[tuple[str, int], tuple[list[tuple[Any, ...] | None], float]] = {}
        for t in scored:
            acts = [s for s in t.steps if s.kind == "act"]
            for p, s in enumerate(acts):
                contexts = []
                for k in range(1, depth + 2):
                    window = tuple(a.anchor for a in acts[p - k + 1 : p + 1]) if p >= k - 1 else ()
                    contexts.append(None if not window or None in window else window)
                value = sum((a.reward or 0.0) * discount**j for j, a in enumerate(acts[p:]))
                rows[t.id, s.index] = (contexts, value)
        for t in scored:
            for s in t.steps:
                base = scores[t.id] - sum(scores.values()) / len(scores)
                items = [(1.0, base)]
                for k in range(depth + 1):
                    if (t.id, s.index) not in rows or rows[t.id, s.index][0][k] is None:
                        continue
                    contexts, value = rows[t.id, s.index]
                    same = [v for c, v in rows.values() if c[k] == contexts[k]]
                    if len(same) > 1:
                        items.append(((k + 2.0) ** alpha, value - sum(same) / len(same)))
                total = sum(w * a for w, a in items) / sum(w for w, _ in items)
                found.append(total if len(scored) > 1 else 0.0)
    return found


@given(SEEDS, st.integers(0, 3), st.floats(0, 1), st.sampled_from([0.0, 1.0, 2.0]))
def test_hgpo_agrees_with_a_loop(seed: int, depth: int, discount: float, alpha: float) -> None:
    groups = random_groups(random.Random(seed), anchors=2)
    estimator = HGPO(history_length=depth, discount=discount, alpha=alpha)
    found = flat(estimator.assign(groups).step_advantages)
    np.testing.assert_allclose(found, slow_hgpo(groups, depth, discount, alpha), atol=3e-6)


@given(SEEDS)
def test_without_history_and_base_it_is_the_step_part_of_gigpo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    one = HGPO(history_length=0, base_group=False).assign(groups).step_advantages
    np.testing.assert_allclose(flat(one), flat(GiGPO().assign(groups).parts["step"]), atol=1e-12)


@given(SEEDS)
def test_where_no_state_is_shared_it_is_grpo(seed: int) -> None:
    groups = random_groups(random.Random(seed), anchors=10**6, odd=False)
    one, other = HGPO().assign(groups), GRPO(normaliser="mean").assign(groups)
    np.testing.assert_allclose(flat(one.step_advantages), flat(other.step_advantages))


@given(SEEDS)
def test_parts_add_up_and_contexts_refine(seed: int) -> None:
    result = HGPO(history_length=3).assign(random_groups(random.Random(seed)))
    total = sum(flat(part) for part in result.parts.values())
    np.testing.assert_allclose(total, flat(result.step_advantages), atol=1e-12)
    for k in (1, 2, 3):
        coarse, fine = flat(result.groups[f"context_{k}"]), flat(result.groups[f"context_{k + 1}"])
        for label in set(fine[fine >= 0].tolist()):
            assert len(set(coarse[fine == label].tolist())) == 1


def test_reference_mode_drops_levels_of_value_zero() -> None:
    # The fine clusters of "t" agree exactly (both 1, both 0); level 1 alone speaks.
    four = group(
        "g",
        episode("a", ("s", 0.0), ("t", 1.0)),
        episode("b", ("s", 0.0), ("t", 1.0)),
        episode("c", ("r", 0.0), ("t", 0.0)),
        episode("d", ("r", 0.0), act("t", 0.0)),
    )
    options: dict[str, Any] = {"history_length": 1, "discount": 1.0, "normaliser": "mean"}
    published = HGPO(**options, reference=True).assign([four]).step_advantages
    ours = HGPO(**options, base_group=False).assign([four]).step_advantages
    np.testing.assert_allclose((published[0] or ())[1], 0.5, atol=1e-5)
    np.testing.assert_allclose((ours[0] or ())[1], 0.5 * 2 / 5)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="history_length"):
        HGPO(history_length=-1)
    with pytest.raises(ConfigError, match="similarity"):
        HGPO(similarity=2.0)
    with pytest.raises(DataError, match="positive"):
        level_contributions([[1.0]], [[True]], [0.0])
    with pytest.raises(DataError, match="shape"):
        level_contributions([[1.0]], [[True, False]], [1.0])
    with pytest.raises(DataError, match="one weight per array"):
        weighted_sum([[1.0]], [])
    np.testing.assert_array_equal(weighted_sum([[1.0, 2.0], [3.0, 4.0]], [2.0, -1.0]), [-1.0, 0.0])
