from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentrl.core.errors import DataError
from agentrl.core.trajectory import StopReason
from agentrl.credit import GRPO, columns_of, credit_result
from agentrl.testing.episodes import act, episode, failed_episode, group, summary


def test_only_acts_of_scored_trajectories_are_rows() -> None:
    one = group(
        "g",
        episode("a", ("x", 1.0), summary(), act("y", 2.0, valid=False)),
        failed_episode("b", ("x", 5.0)),
        episode("c", ("x", None)),
        episode("d", ("x", 3.0)),
    )
    columns = columns_of([one])
    assert columns.act.tolist() == [True, False, True, True]
    assert columns.rows.tolist() == [0, 2, 3]
    assert columns.trajectory.tolist() == [0, 0, 0, 1]
    assert columns.index.tolist() == [0, 1, 2, 0]
    assert columns.reward.tolist() == [1.0, 0.0, 2.0, 3.0]
    assert columns.valid.tolist() == [True, True, False, True]
    assert [step.anchor for step in columns.steps] == ["x", None, "y", "x"]
    assert columns.lengths == (3, None, None, 1)


def test_time_is_the_step_index_even_if_the_record_is_shuffled() -> None:
    played = episode("a", ("x", 0.0), ("y", 1.0))
    shuffled = replace(played, steps=played.steps[::-1])
    assert columns_of([group("g", shuffled)]).index.tolist() == [1, 0]


def test_without_part_is_none_and_counted() -> None:
    groups = [
        group("g", episode("a", ("x", 1.0)), failed_episode("b"), episode("c", ("x", None))),
        group("dead", failed_episode("a")),
        group("one", episode("a", ("x", 1.0))),
        group("none"),
    ]
    result = GRPO().assign(groups)
    assert result.step_advantages == ((0.0,), None, None, None, (0.0,))
    found = {key: result.metrics[key] for key in sorted(result.metrics) if "a" not in key[:1]}
    assert found["groups"] == 4
    assert found["groups_empty"] == 2
    assert found["groups_of_one"] == 2
    assert found["trajectories"] == 2
    assert found["trajectories_failed"] == 2
    assert found["trajectories_unscored"] == 1


def test_c1_none_and_nan_never_become_zero() -> None:
    # Rewards [1, nan, 0, None]: the runtime records NaN as a failure and None as unscored.
    one = group(
        "g",
        episode("won", ("s", 1.0)),
        failed_episode("nan"),
        episode("lost", ("s", 0.0)),
        episode("unscored", ("s", None)),
    )
    won, nan, lost, unscored = GRPO(normaliser="mean").assign([one]).step_advantages
    assert (won, lost) == ((0.5,), (-0.5,))  # mean of 1 and 0, not of four
    assert nan is None
    assert unscored is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_c1_a_credit_function_that_still_meets_nan_names_the_step(reward: float) -> None:
    one = group("g", episode("good", ("s", 0.0)), episode("bad", ("s", 0.0), ("s", reward)))
    with pytest.raises(DataError, match="trajectory 'g/bad', step 1 is"):
        GRPO().assign([one])


@pytest.mark.parametrize("reward", ["ten", "10", [1.0], {"r": 1.0}])
def test_c1_a_reward_that_is_no_number_is_refused(reward: Any) -> None:
    good = episode("b", ("s", 0.0))
    one = group("g", good, episode("a", ("s", 0.5), ("s", reward), success=True))
    with pytest.raises(DataError, match=r"group 'g', trajectory 'g/a', step 1 is .*expected a fin"):
        GRPO().assign([one])


def test_numbers_of_any_kind_are_rewards() -> None:
    one = group("g", episode("a", ("s", np.float32(0.5)), ("s", True), ("s", 2), ("s", np.int8(1))))
    assert columns_of([one]).reward.tolist() == [0.5, 1.0, 2.0, 1.0]


