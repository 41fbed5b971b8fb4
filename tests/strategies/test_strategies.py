"""Each strategy by itself: its formula by hand, its bounds, its options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError
from agentrl.core.strategy import Place, Played
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Trajectory
from agentrl.envs.alfworld import AlfworldFactory
from agentrl.learn.rows import batches_from_groups
from agentrl.strategies.adaptive import Adaptive
from agentrl.strategies.course import Asked
from agentrl.strategies.difficulty import Difficulty
from agentrl.strategies.replay import Replay
from agentrl.strategies.resample import Resample
from agentrl.strategies.self_imitation import SelfImitation
from agentrl.strategies.signal import has_signal, normalised_variance
from agentrl.strategies.variance import Variance
from agentrl.testing.checking import check_plugin
from agentrl.testing.episodes import episode, group
from tests.strategies.playing import FACTORY, MadeUp, by_chance, compared, made_up

TASKS = FACTORY.tasks("train")
FIRST, SECOND = TASKS[:2]


def of(rewards: Sequence[float | None], task: Task = FIRST, name: str = "g") -> Group:
    asked = Asked(name, task, len(rewards), 0, 0, Place(0, 0))
    return made_up(asked, lambda _, trial: rewards[trial])


def seen(*groups: Group, iteration: int = 0) -> list[Played]:
    return [Played(Place(iteration, k), one, "keep") for k, one in enumerate(groups)]


NAMES = ("resample", "adaptive", "variance", "replay", "self_imitation")


@pytest.mark.parametrize(
    ("name", "options"), [*((one, []) for one in NAMES), ("difficulty", ["highest=2"])]
)
def test_every_strategy_keeps_the_contract(name: str, options: list[str]) -> None:
    assert [one for one in check_plugin("strategy", name, options) if not one.ok] == []


class Forgetful(Resample):
    """Counts what it is asked, and forgets it when it is saved."""

    def __init__(self) -> None:
        super().__init__(resamplings=2)
        self.asked = 0

    def judge(self, group: Group, place: Place) -> Any:
        self.asked += 1
        return "again" if self.asked % 3 else "keep"


def test_a_strategy_that_depends_on_the_order_of_questions_breaks_the_contract() -> None:
    broken = [one for one in check_plugin("strategy", f"{__name__}:Forgetful") if not one.ok]
    assert "Asking twice gives the same answers" in broken[0].rule
    assert any("stops giving again" in one.rule for one in broken)


# Signal


def test_the_normalised_variance_is_that_of_successes() -> None:
    # k of n: k (n - k) / (h (n - h)), h = n // 2
    assert normalised_variance([1, 0, 0, 0, 0, 0, 0, 0]) == pytest.approx(7 / 16)
    assert normalised_variance([1, 1, 1, 1, 0, 0, 0, 0]) == 1.0
    assert normalised_variance([1, 0, 0]) == normalised_variance([1, 1, 0]) == pytest.approx(1.0)
    assert normalised_variance([10, 0, 0, 0]) == normalised_variance([1, 0, 0, 0])
    assert normalised_variance([]) == normalised_variance([3]) == normalised_variance([3, 3]) == 0


@given(st.lists(st.floats(-100, 100), max_size=12))
def test_the_normalised_variance_is_a_share_and_knows_no_order(values: list[float]) -> None:
    found = normalised_variance(values)
    assert 0.0 <= found <= 1.0
    assert normalised_variance(values[::-1]) == pytest.approx(found)


def test_rewards_that_differ_by_rounding_are_no_signal() -> None:
    assert not has_signal(of([0.1 + 0.2, 0.3, 0.3]))
    assert not has_signal(of([10.0, 10.0 + 1e-9]))
    assert not has_signal(of([1.0, None]))
    assert has_signal(of([1.0, None, 0.0]))


# Resampling


@pytest.mark.parametrize(("last", "kept"), [("keep", True), ("drop", False)])
def test_a_place_without_signal_is_played_a_bounded_number_of_times(last: str, kept: bool) -> None:
    stage = MadeUp({"resample": Resample(resamplings=2, last=last)}, TASKS, by_chance(0.0))
    rollout, learnt = stage.play(stage.course(), 0)
    verdicts = [one.verdict for one in rollout.played]
    assert verdicts == ["again", "again", "keep" if kept else "drop"] * 4
    assert [one.place.attempt for one in rollout.played] == [0, 1, 2] * 4
    assert len(rollout.groups) == (4 if kept else 0)
    found = learnt.fresh_credit.metrics
    assert found["sampling_resamplings"] == 8
    assert found["sampling_groups_dropped"] == (0 if kept else 4)
    assert found["sampling_groups_without_signal"] == 12
    assert found["resample_last_attempts"] == 4
    assert found["sampling_episodes"] == 12 * 8


def test_the_same_task_is_played_anew_with_other_seeds_if_wanted() -> None:
    again = {"resample": Resample(resamplings=1, task="same")}
    stage = MadeUp(again, TASKS, by_chance(0.0))
    stage.play(stage.course(), 0)
    first = {one.place.number: one for one in stage.asked if not one.place.attempt}
    second = {one.place.number: one for one in stage.asked if one.place.attempt}
    assert [second[k].task for k in range(4)] == [first[k].task for k in range(4)]
    assert len({one.seed for one in stage.asked}) == 1 + 4


def test_a_group_that_the_machine_broke_is_no_group_without_signal() -> None:
    resample = Resample(resamplings=3)
    assert resample.judge(of([None, None, 1.0]), Place(0, 0)) == "keep"
    assert resample.judge(of([None, 1.0, 1.0]), Place(0, 0)) == "again"


def test_without_resamplings_it_filters() -> None:
    filters = {"resample": Resample(resamplings=0)}
    chances = {task.id: float(k % 2) / 2 for k, task in enumerate(TASKS)}
    stage = MadeUp(filters, TASKS, by_chance(chances))
    rollout, _ = stage.play(stage.course(), 0)
    assert len(rollout.played) == 4
    assert rollout.groups == tuple(one.group for one in rollout.played if has_signal(one.group))


# Adaptive numbers


@pytest.mark.parametrize(
    ("rewards", "fill", "stop"),
    [
        ([1.0, 1.0, 1.0, 1.0], 0, 0),  # all solve it
        ([1.0, 0.0, 1.0, 1.0], 4, 0),  # mixed
        ([0.0, 0.0, 0.0, 0.0], 2, 2),  # rescue
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1, 1),  # no more than there is room for
        ([0.0] * 8, 0, 0),
        ([None, None, None, None], 0, 0),  # nothing is known
    ],
)
def test_more_episodes_are_played_where_there_is_signal_to_be_had(
    rewards: list[float | None], fill: int, stop: int
) -> None:
    assert Adaptive(mixed="fill").more(of(rewards), 8) == fill
    assert Adaptive(mixed="stop").more(of(rewards), 8) == stop


def test_nobody_is_rescued_if_so_wanted() -> None:
    assert Adaptive(rescue_below=-1.0).more(of([0.0] * 4), 8) == 4  # mixed=fill
    assert Adaptive(rescue_below=-1.0, mixed="stop").more(of([0.0] * 4), 8) == 0
    assert Adaptive(rescue_below=0.25).more(of([0.0, 0.0, 0.0, 1.0]), 8) == 2


def test_failures_are_left_out_in_proportion_to_successes() -> None:
    made = of([1.0, 0.0, 0.0, 0.0, 0.0, None])
    kept = Adaptive(wrong_per_right=2.0).trim(made, seed=3)
    assert [one.success for one in kept.trajectories].count(False) == 2
    assert [one.success for one in kept.trajectories].count(True) == 1
    assert [one.success for one in kept.trajectories].count(None) == 1
    assert Adaptive().trim(made, seed=3) == made
    half = of([1.0, 0.0])
    assert Adaptive(wrong_per_right=0.0).trim(half, seed=3) == half  # u = 0.5
    one = Adaptive(wrong_per_right=1.0)
    others = [[t.trial for t in one.trim(made, seed=k).trajectories] for k in range(20)]
    assert any(trials != others[0] for trials in others)


def pulls(rewards: dict[int, list[float]], strategies: dict[str, Any]) -> dict[str, float]:
    """By trajectory, what each token of it pulls with in the update: weight A / tokens of all."""

    def reward(asked: Asked, trial: int) -> float:
        return rewards[asked.place.number][trial % 8]

    stage = MadeUp(strategies, TASKS, reward, places=2)
    _, learnt = stage.play(stage.course(), 0)
    (batch,) = batches_from_groups(
        learnt.groups, learnt.credit, updates=1, trajectory_weighting="equal"
    )
    sampled = sum(sum(row.action_mask) for row in batch.rows)
    return {row.trajectory_id: row.weight * row.advantages[-1] / sampled for row in batch.rows}


def test_episodes_that_would_have_said_nothing_count_in_the_mean_without_being_played() -> None:
    rewards = {0: [1.0, 0.0] * 4, 1: [1.0] * 8}
    plain = pulls(rewards, {})
    spared = pulls(rewards, {"adaptive": Adaptive(first=4)})
    assert len(plain) == 16
    assert len(spared) == 12  # 4 of the group that all solve
    assert spared == pytest.approx({one: plain[one] for one in spared})
    heavier = pulls(rewards, {"adaptive": Adaptive(first=4, count_unplayed=False)})
    assert heavier == pytest.approx({one: plain[one] * 16 / 12 for one in heavier})


# The curriculum by variance


def test_priorities_follow_with_momentum_and_leave_when_a_task_no_longer_varies() -> None:
    strategy = Variance(threshold=0.4, momentum=0.5)
    nothing = CreditResult(())
    half, one, none = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0] * 4
    assert strategy.observe(seen(of(half)), (), nothing)["bank"] == 1
    strategy.observe(seen(of(one)), (), nothing)  # p = 3 / 4
    assert strategy.state_dict() == {"bank": {FIRST.id: pytest.approx(0.5 * 1.0 + 0.5 * 0.75)}}
    strategy.observe(seen(of(none)), (), nothing)
    assert strategy.state_dict()["bank"] == {FIRST.id: pytest.approx(0.4375)}
    found = strategy.observe(seen(of(none)), (), nothing)
    assert (found["bank"], found["below"], found["mean"]) == (0, 1, 0.0)


def test_a_place_below_the_threshold_is_refilled_from_the_bank() -> None:
    chances = {task.id: 0.5 if k < 3 else 0.0 for k, task in enumerate(TASKS)}
    stage = MadeUp({"variance": Variance(refills=1)}, TASKS, by_chance(chances))
    course = stage.course()
    for number in range(8):
        stage.play(course, number)
    refills = [one for one in stage.asked if one.place.attempt]
    assert len(refills) > 8
    assert {chances[one.task.id] for one in refills} == {0.5}


def test_without_a_bank_there_is_nothing_to_refill_from() -> None:
    strategy = Variance()
    assert strategy.judge(of([0.0, 0.0]), Place(0, 0)) == "drop"
    assert Variance(last="keep").judge(of([0.0, 0.0]), Place(0, 0)) == "keep"
    strategy.observe(seen(of([1.0, 0.0])), (), CreditResult(()))
    assert strategy.judge(of([0.0, 0.0], SECOND), Place(0, 0)) == "again"
    assert strategy.instead(of([0.0, 0.0], SECOND), Place(0, 0), seed=1) == FIRST.id
    # Its own task is no replacement of a group.
    assert strategy.judge(of([0.0, 0.0]), Place(0, 0)) == "drop"


def test_the_bank_keeps_the_best() -> None:
    strategy = Variance(size=1)
    groups = of([1.0, 0.0, 0.0, 0.0]), of([1.0, 1.0, 0.0, 0.0], SECOND)
    strategy.observe(seen(*groups), (), CreditResult(()))
    assert strategy.state_dict()["bank"] == {SECOND.id: 1.0}


# Difficulty


def level(number: int) -> Task:
    return Task(f"level {number}", "made up", "train", {"level": number})


def test_the_window_moves_with_success_at_its_top() -> None:
    strategy = Difficulty(highest=3, width=2, raise_at=0.75, lower_at=0.25, episodes=4)
    nothing = CreditResult(())
    assert strategy.window == (0, 0)
    strategy.observe(seen(of([1.0, 1.0], level(0))), (), nothing)
    assert strategy.window == (0, 0)  # two episodes are too few
    found = strategy.observe(seen(of([1.0, 0.0], level(0))), (), nothing)
    assert found == {"easiest": 0.0, "hardest": 0.0, "success": 0.5}
    assert strategy.window == (0, 1)  # 3 of 4
    strategy.observe(seen(of([1.0] * 4, level(0)), of([0.0] * 3, level(1))), (), nothing)
    assert strategy.window == (0, 1)  # only the top counts
    strategy.observe(seen(of([1.0, None], level(1))), (), nothing)
    assert strategy.window == (0, 1)  # 1 of 4: neither, and the counts begin anew
    for _ in range(3):
        strategy.observe(seen(of([1.0] * 4, level(strategy.window[1]))), (), nothing)
    assert strategy.window == (2, 3)  # there is nothing harder
    assert [strategy.admits(level(k)) for k in range(5)] == [False, False, True, True, False]
    strategy.observe(seen(of([0.0] * 4, level(3))), (), nothing)
    assert strategy.window == (1, 2)


def test_a_task_without_a_level_is_refused_with_what_it_has() -> None:
    task = Task("t", "made up", "train", {"rooms": 3, "hard": True})
    with pytest.raises(ConfigError, match=r"no whole number under 'room'.*'rooms'.*rooms, hard"):
        Difficulty(highest=3, key="room").admits(task)
    with pytest.raises(ConfigError, match="no whole number under 'hard'"):
        Difficulty(highest=3, key="hard").admits(task)


def test_a_run_begins_with_the_easy_tasks_and_goes_on_to_the_hard_ones() -> None:
    window = Difficulty(lowest=2, highest=3, key="rooms", width=1, episodes=32)
    stage = MadeUp({"difficulty": window}, TASKS, by_chance(1.0))
    course = stage.course()
    for number in range(3):
        stage.play(course, number)
    rooms = [{one.task.payload["rooms"] for one in stage.asked[4 * k : 4 * k + 4]} for k in (0, 1)]
    assert rooms == [{2}, {3}]


def test_alfworlds_games_of_several_difficulties_are_graded() -> None:
    levels: Any = ["tiny", {"preset": "tiny", "receptacles": [6, 8]}]
    graded = AlfworldFactory(difficulty=levels, tasks_per_split={"train": 40})
    tasks = graded.tasks("train")
    found = [task.payload["level"] for task in tasks]
    assert set(found) == {0, 1}
    assert 10 < sum(found) < 30
    rooms: dict[int, list[int]] = {0: [], 1: []}
    for task in tasks:
        rooms[task.payload["level"]].append(len(task.payload["game"]["receptacles"]))
    assert max(rooms[0]) <= 6 <= min(rooms[1])
    plain = AlfworldFactory(tasks_per_split={"train": 40}).tasks("train")
    assert all("level" not in task.payload for task in plain)
    # The same games as without grades, each at its turn.
    easy = [task.id for task in tasks if task.payload["level"] == 0]
    assert easy == [task.id for task in plain][: len(easy)]
    with pytest.raises(ConfigError, match="a list of these, the easiest first"):
        AlfworldFactory(difficulty=[])


# Replays


def test_successes_of_a_task_join_its_later_groups() -> None:
    strategy = Replay(per_group=2, keep=3)
    stored: dict[str, Trajectory] = {}
    for number in range(3):
        made = of([1.0, 0.0, None], name=f"g{number}")
        stored |= {one.id: one for one in made.trajectories}
        found = strategy.observe(seen(made, iteration=number), (), CreditResult(()))
    assert found == {"tasks": 1, "successes": 3}
    joined = strategy.join(of([0.0]), seed=1, recall=stored.__getitem__)
    assert len(joined) == 2
    assert {one.id for one in joined} < {"g0/0", "g1/0", "g2/0"}
    assert strategy.join(of([0.0], SECOND), seed=1, recall=stored.__getitem__) == ()
    strategy.observe(seen(of([1.0], name="g3")), (), CreditResult(()))
    assert strategy.state_dict() == {"successes": {FIRST.id: ["g1/0", "g2/0", "g3/0"]}}


def test_only_unsolved_groups_are_joined_if_so_wanted() -> None:
    strategy = Replay(when="unsolved")
    made = of([1.0])
    strategy.observe(seen(made), (), CreditResult(()))
    recall = {made.trajectories[0].id: made.trajectories[0]}.__getitem__
    assert strategy.join(of([1.0, 0.0]), seed=1, recall=recall) == ()
    assert strategy.join(of([None]), seed=1, recall=recall) == ()
    assert len(strategy.join(of([0.0, 0.0]), seed=1, recall=recall)) == 1


def observe(strategy: SelfImitation, iteration: int, *groups: Group) -> None:
    strategy.observe(seen(*groups, iteration=iteration), groups, compared(groups))


def test_good_episodes_are_added_with_decaying_weight() -> None:
    strategy = SelfImitation(coefficient=2.0, decay=0.5, max_age=3)
    made = of([1.0, 0.0, 0.0, 0.0])
    recall = {one.id: one for one in made.trajectories}.__getitem__
    assert strategy.add(0, seed=1, recall=recall) == ()
    observe(strategy, 0, made)
    # R = 1, the median of the one group mean is 0.25
    for age, weight in ((1, 2.0), (2, 1.0), (3, 0.5)):
        (added,) = strategy.add(age, seed=1, recall=recall)
        assert added.trajectory == made.trajectories[0]
        assert added.advantage == pytest.approx(weight * 0.75)
    assert strategy.add(4, seed=1, recall=recall) == []


def test_what_is_no_longer_better_than_usual_is_not_imitated() -> None:
    strategy = SelfImitation()
    made = of([1.0, 0.0])
    recall = {one.id: one for one in made.trajectories}.__getitem__
    observe(strategy, 0, made)
    assert len(strategy.add(1, seed=1, recall=recall)) == 1
    solved = [of([1.0, 1.0], name=f"s{k}") for k in range(2)]
    observe(strategy, 1, *solved)  # group means 0.5, 1, 1: the median is 1
    assert strategy.add(2, seed=1, recall=recall) == []


def test_the_weight_rises_over_the_warm_up() -> None:
    strategy = SelfImitation(warmup=10, decay=1.0)
    found = [strategy.weight(iteration, 1) for iteration in (0, 5, 10, 50)]
    assert found == pytest.approx([0.0, (1 - math.cos(math.pi / 2)) / 2, 1.0, 1.0])


def test_the_buffer_keeps_the_newest() -> None:
    strategy = SelfImitation(size=2, max_age=2)
    for number in range(3):
        observe(strategy, number, of([1.0, 0.0], name=f"g{number}"))
    kept = [name for name, *_ in strategy.state_dict()["kept"]]
    assert kept == ["g1/0", "g2/0"]
    observe(strategy, 9, of([0.0, 0.0]))
    assert strategy.state_dict()["kept"] == []


def test_unscored_and_failed_episodes_are_never_imitated() -> None:
    strategy = SelfImitation()
    odd = episode("odd", ("a", None))
    made = group("g", episode("won", ("a", 1.0)), odd, episode("lost", ("a", 0.0)))
    observe(strategy, 0, made)
    assert [name for name, *_ in strategy.state_dict()["kept"]] == ["g/won"]


# Options


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Resample(resamplings=-1), "'resample': resamplings must be a whole number"),
        (lambda: Resample(task="others"), "unknown task 'others'.*another, same"),
        (lambda: Resample(last="kep"), "unknown last 'kep'; did you mean 'keep'"),
        (lambda: Adaptive(first=1), "'adaptive': first must be a whole number of at least 2"),
        (lambda: Adaptive(extra=True), "extra must be a whole number of at least 1, got True"),
        (lambda: Adaptive(first=8).first_size(8), "first=8 must be below the stage's group_size=8"),
        (lambda: Variance(threshold=0.0), "'variance': threshold must be a number from 1e-06 to 1"),
        (lambda: Difficulty(highest=1, lowest=2), "highest must be a whole number of at least 2"),
        (lambda: Difficulty(highest=1, raise_at=0.5, lower_at=0.5), "lower_at=0.5 must be below"),
        (lambda: Replay(per_group=0), "'replay': per_group must be a whole number of at least 1"),
        (lambda: SelfImitation(decay=1.5), "'self_imitation': decay must be a number from 1e-06"),
    ],
)
def test_options_out_of_range_are_refused_in_words(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()
