"""What a list of strategies asks for, and that neither scheduling nor resuming changes it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.strategy import Strategy, is_replay, original_id
from agentrl.core.task import derive_seed
from agentrl.strategies.adaptive import Adaptive
from agentrl.strategies.course import Asked, use_of
from agentrl.strategies.cursor import TaskCursor
from agentrl.strategies.difficulty import Difficulty
from agentrl.strategies.replay import Replay
from agentrl.strategies.resample import Resample
from agentrl.strategies.self_imitation import SelfImitation
from agentrl.strategies.variance import Variance
from tests.strategies.playing import FACTORY, MadeUp, by_chance, compared

TASKS = FACTORY.tasks("train")
CHANCES = {task.id: derive_seed("chance", task.id) % 5 / 4 for task in TASKS}


def everything() -> Mapping[str, Strategy]:
    return {
        "difficulty": Difficulty(lowest=2, highest=3, key="rooms", episodes=8, raise_at=0.3),
        "adaptive": Adaptive(first=3, wrong_per_right=1.0),
        "variance": Variance(threshold=0.5, refills=2),
        "resample": Resample(resamplings=1),
        "replay": Replay(),
        "self_imitation": SelfImitation(per_iteration=3),
    }


def test_without_strategies_every_task_is_asked_for_once_an_epoch() -> None:
    stage = MadeUp({}, TASKS, by_chance(0.5))
    course = stage.course()
    for number in range(8):
        rollout, learnt = stage.play(course, number)
        assert learnt.fresh == rollout.groups
        assert not [one for one in learnt.fresh_credit.metrics if one.startswith("sampling")]
    taken = TaskCursor(TASKS, 7).take(8 * 4)
    assert stage.asked == [
        Asked(f"s-{k // 4}-{k % 4}-{task.id}", task, 8, 7, epoch * 8, stage.asked[k].place)
        for k, (task, epoch) in enumerate(taken)
    ]


@given(orders=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_in_which_groups_are_finished_changes_nothing(orders: random.Random) -> None:
    whole, mixed = (MadeUp(everything(), TASKS, by_chance(CHANCES)) for _ in range(2))
    one, other = whole.course(), mixed.course()
    for number in range(5):
        expected, learnt = whole.play(one, number)
        other.plan(number)
        while waiting := other.waiting(number):
            mixed.answer(other, orders.choice(waiting))
        rollout = other.settle(number)
        assert rollout == expected
        credit = learnt.fresh_credit  # any that is aligned with what is fresh
        assert len(credit.step_advantages) == sum(len(g.trajectories) for g in learnt.fresh)
        again = other.learn(number, rollout.groups, compared(rollout.groups))
        assert again == learnt
    assert one.state_dict() == other.state_dict()
    assert sorted(whole.asked, key=str) == sorted(mixed.asked, key=str)


@pytest.mark.parametrize("stopped", [1, 3, 4])
def test_a_course_goes_on_from_its_state_as_if_it_had_never_stopped(stopped: int) -> None:
    whole = MadeUp(everything(), TASKS, by_chance(CHANCES))
    course = whole.course()
    for number in range(stopped):
        whole.play(course, number)
    state = json.loads(json.dumps(course.state_dict()))
    rest = MadeUp(everything(), TASKS, by_chance(CHANCES), stored=dict(whole.stored))
    resumed = rest.course()
    resumed.load_state_dict(state)
    for number in range(stopped, 7):
        assert rest.play(resumed, number) == whole.play(course, number)
    assert resumed.state_dict() == course.state_dict()


def test_what_was_planned_and_not_learnt_is_planned_again() -> None:
    # A loop that plays ahead of the learner: two iterations are planned, one of them is learnt.
    stage = MadeUp({"replay": Replay()}, TASKS, by_chance(0.5))
    course = stage.course()
    course.plan(0)
    ahead = course.plan(1)
    while waiting := course.waiting(0):
        stage.answer(course, waiting[0])
    rollout = course.settle(0)
    course.learn(0, rollout.groups, compared(rollout.groups))
    resumed = stage.course()
    resumed.load_state_dict(course.state_dict())
    assert resumed.plan(1) == ahead


def test_what_is_adaptive_plays_a_part_of_what_is_played_without() -> None:
    plain = MadeUp({}, TASKS, by_chance(CHANCES))
    fewer = MadeUp({"adaptive": Adaptive(first=2)}, TASKS, by_chance(CHANCES))
    one, other = plain.course(), fewer.course()
    for number in range(3):
        plain.play(one, number)
        fewer.play(other, number)
    assert fewer.stored.items() <= plain.stored.items()
    assert len(fewer.stored) < len(plain.stored)


def test_the_counts_of_an_iteration_add_up() -> None:
    stage = MadeUp(everything(), TASKS, by_chance(CHANCES))
    course = stage.course()
    for number in range(6):
        before = len(stage.stored)
        rollout, learnt = stage.play(course, number)
        found = learnt.fresh_credit.metrics
        use = use_of(rollout, learnt)
        assert found["sampling_episodes"] == len(stage.stored) - before
        assert found["sampling_episodes_saved"] == 4 * 8 - found["sampling_episodes"]
        assert found["sampling_groups"] == len(rollout.played)
        assert found["sampling_episodes_left_out"] == len(use["left_out"])
        dropped = found["sampling_resamplings"] + found["sampling_groups_dropped"]
        assert dropped == len(use["dropped"]) == found["sampling_groups"] - len(rollout.groups)
        assert found["sampling_replayed"] + found["sampling_imitated"] == len(use["replays"])
        assert found["difficulty_hardest"] in (2, 3)
        everything_learnt = [one.id for group in learnt.groups for one in group.trajectories]
        assert len(set(everything_learnt)) == len(everything_learnt)
        replays = [one for one in everything_learnt if is_replay(one)]
        assert [original_id(one) for one in replays] == [r["trajectory_id"] for r in use["replays"]]
        assert {original_id(one) for one in replays} <= stage.stored.keys()
        fresh = {one.id for group in learnt.fresh for one in group.trajectories}
        assert fresh == set(everything_learnt) - set(replays)
        json.dumps(use)


def test_further_trials_are_the_groups_next_ones_and_a_group_of_failures_is_left_alone() -> None:
    def first_fail(asked: Asked, trial: int) -> float | None:
        return None if asked.place.number == 0 else float(trial % 8 == 5)

    stage = MadeUp({"adaptive": Adaptive(first=3, extra=2)}, TASKS, first_fail, places=2)
    rollout, _ = stage.play(stage.course(), 0)
    broken, rescued = rollout.groups
    assert [one.trial for one in broken.trajectories] == [0, 1, 2]
    # 3 fail, 2 more fail, the sixth succeeds: from there on it is mixed, and filled up.
    assert [one.trial for one in rescued.trajectories] == list(range(8))
    asked = [(one.first_trial, one.size) for one in stage.asked if one.place.number == 1]
    assert asked == [(0, 3), (3, 2), (5, 2), (7, 1)]


def test_trials_that_could_not_be_played_end_the_growth_of_a_group() -> None:
    stage = MadeUp({"adaptive": Adaptive(first=3)}, TASKS, by_chance(0.0), places=1)
    course = stage.course()
    (asked,) = course.plan(0)
    more = stage.answer(course, asked)
    assert more is not None
    assert course.answer(more, None) is None
    (group,) = course.settle(0).groups
    assert len(group.trajectories) == 3


def test_a_state_of_other_strategies_is_refused() -> None:
    course = MadeUp({"replay": Replay()}, TASKS, by_chance(0.5)).course()
    with pytest.raises(DataError, match="strategies resample, and the stage has replay"):
        course.load_state_dict({"position": 4, "strategies": {"resample": {}}})


def test_strategies_that_leave_no_task_are_refused() -> None:
    none = {"difficulty": Difficulty(highest=9, lowest=9, key="rooms")}
    with pytest.raises(ConfigError, match="admit none of its 2"):
        MadeUp(none, TASKS, by_chance(0.5)).course().plan(0)
