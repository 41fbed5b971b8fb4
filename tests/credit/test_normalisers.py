from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.credit.functional import (
    Normaliser,
    equal_groups,
    leave_one_out,
    normalise,
    trajectory_weights,
)

ROWS = st.lists(st.tuples(st.integers(-1, 3), st.floats(-100, 100)), max_size=15)
NORMALISERS: tuple[Normaliser, ...] = ("mean", "mean_std")


def slow_normalise(
    values: list[float], labels: list[int], normaliser: str, ddof: int
) -> list[float]:
    """The definition, one row at a time, with the rule for equal groups."""
    found = []
    for value, label in zip(values, labels, strict=True):
        members = [v for v, other in zip(values, labels, strict=True) if other == label]
        mean = sum(members) / len(members)
        if label < 0 or max(members) - min(members) <= 1e-6 * max(1.0, abs(mean)):
            found.append(0.0)
            continue
        spread = (sum((m - mean) ** 2 for m in members) / (len(members) - ddof)) ** 0.5
        found.append((value - mean) / (spread + 1e-6 if normaliser == "mean_std" else 1.0))
    return found


@given(ROWS, st.sampled_from(NORMALISERS), st.integers(0, 1))
def test_normalise_agrees_with_a_loop(
    rows: list[tuple[int, float]], normaliser: Normaliser, ddof: int
) -> None:
    labels, values = [g for g, _ in rows], [v for _, v in rows]
    found = normalise(values, np.array(labels, dtype=int), normaliser=normaliser, ddof=ddof)
    np.testing.assert_allclose(found, slow_normalise(values, labels, normaliser, ddof), atol=1e-6)


def test_mean_and_spread_by_hand() -> None:
    # mean 2; deviations -2, 0, 2; variance 8/2 = 4 (ddof 1) or 8/3 (ddof 0)
    np.testing.assert_array_equal(normalise([0, 2, 4], [0, 0, 0]), [-2, 0, 2])
    std = normalise([0, 2, 4], [0, 0, 0], normaliser="mean_std", epsilon=0.0)
    np.testing.assert_allclose(std, [-1, 0, 1])
    std = normalise([0, 2, 4], [0, 0, 0], normaliser="mean_std", epsilon=0.0, ddof=0)
    np.testing.assert_allclose(std, np.array([-2, 0, 2]) / np.sqrt(8 / 3))


@given(ROWS)
def test_centred_groups_sum_to_zero(rows: list[tuple[int, float]]) -> None:
    labels = np.array([g for g, _ in rows], dtype=int)
    found = normalise([v for _, v in rows], labels)
    for label in set(labels.tolist()):
        assert abs(found[labels == label].sum()) < 1e-9
    assert (found[labels < 0] == 0).all()


@given(ROWS, st.floats(-50, 50), st.floats(0.5, 20))
def test_shift_leaves_and_scale_scales(
    rows: list[tuple[int, float]], shift: float, scale: float
) -> None:
    labels, values = np.array([g for g, _ in rows], dtype=int), np.array([v for _, v in rows])
    values = np.round(values, 2)  # keeps groups clearly equal or clearly not
    for normaliser in NORMALISERS:
        base = normalise(values, labels, normaliser=normaliser)
        moved = normalise(values + shift, labels, normaliser=normaliser)
        np.testing.assert_allclose(moved, base, atol=1e-6)
    np.testing.assert_allclose(
        normalise(values * scale, labels), scale * normalise(values, labels), atol=1e-8
    )
    np.testing.assert_allclose(
        normalise(values * scale, labels, normaliser="mean_std"),
        normalise(values, labels, normaliser="mean_std"),
        atol=1e-3,  # epsilon beside the spread
    )


@pytest.mark.parametrize("normaliser", NORMALISERS)
@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 8,
        [0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2, 0.3],
        [10 * 0.95**7] * 3,
        [1e6, 1e6 + 0.5],
        [float(np.float32(0.1))] * 7,
        [0.0, 9e-7],
    ],
)
def test_d1_equal_values_get_exactly_zero(values: list[float], normaliser: Normaliser) -> None:
    found = normalise(values, [0] * len(values), normaliser=normaliser)
    assert found.tolist() == [0.0] * len(values)
    assert equal_groups(values, [0] * len(values)).all()
    assert leave_one_out(values, [0] * len(values)).tolist() == [0.0] * len(values)


