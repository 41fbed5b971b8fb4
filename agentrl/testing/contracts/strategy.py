"""The contract of strategies. Subject: what makes one, a fresh one at each call.

Groups are of eight tasks with ``level`` 0, 1 or 2 in their payload; some are solved always, some
never, some sometimes, and some break.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.strategy import (
    AddsEpisodes,
    ChoosesTasks,
    JoinsGroups,
    JudgesGroups,
    Place,
    Played,
    SizesGroups,
    Strategy,
)
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Trajectory
from agentrl.testing.contract import require
from agentrl.testing.episodes import episode, failed_episode, group

__all__ = ["CHECKS", "sample_group", "sample_tasks"]

Maker = Callable[[], Strategy]
GROUP_SIZE = 8
ATTEMPTS = 1_000
# Rewards by task: never, always and sometimes solved; None: the episode broke.
REWARDS: Mapping[int, Sequence[float | None]] = {
    0: (0.0, 0.0, 0.0, 0.0),
    1: (1.0, 1.0, 1.0, 1.0),
    2: (1.0, 0.0, 0.0, 0.0),
    3: (1.0, 0.0, 1.0, 0.0),
    4: (None, 1.0, 0.0, 0.0),
    5: (None, None, None, None),
    6: (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    7: (1.0, 1.0, 1.0, 0.0),
}


def sample_tasks() -> tuple[Task, ...]:
    """The tasks of the suite."""
    return tuple(Task(f"task{k}", "toy", "train", {"level": k % 3}) for k in REWARDS)


def sample_group(number: int, name: str) -> Group:
    """A group of task ``number`` that is called ``name``."""
    members = [
        failed_episode(str(trial)) if one is None else episode(str(trial), ("a", 0.0), ("b", one))
        for trial, one in enumerate(REWARDS[number])
    ]
    made, task = group(name, *members), sample_tasks()[number]
    found = tuple(replace(one, task_id=task.id) for one in made.trajectories)
    return replace(made, task=task, trajectories=found)


class _Run:
    """A strategy through some iterations, with what a store would hold."""

    def __init__(self, make: Maker, iterations: int) -> None:
        self.make, self.strategy = make, make()
        self.stored: dict[str, Trajectory] = {}
        self.iterations = 0
        for _ in range(iterations):
            self.go_on()

    def go_on(self) -> Mapping[str, float]:
        number = self.iterations
        played = [
            Played(Place(number, k), sample_group(k, f"g{number}-{k}"), "keep") for k in REWARDS
        ]
        groups = [one.group for one in played]
        self.stored |= {one.id: one for each in groups for one in each.trajectories}
        self.iterations += 1
        return self.strategy.observe(played, groups, _credit(groups))

    def answers(self, strategy: Strategy | None = None) -> list[Any]:
        """Everything that can be asked, in one list."""
        asked = strategy or self.strategy
        found: list[Any] = []
        for number, task in enumerate(sample_tasks()):
            made = sample_group(number, f"g{self.iterations}-{number}")
            found += list(_about(asked, task, made, self.stored))
        if isinstance(asked, AddsEpisodes):
            found.append(asked.add(self.iterations, seed=5, recall=self.stored.__getitem__))
        return found


def _credit(groups: Sequence[Group]) -> CreditResult:
    """Rewards less their mean, on every step."""
    advantages: list[list[float] | None] = []
    for each in groups:
        rewards = [one.reward for one in each.trajectories if one.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        advantages += [
            None if one.reward is None else [one.reward - mean] * len(one.steps)
            for one in each.trajectories
        ]
    return CreditResult(advantages)


def _about(
    asked: Strategy, task: Task, made: Group, stored: Mapping[str, Trajectory]
) -> Iterator[Any]:
    place = Place(3, 1)
    if isinstance(asked, ChoosesTasks):
        yield asked.admits(task)
    if isinstance(asked, SizesGroups):
        yield asked.first_size(GROUP_SIZE)
        yield asked.more(made, GROUP_SIZE)
        yield asked.trim(made, seed=3)
        yield asked.unplayed(made, GROUP_SIZE)
    if isinstance(asked, JudgesGroups):
        yield asked.judge(made, place)
        yield asked.instead(made, place, seed=4)
    if isinstance(asked, JoinsGroups):
        yield asked.join(made, seed=5, recall=stored.__getitem__)


def it_decides_something(make: Maker) -> None:
    """It has observe, state_dict and load_state_dict, and decides on at least one thing."""
    made = make()
    require(isinstance(made, Strategy), f"{type(made).__name__} lacks a method of Strategy")
    decides = (ChoosesTasks, SizesGroups, JudgesGroups, JoinsGroups, AddsEpisodes)
    require(
        any(isinstance(made, one) for one in decides),
        f"{type(made).__name__} has the methods of none of "
        f"{', '.join(one.__name__ for one in decides)}, so nothing would change",
    )


def answers_change_nothing(make: Maker) -> None:
    """Asking twice gives the same answers and leaves the state: only observe moves it."""
    run = _Run(make, 2)
    before = copy.deepcopy(run.strategy.state_dict())
    first, second = run.answers(), run.answers()
    require(first == second, f"the same questions got {first} and then {second}; draw from seed")
    require(
        run.strategy.state_dict() == before,
        "the state changed although nothing was observed; then the order in which groups are "
        "finished would matter. Change it in observe alone",
    )


def the_state_is_json_and_complete(make: Maker) -> None:
    """state_dict is JSON-like, and a fresh object that loads it goes on in the same way."""
    run = _Run(make, 3)
    state = json.loads(json.dumps(run.strategy.state_dict()))
    fresh = make()
    fresh.load_state_dict(state)
    require(
        run.answers(fresh) == run.answers(),
        "after load_state_dict a fresh object answers otherwise; save all that answers depend on",
    )
    resumed = _Run(make, 3)
    resumed.strategy = fresh
    for _ in range(2):
        one, other = run.go_on(), resumed.go_on()
        require(one == other, f"after loading, observe reported {other} instead of {one}")
    states = [
        json.loads(json.dumps(one.strategy.state_dict(), sort_keys=True)) for one in (run, resumed)
    ]
    require(states[0] == states[1], f"after loading, the state went on to {states[1]}")


def a_saved_state_is_a_copy(make: Maker) -> None:
    """What state_dict returned does not change afterwards, nor what was loaded."""
    run = _Run(make, 2)
    saved = run.strategy.state_dict()
    before = copy.deepcopy(saved)
    run.go_on()
    require(saved == before, "a saved state changed when the strategy went on; copy it")
    run.strategy.load_state_dict(saved)
    run.go_on()
    require(saved == before, "a loaded state changed when the strategy went on; copy it")


def attempts_end(make: Maker) -> None:
    """It gives keep, again or drop, and stops giving again as attempts grow."""
    strategy = _Run(make, 2).strategy
    if not isinstance(strategy, JudgesGroups):
        return
    for number in REWARDS:
        made = sample_group(number, "g")
        verdicts = {strategy.judge(made, Place(3, number, k)) for k in (0, 1, ATTEMPTS)}
        require(verdicts <= {"keep", "again", "drop"}, f"judge gave {sorted(verdicts)}")
        last = strategy.judge(made, Place(3, number, ATTEMPTS))
        require(
            last != "again",
            f"after {ATTEMPTS} attempts judge still gives again; bound them, then keep or drop",
        )


def broken_episodes_are_no_lack_of_signal(make: Maker) -> None:
    """A group of which nothing finished is kept and not enlarged: it is the machine's doing."""
    strategy = _Run(make, 2).strategy
    made = sample_group(5, "g")
    if isinstance(strategy, JudgesGroups):
        found = strategy.judge(made, Place(3, 5))
        require(found == "keep", f"a group of failures got {found}; retries are the runner's part")
    if isinstance(strategy, SizesGroups):
        more = strategy.more(made, GROUP_SIZE)
        require(more == 0, f"{more} more episodes were asked for where all had failed")


