"""Small builders of steps, episodes and groups, for tests that need records and no engine.

::

    group("g", episode("win", ("kitchen", 0.0), ("attic", 1.0)), episode("lose", ("kitchen", 0.0)))

A step is a tuple ``(anchor, reward)`` or ``(anchor, reward, action)``, or what ``act`` and
``summary`` return. Token ids are made up but consistent: prompts only grow by appending, so an
episode is one segment unless ``fork=True``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.message import Message
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import (
    Failure,
    Group,
    Observation,
    Sample,
    Step,
    StepKind,
    StepResult,
    StopReason,
    Trajectory,
)

__all__ = ["act", "episode", "failed_episode", "group", "random_groups", "summary", "task"]

StepLike = Step | tuple[Any, ...]


def act(
    anchor: Any,
    reward: float | None = 0.0,
    action: str = "go",
    *,
    valid: bool = True,
    tokens: int = 2,
    index: int = 0,
    kind: StepKind = "act",
) -> Step:
    """One step taken in the state ``anchor``. ``episode`` numbers it and lays out its tokens.

    Args:
        anchor: Key of the state the action was taken in.
        reward: Reward of the action; ``None``: it could not be scored.
        action: Text of the action; equal texts are equal actions.
        valid: Whether the environment accepted it.
        tokens: How many tokens were sampled.
        index: Position in the episode; ``episode`` overwrites it.
        kind: Kind of the step.
    """
    result = StepResult(Observation(()), reward, terminated=False, action_valid=valid)
    return Step(
        index=index,
        shown=(Message("user", str(anchor)),),
        anchor=anchor,
        prompt_ids=(),
        sample=Sample(tuple(range(tokens)), (-1.0,) * tokens, ((0, 0),), "stop"),
        action=Message("assistant", action),
        action_key=action,
        parse_status="ok",
        result=result if kind == "act" else None,
        kind=kind,
    )


def summary(text: str = "so far", *, tokens: int = 2) -> Step:
    """A call that served the memory: no reward, no anchor."""
    return act(None, 0.0, text, tokens=tokens, kind="summary")


def episode(
    name: str,
    *steps: StepLike,
    stop_reason: StopReason = StopReason.TERMINATED,
    success: bool | None = None,
    policy_version: int = 0,
    fork: bool = False,
) -> Trajectory:
    """A finished episode; ``success`` is whether its rewards sum to more than 0, unless given.

    Args:
        name: Short name; ``group`` makes the id ``group/name`` of it.
        steps: Tuples or steps, in order of time.
        stop_reason: Why it ended.
        success: What evaluation counts.
        policy_version: Version that sampled all of it.
        fork: Start every prompt anew, so each step is a segment of its own.
    """
    laid_out: list[Step] = []
    held: tuple[int, ...] = ()
    for index, one in enumerate(steps):
        step = one if isinstance(one, Step) else act(*one)
        count = len(step.sample.token_ids)
        prompt = (100 + index,) if fork else (*held, 100 + index)
        sampled = tuple(1000 * (index + 1) + k for k in range(count))
        sample = replace(step.sample, token_ids=sampled, versions=((0, policy_version),))
        laid_out.append(replace(step, index=index, prompt_ids=prompt, sample=sample))
        held = prompt + sampled
    rewards = [step.reward for step in laid_out]
    if success is None and all(reward is not None for reward in rewards):
        success = sum(reward or 0.0 for reward in rewards) > 0
    return Trajectory(
        id=name,
        group_id="",
        task_id="",
        trial=0,
        attempt=0,
        seed=0,
        steps=tuple(laid_out),
        stop_reason=stop_reason,
        success=success,
    )


def failed_episode(name: str, *steps: StepLike, error: str = "EnvError") -> Trajectory:
    """An episode that the machine broke after ``steps``: an infra failure, never a reward."""
    played = episode(name, *steps, stop_reason=StopReason.FAILURE)
    failure = Failure("step", error, "the world is gone")
    return replace(played, failure=failure, success=None)


def task(name: str = "task", *, env: str = "toy", split: str = "train") -> Task:
    """A task whose only content is its name."""
    payload = {"name": name}
    return Task(id=content_hash(payload), env=env, split=split, payload=payload)


def group(name: str, *episodes: Trajectory, task_name: str | None = None) -> Group:
    """A group of one task; gives its episodes their ids ``name/episode`` and their trial numbers.

    Two episodes of one name get one id: a mistake that credit must refuse.
    """
    problem = task(task_name or name)
    return Group(name, problem, tuple(_member(name, problem, episodes)))


def random_groups(
    rng: random.Random,
    *,
    groups: int = 3,
    episodes: int = 4,
    steps: int = 6,
    anchors: int = 3,
    actions: int = 2,
    odd: bool = True,
) -> tuple[Group, ...]:
    """Random groups; the same ``rng`` state gives the same groups.

    Args:
        rng: Source of randomness.
        groups: How many. episodes: per group. steps: at most, per episode.
        anchors: Distinct states of a group. actions: Distinct actions.
        odd: Whether failed and unscored episodes, missing anchors, invalid actions, summaries and
            dense rewards occur. Otherwise only the last step is rewarded, with 0 or 1.
    """

    def one_step(last: bool) -> Step:
        if odd and rng.random() < 0.1:
            return summary(tokens=1 + rng.randrange(3))
        anchor = None if odd and rng.random() < 0.1 else f"s{rng.randrange(anchors)}"
        reward = float(rng.random() < 0.5) if last else 0.0
        if odd and rng.random() < 0.3:
            reward = rng.choice((-1.0, 0.25, 0.5))
        valid = not (odd and rng.random() < 0.2)
        action = f"a{rng.randrange(actions)}"
        return act(anchor, reward, action, valid=valid, tokens=1 + rng.randrange(3))

    def one_episode(number: int) -> Trajectory:
        length = 1 + rng.randrange(steps)
        played = [one_step(k == length - 1) for k in range(length)]
        chance = rng.random() if odd else 1.0
        if chance < 0.1:
            return failed_episode(f"e{number}", *played)
        if chance < 0.2:
            return episode(f"e{number}", *played, act("s0", None))
        return episode(f"e{number}", *played)

    return tuple(
        group(f"g{number}", *(one_episode(k) for k in range(episodes))) for number in range(groups)
    )


def _member(name: str, problem: Task, episodes: Sequence[Trajectory]) -> list[Trajectory]:
    return [
        replace(one, id=f"{name}/{one.id}", group_id=name, task_id=problem.id, trial=trial)
        for trial, one in enumerate(episodes)
    ]
