"""Curves at equal budgets, scores paired on one panel: every number worked by hand."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from agentrl.comparing.comparison import compare_runs
from agentrl.comparing.curves import at_budget
from agentrl.comparing.scores import verdict
from agentrl.comparing.seeds import difference_over_seeds, mean_over_seeds, t_quantile
from agentrl.core.errors import ConfigError, DataError, SchemaVersionError, StoreError
from agentrl.evaluate.statistics import PairedDifference, wilson_interval
from tests.comparing.making import make_run

T2 = 4.302652729911275  # t(0.95, 2), from tables
LEARNING = [(100, 1_000, 10.0, 0.2), (200, 2_000, 20.0, 0.6)]
TEN = tuple(f"t{number}" for number in range(10))


def solved(count: int) -> dict[str, list[bool | None]]:
    """A panel of ten tasks, the first ``count`` of which were solved."""
    return {name: [place < count] for place, name in enumerate(TEN)}


# Intervals over seeds


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.95, 30, 2.042),
        (0.99, 5, 4.032),
        (0.90, 12, 1.782),
        (0.95, 1000, 1.962),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence: float, freedom: int, table: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(table, abs=5e-4)


def test_the_mean_over_seeds_has_students_interval() -> None:
    # mean 0.5, s = 0.1, half = 4.3027 * 0.1 / sqrt(3)
    found = mean_over_seeds([0.4, 0.5, 0.6])
    half = T2 * 0.1 / 3**0.5
    assert found.seeds == 3
    assert found.value == pytest.approx(0.5)
    assert [found.low, found.high] == pytest.approx([0.5 - half, 0.5 + half])
    cut = mean_over_seeds([0.9, 1.0, 1.0], bounds=(0.0, 1.0))
    assert cut.high == 1.0


def test_one_seed_has_no_interval_and_equal_seeds_an_empty_one() -> None:
    one = mean_over_seeds([0.5])
    assert (one.value, one.low, one.high) == (0.5, None, None)
    same = mean_over_seeds([0.5, 0.5])
    assert (same.low, same.high) == (0.5, 0.5)


@pytest.mark.parametrize("values", [[], [float("nan")], [0.5, float("inf")]])
def test_what_is_no_number_is_refused(values: list[float]) -> None:
    with pytest.raises(DataError, match="expected finite numbers"):
        mean_over_seeds(values)


def test_seeds_are_paired_where_they_are_the_same() -> None:
    # differences 0.1, 0.2, 0.3: mean 0.2, s 0.1, whatever the spread between seeds
    paired = difference_over_seeds([0.1, 0.4, 0.6], [0.2, 0.6, 0.9], paired=True)
    assert paired is not None
    half = T2 * 0.1 / 3**0.5
    assert paired.value == pytest.approx(0.2)
    assert [paired.low, paired.high] == pytest.approx([0.2 - half, 0.2 + half])


def test_other_seeds_are_compared_with_welchs_t() -> None:
    # means 0.5 and 0.7; v = 0.01 / 3 and 0.04 / 3, sqrt(v1 + v2) = 0.1291
    # nu = (0.05/3)^2 / ((0.01/3)^2 / 2 + (0.04/3)^2 / 2) = 25 / 8.5 = 2.94, rounded down to 2
    found = difference_over_seeds([0.4, 0.5, 0.6], [0.5, 0.7, 0.9], paired=False)
    assert found is not None
    half = T2 * (0.05 / 3) ** 0.5
    assert found.value == pytest.approx(0.2)
    assert [found.low, found.high] == pytest.approx([0.2 - half, 0.2 + half])
    assert difference_over_seeds([0.5], [0.7, 0.9], paired=False) is None


# Groups


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a2", "trackers=[]", seed=2, curve=LEARNING),
        make_run(tmp_path / "b1", "learner.learning_rate=0.01", seed=1, curve=LEARNING),
        make_run(tmp_path / "a1", "checkpoints.keep=7", seed=1, curve=LEARNING),
    ]
    done = compare_runs(runs)
    assert [group.seeds for group in done.groups] == [(1, 2), (1,)]
    assert [group.label for group in done.groups] == [
        "learner.learning_rate=0.003",
        "learner.learning_rate=0.01",
    ]
    assert [group.settings for group in done.groups] == [
        {"learner.learning_rate": 0.003},
        {"learner.learning_rate": 0.01},
    ]
    assert any("one seed says nothing" in note for note in done.notes)


def test_groups_that_differ_in_much_are_named_by_a_directory(tmp_path: Path) -> None:
    many = ("learner.learning_rate=0.01", "agent.max_tokens=200", "learner.max_grad_norm=2.5")
    one = make_run(tmp_path / "one", curve=LEARNING)
    other = make_run(tmp_path / "other", *many, curve=LEARNING)
    done = compare_runs([one, other])
    assert [group.label for group in done.groups] == [str(one), str(other)]


def test_a_seed_counts_once(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", curve=LEARNING)
    other = make_run(tmp_path / "other", curve=LEARNING)
    with pytest.raises(ConfigError, match="one configuration and one seed"):
        compare_runs([one, other])
    with pytest.raises(ConfigError, match="is named twice"):
        compare_runs([one, one])


# Curves


def test_success_lies_on_the_line_between_two_measurements() -> None:
    measured = ((100.0, 0.2), (200.0, 0.6), (400.0, 0.8))
    assert at_budget(measured, 100) == 0.2
    assert at_budget(measured, 150) == pytest.approx(0.4)
    assert at_budget(measured, 300) == pytest.approx(0.7)
    assert at_budget(measured, 400) == 0.8
    assert at_budget(measured, 99) is None
    assert at_budget(measured, 401) is None


def test_curves_are_means_over_seeds_at_equal_budgets(tmp_path: Path) -> None:
    runs = [
        make_run(
            tmp_path / f"run{seed}",
            seed=seed,
            curve=[(100, 1_000, 10.0, 0.2 + shift), (200, 2_000, 20.0 * seed, 0.6 + shift)],
        )
        for seed, shift in ((1, 0.0), (2, 0.1), (3, 0.2))
    ]
    done = compare_runs(runs)
    episodes, tokens, wall = done.curves.axes
    assert (done.curves.measure, episodes.axis, tokens.axis) == ("validation", "episodes", "tokens")
    assert (episodes.start, episodes.budget, episodes.limited_by) == (100, 200, "")
    (estimates,) = episodes.estimates
    # at 150 episodes the seeds have 0.4, 0.5, 0.6
    middle = estimates[len(estimates) // 2]
    half = T2 * 0.1 / 3**0.5
    assert episodes.budgets[len(estimates) // 2] == pytest.approx(150)
    assert middle.seeds == 3
    assert middle.value == pytest.approx(0.5)
    assert [middle.low, middle.high] == pytest.approx([0.5 - half, 0.5 + half])
    assert [estimates[0].value, estimates[-1].value] == pytest.approx([0.3, 0.7])
    # by wall time all go as far as the first: at 20 s the seeds have 0.6, 1/3 of the way, 1/5
    assert (wall.budget, wall.limited_by) == (20.0, str(tmp_path / "run1"))
    (by_time,) = wall.estimates
    assert by_time[-1].value == pytest.approx((0.6 + (0.3 + 0.4 / 3) + (0.4 + 0.4 / 5)) / 3)


def test_runs_of_unlike_length_are_compared_where_both_have_been(tmp_path: Path) -> None:
    long = make_run(
        tmp_path / "long", seed=1, curve=[*LEARNING, (400, 4_000, 40.0, 1.0)], after=solved(9)
    )
    short = make_run(
        tmp_path / "short", "sampling.max_tokens=5", seed=1, curve=LEARNING, after=solved(6)
    )
    done = compare_runs([long, short])
    episodes = done.curves.axes[0]
    assert (episodes.budget, episodes.limited_by) == (200, str(short))
    assert [one[-1].value for one in episodes.estimates] == [pytest.approx(0.6)] * 2
    assert any("after unequal numbers of episodes" in note for note in done.notes)


def test_an_unfinished_run_is_marked_and_has_no_score(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", seed=1, curve=LEARNING, after=solved(5))
    part = make_run(tmp_path / "part", seed=2, curve=LEARNING[:1], finished=False)
    done = compare_runs([whole, part])
    assert [note for note in done.notes if "is not finished" in note] == [
        f"{part} is not finished: it has no final score, and its curve goes as far as it has come"
    ]
    (score,) = done.scores
    assert score.runs == (1, 2)
    assert done.curves.axes[0].budgets == (100.0,), "one point in common"
    (group,) = done.to_data()["groups"]
    assert [run["finished"] for run in group["runs"]] == [True, False]


def test_a_run_that_has_yet_to_begin_learning_is_left_out_of_the_curves(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", seed=1, curve=LEARNING, after=solved(5))
    begun = make_run(tmp_path / "begun", seed=2, finished=False)
    done = compare_runs([whole, begun])
    assert done.curves.left_out == (str(begun),)
    assert done.curves.axes[0].budget == 200


def test_no_stretch_in_common_is_said(tmp_path: Path) -> None:
    early = make_run(tmp_path / "early", seed=1, curve=LEARNING[:1])
    late = make_run(tmp_path / "late", seed=2, curve=LEARNING[1:])
    done = compare_runs([early, late])
    assert done.curves.axes[0].budgets == ()
    assert "the curves have no stretch of episodes in common" in done.notes


def test_without_validations_the_training_success_is_compared(tmp_path: Path) -> None:
    bare = [(episodes, tokens, wall_s, None) for episodes, tokens, wall_s, _ in LEARNING]
    one = make_run(tmp_path / "one", seed=1, curve=LEARNING)
    other = make_run(tmp_path / "other", seed=2, curve=bare)
    done = compare_runs([one, other])
    assert done.curves.measure == "train"
    assert done.curves.axes[0].estimates[0][0].value == 0.25


def test_validations_of_other_tasks_are_refused(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", seed=1, curve=LEARNING)
    other = make_run(tmp_path / "other", seed=2, curve=LEARNING, validation=("v0", "v2"))
    with pytest.raises(DataError, match="were played on different tasks"):
        compare_runs([one, other])


# Final scores


def test_scores_are_paired_task_by_task(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", seed=1, curve=LEARNING, after=solved(2))
    other = make_run(
        tmp_path / "other", "sampling.max_tokens=5", seed=1, curve=LEARNING, after=solved(9)
    )
    done = compare_runs([base, other])
    (pair,) = done.pairs
    # 7 of 10 tasks were won and none lost: p = 2 / 2^7
    assert pair.over_tasks.difference == pytest.approx(0.7)
    assert (pair.over_tasks.improved, pair.over_tasks.worsened) == (7, 0)
    assert pair.over_tasks.p_value == pytest.approx(2 / 2**7)
    assert pair.over_tasks.low > 0
    assert pair.over_seeds is None
    assert pair.verdict == "better"
    ours = done.scores[0].estimate
    assert (ours.low, ours.high) == pytest.approx(wilson_interval(2, 10))
    (back,) = compare_runs([other, base]).pairs
    assert back.verdict == "worse"
    assert back.over_tasks.difference == pytest.approx(-0.7)


def test_seeds_are_pooled_by_task_and_paired_with_each_other(tmp_path: Path) -> None:
    base = [
        make_run(tmp_path / f"base{seed}", seed=seed, curve=LEARNING, after=solved(count))
        for seed, count in ((1, 2), (2, 4), (3, 6))
    ]
    other = [
        make_run(
            tmp_path / f"other{seed}",
            "sampling.max_tokens=5",
            seed=seed,
            curve=LEARNING,
            after=solved(count),
        )
        for seed, count in ((3, 9), (1, 3), (2, 6))
    ]
    done = compare_runs([*base, *other])
    (pair,) = done.pairs
    # by seed 0.2 -> 0.3, 0.4 -> 0.6, 0.6 -> 0.9: differences 0.1, 0.2, 0.3
    half = T2 * 0.1 / 3**0.5
    assert pair.over_seeds is not None
    assert pair.over_seeds.value == pytest.approx(0.2)
    assert pair.over_seeds.low == pytest.approx(0.2 - half)
    assert half > 0.2, "so nothing is shown, whatever the tasks say"
    # by task: t2 1/3 -> 1 (won); t3 2/3 -> 2/3... the shares of seeds that solved each task
    before = [1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3, 0, 0, 0, 0]
    after = [1, 1, 1, 2 / 3, 2 / 3, 2 / 3, 1 / 3, 1 / 3, 1 / 3, 0]
    assert pair.over_tasks.difference == pytest.approx((sum(after) - sum(before)) / 10)
    assert pair.over_tasks.improved == sum(b > a for a, b in zip(before, after, strict=True)) == 6
    assert pair.verdict == "no difference is shown"
    assert [one.runs for one in done.scores] == [(3, 3), (3, 3)]
    assert done.scores[0].estimate.value == pytest.approx(0.4)


def test_infra_failures_are_no_losses(tmp_path: Path) -> None:
    broken: dict[str, list[bool | None]] = {**solved(2), "t9": [None]}
    base = make_run(tmp_path / "base", seed=1, after=broken)
    other = make_run(tmp_path / "other", "sampling.max_tokens=5", seed=1, after=solved(2))
    (pair,) = compare_runs([base, other]).pairs
    assert (pair.over_tasks.tasks, pair.over_tasks.left_out) == (9, 1)
    assert (pair.over_tasks.improved, pair.over_tasks.worsened) == (0, 0)
    assert pair.verdict == "no difference is shown"


def test_greedy_scores_are_compared_apart(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", seed=1, after=solved(2), greedy=solved(3))
    other = make_run(
        tmp_path / "other", "sampling.max_tokens=5", seed=1, after=solved(9), greedy=solved(3)
    )
    pairs = {pair.how: pair for pair in compare_runs([base, other]).pairs}
    assert pairs["sampled"].over_tasks.difference == pytest.approx(0.7)
    assert pairs["greedy"].over_tasks.difference == 0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({**solved(5), "extra": [True]}, r"1 tasks only in the second \(such as '\w{16}'\)"),
        (
            {name: one for name, one in solved(5).items() if name != "t3"},
            "1 tasks only in the first",
        ),
        ({name: [*one, True] for name, one in solved(5).items()}, "1 trials a task against 2"),
    ],
)
def test_other_panels_are_refused_with_what_differs(
    other: dict[str, list[bool | None]], words: str, tmp_path: Path
) -> None:
    one = make_run(tmp_path / "one", seed=1, after=solved(5))
    two = make_run(tmp_path / "two", seed=2, after=other)
    with pytest.raises(DataError, match=words):
        compare_runs([one, two])


def test_another_problem_under_the_same_id_is_another_panel(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", seed=1, after=solved(5))
    two = make_run(tmp_path / "two", seed=2, after=solved(5))
    with sqlite3.connect(two / "store.sqlite") as connection:
        connection.execute("UPDATE tasks SET payload = '{}' WHERE key = 1")
    connection.close()
    with pytest.raises(DataError, match="1 tasks have other contents"):
        compare_runs([one, two])


def difference(low: float, high: float, p_value: float) -> PairedDifference:
    return PairedDifference((low + high) / 2, low, high, 10, 5, 1, p_value, "made up")


@pytest.mark.parametrize(
    ("tasks", "seeds", "word"),
    [
        (difference(0.1, 0.3, 0.01), [0.5, 0.6], "better"),
        (difference(0.1, 0.3, 0.06), [0.5, 0.6], "no difference is shown"),
        (difference(-0.1, 0.3, 0.01), [0.5, 0.6], "no difference is shown"),
        (difference(-0.3, -0.1, 0.01), None, "worse"),
        (difference(0.1, 0.3, 0.01), [-0.5, 0.6], "no difference is shown"),
        (difference(0.1, 0.3, 0.01), [-0.6, -0.5], "no difference is shown"),
    ],
)
def test_better_or_worse_is_said_only_where_all_agree(
    tasks: PairedDifference, seeds: list[float] | None, word: str
) -> None:
    over = None if seeds is None else mean_over_seeds([*seeds, *seeds, *seeds])
    assert verdict(tasks, over) == word


def test_where_the_first_group_has_not_finished_nothing_is_paired(tmp_path: Path) -> None:
    part = make_run(tmp_path / "part", seed=1, curve=LEARNING, finished=False)
    whole = make_run(
        tmp_path / "whole", "sampling.max_tokens=5", seed=1, curve=LEARNING, after=solved(5)
    )
    done = compare_runs([part, whole])
    assert done.pairs == ()
    assert any("no scores are paired" in note for note in done.notes)
    assert [one.group for one in done.scores] == ["sampling.max_tokens=5"]


# What is not there


def test_fewer_than_two_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least two runs, got 1"):
        compare_runs([make_run(tmp_path / "one")])


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    with pytest.raises(ConfigError, match="is not a directory"):
        compare_runs([one, tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is not the directory of a run"):
        compare_runs([one, tmp_path / "empty"])


def test_a_directory_of_played_episodes_learnt_nothing(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", seed=2)
    file = two / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "command": "rollout"}))
    with pytest.raises(ConfigError, match="learnt nothing"):
        compare_runs([one, two])


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", seed=2)
    with sqlite3.connect(two / "store.sqlite") as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    with pytest.raises(SchemaVersionError, match="has schema version 0"):
        compare_runs([one, two])
    (two / "store.sqlite").unlink()
    with pytest.raises(StoreError, match="no store at"):
        compare_runs([one, two])
    shutil.rmtree(two)


def test_a_score_without_its_episodes_is_refused(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", seed=2, after=solved(3))
    with sqlite3.connect(two / "store.sqlite") as connection:
        for table in ("steps", "trajectories"):
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    with pytest.raises(StoreError, match="none of its episodes is on record"):
        compare_runs([one, two])


def test_records_of_another_release_are_refused(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", seed=2, curve=LEARNING)
    with sqlite3.connect(two / "store.sqlite") as connection:
        connection.execute("UPDATE events SET data = json_remove(data, '$.tokens')")
    connection.close()
    with pytest.raises(DataError, match="damaged or of another release"):
        compare_runs([one, two])