def groups_stop_growing(make: Maker) -> None:
    """Sizes lie within the stage's, and a group that gets what is asked for is done at last."""
    strategy = _Run(make, 2).strategy
    if not isinstance(strategy, SizesGroups):
        return
    first = strategy.first_size(GROUP_SIZE)
    require(1 <= first <= GROUP_SIZE, f"first_size({GROUP_SIZE}) is {first}")
    for number in REWARDS:
        made = sample_group(number, "g")
        while len(made.trajectories) < GROUP_SIZE:
            more = strategy.more(made, GROUP_SIZE)
            require(more >= 0, f"more is {more}; give 0 for a group that is large enough")
            if not more:
                break
            left = GROUP_SIZE - len(made.trajectories)
            made = replace(
                made, trajectories=made.trajectories + made.trajectories[:1] * min(more, left)
            )
        require(
            len(made.trajectories) < GROUP_SIZE or strategy.more(made, GROUP_SIZE) == 0,
            f"a group of {GROUP_SIZE} is to grow beyond the stage's size",
        )


def trimming_only_leaves_out(make: Maker) -> None:
    """Trimming keeps id, task and order, and adds nothing."""
    strategy = _Run(make, 2).strategy
    if not isinstance(strategy, SizesGroups):
        return
    for number in REWARDS:
        made = sample_group(number, "g")
        kept = strategy.trim(made, seed=1)
        left = [one for one in made.trajectories if one in kept.trajectories]
        same = (kept.id, kept.task) == (made.id, made.task)
        require(same and list(kept.trajectories) == left, f"trim made {kept} of {made}")
        spared, room = strategy.unplayed(made, GROUP_SIZE), GROUP_SIZE - len(made.trajectories)
        require(0 <= spared <= room, f"{spared} episodes were not played where {room} could be")