def test_a_group_that_spans_tasks_is_refused() -> None:
    one, other = group("g", episode("a", ("s", 1.0))), group("h", episode("b", ("s", 0.0)))
    mixed = replace(one, trajectories=one.trajectories + other.trajectories)
    with pytest.raises(DataError, match=r"group 'g' of task .* holds trajectory 'h/b', step 0, of"):
        GRPO().assign([mixed])


def test_a_trajectory_that_its_task_ended_without_a_step_is_refused() -> None:
    with pytest.raises(DataError, match="group 'g', trajectory 'g/b' has no steps"):
        GRPO().assign([group("g", episode("a", ("s", 1.0)), episode("b"))])
    # a budget may run out, and the machine may break, before the first step: that is no score
    for stopped in (episode("b", stop_reason=StopReason.MAX_TOKENS), failed_episode("b")):
        assert GRPO().assign([group("g", stopped)]).step_advantages == (None,)


def test_trajectories_are_numbered_by_trial_however_they_are_stored() -> None:
    one = group("g", *(episode(name, (name, 0.0), ("t", 1.0)) for name in "abc"))
    turned = replace(one, trajectories=one.trajectories[::-1])
    columns = columns_of([turned])
    assert columns.trajectory.tolist() == [2, 2, 1, 1, 0, 0]
    assert columns.first.tolist() == [4, 2, 0]
    assert columns.where(1) == "group 'g', trajectory 'g/c', step 1"
    assert [step.anchor for step in columns.steps[:2]] == ["c", "t"]


def test_rows_given_twice_are_refused() -> None:
    a = episode("a", ("s", 0.0))
    with pytest.raises(DataError, match="group 'g', trajectory 'g/a', step 0: given twice"):
        columns_of([group("g", a, a)])
    with pytest.raises(DataError, match="group 'g' is given twice"):
        columns_of([group("g", a), group("g", episode("b", ("s", 0.0)))])
    steps = (a.steps[0], a.steps[0])
    with pytest.raises(DataError, match="trajectory 'g/a', step 0 appears twice"):
        columns_of([group("g", replace(a, steps=steps))])


def test_an_estimator_that_makes_nan_is_stopped() -> None:
    columns = columns_of([group("g", episode("a", ("s", 0.0)))])
    with pytest.raises(DataError, match="part 'broken' must be finite"):
        credit_result(columns, {"broken": np.array([np.nan])})


def test_metrics_show_shares_and_cluster_sizes() -> None:
    columns = columns_of([group("g", *(episode(f"e{k}", ("s", 0.0)) for k in range(5)))])
    labels = np.array([0, 0, 1, 1, -1])
    parts = {"episode": np.full(5, 3.0), "step": np.array([1.0, -1.0, 1.0, -1.0, 1.0])}
    metrics = credit_result(columns, parts, {"anchor": labels}).metrics
    assert metrics["episode_share"] == 0.75
    assert metrics["step_abs_mean"] == 1.0
    assert metrics["anchor_clusters"] == 2
    assert metrics["anchor_size_1_share"] == 0.2
    assert metrics["anchor_size_2_to_4_share"] == 0.8
    assert metrics["zero_advantage_share"] == 0.0


def test_the_steps_of_all_trajectories_are_one_sequence() -> None:
    played = group("g", episode("a", ("s", 0.0), ("t", 0.0)), episode("b", ("u", 1.0)))
    steps = columns_of([played]).steps
    wanted = tuple(step for one in played.trajectories for step in one.steps)
    assert (len(steps), tuple(steps)) == (3, wanted)
    assert tuple(steps[k] for k in range(-3, 3)) == wanted * 2
    assert [steps[k] for k in np.flatnonzero([False, True, True]).tolist()] == list(wanted[1:])
    assert (steps[1:], steps[::-2], steps[:0]) == (wanted[1:], wanted[::-2], ())
    for outside in (3, -4):
        with pytest.raises(IndexError):
            steps[outside]
    assert tuple(columns_of([]).steps) == ()
