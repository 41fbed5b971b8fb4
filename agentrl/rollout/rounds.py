"""An iteration played in rounds: what strategies ask for beyond the first groups is one more."""

from __future__ import annotations

from dataclasses import replace

from agentrl.core.trajectory import Group
from agentrl.rollout.limits import GroupRequest
from agentrl.rollout.runner import Runner, refuse_if_nothing_finished
from agentrl.rollout.thread import LoopThread
from agentrl.strategies.course import Asked, Course, Rollout

__all__ = ["play_rounds", "request_of"]


def request_of(asked: Asked) -> GroupRequest:
    """What the runner is asked for."""
    return GroupRequest(asked.id, asked.task, asked.size, asked.seed, asked.first_trial)


def play_rounds(course: Course, iteration: int, runner: Runner, loop: LoopThread) -> Rollout:
    """Play all that ``course`` asks for in an iteration, and settle it.

    A group needs its quorum when its first episodes are over; of further trials whatever finished
    is taken, and nobody is abandoned.

    Raises:
        EpisodeError: every episode of the first round failed; what ``Runner.run`` raises.
    """
    asked = course.plan(iteration)
    groups = loop.run(runner.run(map(request_of, asked)), on_given_up=runner.blame)
    refuse_if_nothing_finished(groups)
    # The others are small: that all of one fails says little, and must not stop the run.
    later = replace(runner, limits=replace(runner.limits, quorum=0, straggler_s=None))
    while True:
        found = {group.id: group for group in groups}
        for one in asked:
            group = found.get(one.id)
            if group is not None and one.place.attempt and not one.first_trial:
                group = _with_quorum(runner, one, group)
            course.answer(one, group)
        asked = course.waiting(iteration)
        if not asked:
            return course.settle(iteration)
        groups = loop.run(later.run(map(request_of, asked)), on_given_up=later.blame)


def _with_quorum(runner: Runner, asked: Asked, group: Group) -> Group | None:
    """A group that was played in another's place, if enough of it finished."""
    finished = sum(one.failure is None for one in group.trajectories)
    if finished >= min(runner.limits.quorum, asked.size):
        return group
    runner.stats.add("discarded")
    runner.on_discarded(request_of(asked), group)
    return None