def replays_were_stored(make: Maker) -> None:
    """What joins or is added was given by recall, could be scored, and is of the right task."""
    run = _Run(make, 3)
    strategy, given = run.strategy, run.stored.__getitem__
    found: list[Trajectory] = []
    if isinstance(strategy, JoinsGroups):
        for number, task in enumerate(sample_tasks()):
            joined = strategy.join(sample_group(number, "g"), seed=2, recall=given)
            require(
                all(one.task_id == task.id for one in joined),
                f"a trajectory of another task joined a group of {task.id}",
            )
            found += joined
    if isinstance(strategy, AddsEpisodes):
        for added in strategy.add(run.iterations, seed=2, recall=given):
            require(
                math.isfinite(added.advantage) and added.advantage != 0.0,
                f"a replay was added with the advantage {added.advantage}",
            )
            found.append(added.trajectory)
    for one in found:
        require(
            run.stored.get(one.id) == one,
            f"'{one.id}' is not what recall gave; hand stored trajectories on as they are",
        )
        require(one.scored, f"'{one.id}' has failed or was not scored, and is replayed")


def the_order_of_trajectories_does_not_matter(make: Maker) -> None:
    """A group read backwards gets the same verdict and the same size."""
    strategy = _Run(make, 2).strategy
    for number in REWARDS:
        made = sample_group(number, "g")
        turned = replace(made, trajectories=made.trajectories[::-1])
        if isinstance(strategy, JudgesGroups):
            place = Place(3, number)
            one, other = strategy.judge(made, place), strategy.judge(turned, place)
            require(one == other, f"read backwards, a group got {other} instead of {one}")
        if isinstance(strategy, SizesGroups):
            more = [strategy.more(each, GROUP_SIZE) for each in (made, turned)]
            require(
                more[0] == more[1], f"read backwards, a group got {more[1]} more, not {more[0]}"
            )


def reports_are_numbers(make: Maker) -> None:
    """Observing returns finite numbers by name, also when nothing was played."""
    run = _Run(make, 1)
    for found in (run.go_on(), run.strategy.observe((), (), CreditResult(()))):
        for name, value in found.items():
            good = isinstance(value, int | float) and math.isfinite(value)
            require(good, f"observe reports {name}={value!r}; give finite numbers")


CHECKS = (
    it_decides_something,
    answers_change_nothing,
    the_state_is_json_and_complete,
    a_saved_state_is_a_copy,
    attempts_end,
    broken_episodes_are_no_lack_of_signal,
    groups_stop_growing,
    trimming_only_leaves_out,
    replays_were_stored,
    the_order_of_trajectories_does_not_matter,
    reports_are_numbers,
)
