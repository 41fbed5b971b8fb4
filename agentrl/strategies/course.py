"""A list of strategies, asked on behalf of a training loop.

The loop asks for what ``plan`` says, hands every complete group to ``answer`` and plays what that
asks for, until it asks for nothing; then ``settle``, annotators and credit, ``learn``. It may plan
iterations before earlier ones are over, and groups may be complete in any order: what is asked for
at a place depends on that place's groups and on the state after the last ``learn``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.strategy import (
    AddsEpisodes,
    ChoosesTasks,
    JoinsGroups,
    JudgesGroups,
    Place,
    Played,
    Recall,
    SizesGroups,
    Strategy,
    Verdict,
    is_replay,
    original_id,
)
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.cursor import TaskCursor, draw_task
from agentrl.strategies.replaying import (
    Replay,
    replayed,
    scaled,
    with_imitated,
    without_replays,
)
from agentrl.strategies.signal import has_signal, scores

__all__ = ["Asked", "Course", "Learnt", "Rollout", "use_of"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Episodes to be played: a group, or further trials of one (the same ``id``).

    Trials are numbered from ``first_trial``; the seed of an episode derives from (``seed``, task
    id, trial).
    """

    id: str
    task: Task
    size: int
    seed: int
    first_trial: int
    place: Place