@given(st.floats(-1e3, 1e3), st.integers(2, 9), st.sampled_from(NORMALISERS))
def test_d1_noise_of_single_precision_is_equality(
    value: float, size: int, normaliser: Normaliser
) -> None:
    noisy = [float(np.float32(value)), *[value] * (size - 1)]
    assert not normalise(noisy, [0] * size, normaliser=normaliser).any()


def test_small_but_real_differences_are_kept() -> None:
    found = normalise([0.0, 1e-4], [0, 0], normaliser="mean_std")
    np.testing.assert_allclose(found, [-0.7, 0.7], atol=0.02)


def test_a_singleton_gets_zero_or_its_raw_value() -> None:
    assert normalise([3.0], [0]).tolist() == [0.0]
    assert normalise([3.0], [0], normaliser="mean_std").tolist() == [0.0]
    assert normalise([3.0], [0], singleton="raw").tolist() == [3.0]
    raw = normalise([3.0], [0], normaliser="mean_std", singleton="raw")
    assert raw.tolist() == [3.0 / (1 + 1e-6)]
    assert leave_one_out([3.0], [0], singleton="raw").tolist() == [3.0]


def test_weights_decide_what_one_entry_is() -> None:
    # Trajectory 0 has three rows of score 1, trajectory 1 one row of score 0: means 3/4 or 1/2.
    scores, group, trajectory = [1.0, 1.0, 1.0, 0.0], [0] * 4, [0, 0, 0, 1]
    np.testing.assert_allclose(normalise(scores, group), [0.25, 0.25, 0.25, -0.75])
    weights = trajectory_weights(trajectory)
    np.testing.assert_allclose(weights, [1 / 3, 1 / 3, 1 / 3, 1])
    np.testing.assert_allclose(normalise(scores, group, weights=weights), [0.5, 0.5, 0.5, -0.5])
    # spread of the two entries 1 and 0 with ddof 1: sqrt(1/2)
    std = normalise(scores, group, weights=weights, normaliser="mean_std", epsilon=0.0)
    np.testing.assert_allclose(std, np.array([0.5, 0.5, 0.5, -0.5]) / np.sqrt(0.5))


def test_a_chosen_row_can_stand_for_its_trajectory() -> None:
    # Rows of weight 0 are compared but do not count: mean of 1 and 0.
    found = normalise([1.0, 9.0, 0.0], [0, 0, 0], weights=[1, 0, 1])
    np.testing.assert_allclose(found, [0.5, 8.5, -0.5])


@given(ROWS)
def test_leave_one_out_compares_with_the_others(rows: list[tuple[int, float]]) -> None:
    labels, values = [g for g, _ in rows], [round(v, 2) for _, v in rows]
    found = leave_one_out(values, np.array(labels, dtype=int))
    for k, (label, value) in enumerate(zip(labels, values, strict=True)):
        others = [v for j, v in enumerate(values) if labels[j] == label and j != k]
        alone = label < 0 or not others
        expected = 0.0 if alone else value - sum(others) / len(others)
        assert abs(found[k] - expected) < 1e-8


@given(ROWS, st.randoms(use_true_random=False))
def test_permuting_rows_permutes_the_result(rows: list[tuple[int, float]], rng: object) -> None:
    order = list(range(len(rows)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    labels, values = np.array([g for g, _ in rows], dtype=int), np.array([v for _, v in rows])
    for normaliser in NORMALISERS:
        base = normalise(values, labels, normaliser=normaliser)
        moved = normalise(values[order], labels[order], normaliser=normaliser)
        np.testing.assert_allclose(moved, base[order], atol=1e-6)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="labels must have length 2, got 1"):
        normalise([1.0, 2.0], [0])
    with pytest.raises(DataError, match="integers"):
        normalise([1.0], [0.5])
    with pytest.raises(DataError, match="finite"):
        normalise([float("nan")], [0])
    with pytest.raises(DataError, match="weights"):
        normalise([1.0, 2.0], [0, 1], weights=[1.0, 0.0])
    with pytest.raises(DataError, match="weights"):
        normalise([1.0, 2.0], [0, 0], weights=[2.0, -1.0])
    with pytest.raises(DataError, match="unknown normaliser 'median'"):
        normalise([1.0], [0], normaliser="median")  # type: ignore[arg-type]
    assert normalise([], []).shape == (0,)
    assert trajectory_weights([]).shape == (0,)