@dataclass(frozen=True, slots=True)
class Rollout:
    """What was played in an iteration.

    Attributes:
        played: Every group, dropped ones too, by place and attempt.
        groups: Those to learn from, as credit compares them: trimmed, with what joined them.
    """

    played: tuple[Played, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Learnt:
    """What is learnt from in an iteration.

    Attributes:
        fresh: What was just played of it. fresh_credit: aligned, for the store.
        groups: All of it. credit: aligned, for making rows; scaled for what was not played.
        replays: What of it was played before.
    """

    fresh: tuple[Group, ...]
    fresh_credit: CreditResult
    groups: tuple[Group, ...]
    credit: CreditResult
    replays: tuple[Replay, ...]


def use_of(rollout: Rollout, learnt: Learnt) -> dict[str, Any]:
    """What was played and is not learnt from, and what is though it was played before: for records.

    ``dropped``: ids of groups. ``left_out``: ids of trajectories of other groups. ``replays``: with
    the ids of the trajectories in the store, and of what they were learnt from with.
    """
    kept = [one.group for one in rollout.played if one.verdict == "keep"]
    learnt_from = {one.id for group in learnt.fresh for one in group.trajectories}
    played = [one.id for group in kept for one in group.trajectories]
    return {
        "dropped": [one.group.id for one in rollout.played if one.verdict != "keep"],
        "left_out": [one for one in played if one not in learnt_from],
        "replays": [asdict(one) for one in learnt.replays],
    }


@dataclass(slots=True)
class _Underway:
    """What an iteration has come to so far."""

    position: int
    waiting: dict[int, Asked] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    episodes: int = 0
    played: list[Played] = field(default_factory=list)


class Course:
    """The strategies of one stage and where it stands in its tasks.

    Without strategies it asks for every task once an epoch, ``group_size`` times.

    Args:
        strategies: By name, in the order in which they are asked. The first that does not keep a
            group decides; of wanted sizes the largest counts.
        tasks: The training tasks.
        seed: All that is drawn derives from it. name: group ids begin with it.
        places: Groups of an iteration. group_size: most episodes of one.
        recall: Gives stored trajectories.
        done: Iterations that are over, where there is no state to go on from.
    """

    def __init__(
        self,
        strategies: Mapping[str, Strategy],
        *,
        tasks: Sequence[Task],
        seed: int,
        name: str,
        places: int,
        group_size: int,
        recall: Recall,
        done: int = 0,
    ) -> None:
        self.strategies = dict(strategies)
        self._tasks, self._seed, self._name, self._recall = tasks, seed, name, recall
        self._places, self._group_size = places, group_size
        self._cursor = TaskCursor(tasks, seed, position=done * places)
        self._position = self._cursor.position
        self._underway: dict[int, _Underway] = {}
        self._by_id: dict[str, Task] = {}

    def plan(self, iteration: int) -> list[Asked]:
        """The first groups of an iteration, one for each place."""
        size = max(self._sizes(), default=self._group_size)
        asked = [
            Asked(
                id=f"{self._name}-{iteration}-{number}-{task.id}",
                task=task,
                size=size,
                seed=self._seed,
                first_trial=epoch * self._group_size,
                place=Place(iteration, number),
            )
            for number, (task, epoch) in enumerate(self._cursor.take(self._places, self._admits()))
        ]
        waiting = {one.place.number: one for one in asked}
        episodes = sum(one.size for one in asked)
        self._underway[iteration] = _Underway(self._cursor.position, waiting, episodes=episodes)
        return asked

    def answer(self, asked: Asked, group: Group | None) -> Asked | None:
        """What to play now that ``asked`` is complete; ``None``: its place is settled.

        Args:
            asked: As ``plan`` or ``answer`` returned it.
            group: What was played; ``None``: too little of it finished.
        """
        work, place = self._underway[asked.place.iteration], asked.place
        known = work.groups.get(place.number)
        if known is not None and group is not None:
            members = (*known.trajectories, *group.trajectories)
            group = replace(group, trajectories=members)
        whole = known if group is None else group
        following = None
        if whole is not None:
            work.groups[place.number] = whole
            more = 0 if group is None else self._more(whole)
            if more:
                first = asked.first_trial + asked.size
                following = replace(asked, size=more, first_trial=first)
            else:
                following = self._judged(work, asked, whole)
        if following is None:
            del work.waiting[place.number]
        else:
            work.waiting[place.number] = following
            work.episodes += following.size
        return following

    def waiting(self, iteration: int) -> list[Asked]:
        """What of a planned iteration is still to be played, by place."""
        waiting = self._underway[iteration].waiting
        return [waiting[number] for number in sorted(waiting)]

    def settle(self, iteration: int) -> Rollout:
        """What an iteration came to, with the stored trajectories that join its groups."""
        work = self._underway[iteration]
        assert not work.waiting, "settled before every place was"
        work.played.sort(key=lambda one: (one.place.number, one.place.attempt))
        groups = []
        for one in work.played:
            if one.verdict == "keep":
                seed = derive_seed(self._seed, "replay", one.group.id)
                group = self._trimmed(one.group)
                joining = [
                    replayed(past, group.id)
                    for strategy in self.strategies.values()
                    if isinstance(strategy, JoinsGroups)
                    for past in strategy.join(group, seed=seed, recall=self._recall)
                ]
                unique = {past.id: past for past in joining}
                groups.append(replace(group, trajectories=(*group.trajectories, *unique.values())))
        return Rollout(tuple(work.played), tuple(groups))

    def learn(self, iteration: int, groups: Sequence[Group], credit: CreditResult) -> Learnt:
        """Add what is imitated, and move on the state of the strategies.

        Args:
            iteration: The next after the last one that was learnt.
            groups: Of ``settle``, annotated perhaps. credit: What it made of them.
        """
        work = self._underway.pop(iteration)
        seed = derive_seed(self._seed, "imitate", iteration)
        imitated = [
            one
            for strategy in self.strategies.values()
            if isinstance(strategy, AddsEpisodes)
            for one in strategy.add(iteration, seed=seed, recall=self._recall)
        ]
        name = f"{self._name}-{iteration}"
        fresh, fresh_credit = without_replays(groups, credit)
        scale = self._scale(fresh)
        everything, all_credit = with_imitated(groups, scaled(credit, scale), imitated, name)
        flat = [one for group in everything for one in group.trajectories]
        given = [None] * (len(flat) - len(imitated)) + [one.advantage for one in imitated]
        replays = tuple(
            Replay(original_id(one.id), one.group_id, one.policy_version, advantage)
            for one, advantage in zip(flat, given, strict=True)
            if is_replay(one.id)
        )
        metrics: dict[str, float] = {}
        if self.strategies:
            metrics = self._counts(work, fresh, len(replays) - len(imitated), len(imitated))
            metrics["sampling_scale"] = scale
        for strategy_name, strategy in self.strategies.items():
            found = strategy.observe(work.played, fresh, fresh_credit)
            metrics |= {f"{strategy_name}_{key}": value for key, value in found.items()}
        self._position = work.position
        fresh_credit = replace(fresh_credit, metrics={**credit.metrics, **metrics})
        return Learnt(fresh, fresh_credit, everything, all_credit, replays)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last iteration that was learnt, as JSON-like data."""
        states = {name: one.state_dict() for name, one in self.strategies.items()}
        return {"position": self._position, "strategies": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            DataError: it is that of other strategies.
        """
        states = state["strategies"]
        if list(states) != list(self.strategies):
            raise DataError(
                f"the checkpoint holds the state of the strategies {', '.join(states) or 'none'}, "
                f"and the stage has {', '.join(self.strategies) or 'none'}: resume the run as it "
                "was, or start a new one from its model"
            )
        for name, one in self.strategies.items():
            one.load_state_dict(states[name])
        self._position = state["position"]
        self._cursor = TaskCursor(self._tasks, self._seed, position=self._position)
        self._underway = {}

    # Asking the strategies

    def _admits(self) -> Callable[[Task], bool] | None:
        choosing = [one for one in self.strategies.values() if isinstance(one, ChoosesTasks)]
        if not choosing:
            return None
        return lambda task: all(one.admits(task) for one in choosing)

    def _sizing(self) -> list[SizesGroups]:
        return [one for one in self.strategies.values() if isinstance(one, SizesGroups)]

    def _sizes(self) -> list[int]:
        return [min(one.first_size(self._group_size), self._group_size) for one in self._sizing()]

    def _more(self, group: Group) -> int:
        wanted = max((one.more(group, self._group_size) for one in self._sizing()), default=0)
        return max(min(wanted, self._group_size - len(group.trajectories)), 0)

    def _trimmed(self, group: Group) -> Group:
        for number, one in enumerate(self._sizing()):
            group = one.trim(group, seed=derive_seed(self._seed, "trim", group.id, number))
        return group

    def _scale(self, groups: Sequence[Group]) -> float:
        """Share that what was played has in all that counts in a batch's mean."""
        played = sum(len(one.trajectories) for one in groups)
        unplayed = sum(
            max((one.unplayed(group, self._group_size) for one in self._sizing()), default=0)
            for group in groups
        )
        return played / (played + unplayed) if unplayed else 1.0

    def _judged(self, work: _Underway, asked: Asked, group: Group) -> Asked | None:
        """Note what becomes of a group; what is played in its place, if anything."""
        place, judge = asked.place, None
        verdict: Verdict = "keep"
        for one in self.strategies.values():
            if isinstance(one, JudgesGroups) and verdict == "keep":
                judge, verdict = one, one.judge(group, place)
        work.played.append(Played(place, group, _checked(verdict)))
        del work.groups[place.number]
        if verdict != "again" or judge is None:
            return None
        after = replace(place, attempt=place.attempt + 1)
        seed = derive_seed(self._seed, "again", after.iteration, after.number, after.attempt)
        wanted = judge.instead(group, place, seed=seed)
        if wanted is None:
            task = draw_task(self._tasks, seed=seed, admits=self._admits())
        else:
            task = self._task(wanted)
        return Asked(
            id=f"{self._name}-{after.iteration}-{after.number}r{after.attempt}-{task.id}",
            task=task,
            size=max(self._sizes(), default=self._group_size),
            seed=seed,
            first_trial=0,
            place=after,
        )

    def _task(self, task_id: str) -> Task:
        if not self._by_id:
            self._by_id = {task.id: task for task in self._tasks}
        try:
            return self._by_id[task_id]
        except KeyError:
            raise DataError(
                f"a strategy asks for the task {task_id}, which is none of the {len(self._tasks):,}"
                " training tasks of the stage: it must name one that it was shown"
            ) from None

    def _counts(
        self, work: _Underway, fresh: Sequence[Group], joined: int, imitated: int
    ) -> dict[str, float]:
        """Measures of an iteration that mean the same whatever the strategies."""
        verdicts = [one.verdict for one in work.played]
        kept = sum(len(one.group.trajectories) for one in work.played if one.verdict == "keep")
        comparable = [one.group for one in work.played if len(scores(one.group)) > 1]
        return {
            "sampling_episodes": work.episodes,
            "sampling_episodes_saved": self._places * self._group_size - work.episodes,
            "sampling_episodes_left_out": kept - sum(len(one.trajectories) for one in fresh),
            "sampling_groups": len(verdicts),
            "sampling_groups_without_signal": sum(not has_signal(one) for one in comparable),
            "sampling_resamplings": verdicts.count("again"),
            "sampling_groups_dropped": verdicts.count("drop"),
            "sampling_replayed": joined,
            "sampling_imitated": imitated,
        }


def _checked(verdict: Verdict) -> Verdict:
    if verdict not in ("keep", "again", "drop"):
        raise DataError(f"a strategy judged {verdict!r}; expected keep, again or drop")
    return verdict
