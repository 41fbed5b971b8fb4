"""What every credit estimator must do. The subject is the estimator.

``assert_contract(CHECKS, GiGPO(discount=0.9))``. An estimator whose statistics span the whole batch
(REINFORCE++) says so with a class attribute ``scope = "batch"``; the rules about single groups then
hold for the batch. What an estimator lists in ``needs`` is annotated by the suite.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import CreditResult, Group, Step, Trajectory
from agentrl.credit.annotations import annotate
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.testing.contract import ContractViolation, require
from agentrl.testing.episodes import act, episode, failed_episode, group, summary

__all__ = ["CHECKS", "annotated_for", "sample_groups"]

CLOSE = 1e-9


def sample_groups() -> tuple[Group, ...]:
    """Groups with wins, losses, revisits, invalid actions, failures, summaries and odd sizes."""
    return (
        group(
            "mixed",
            episode("win", ("kitchen", 0.0, "open"), ("attic", 0.0, "take"), ("attic", 1.0, "put")),
            episode("lose", ("kitchen", 0.0, "open"), ("cellar", 0.0, "look")),
            episode("loop", ("kitchen", 0.0, "look"), ("kitchen", 0.0, "open"), ("attic", 0.0)),
            episode("wrong", act("kitchen", valid=False), act("attic", 1.0, "take", tokens=5)),
        ),
        group(
            "broken",
            episode("first", ("kitchen", 0.25), ("attic", 0.5)),
            failed_episode("crashed", ("kitchen", 0.0)),
            episode("unscored", ("kitchen", 0.0), ("attic", None)),
            episode("second", act("kitchen", 1.0), summary(), act("hall", 0.0, "read")),
        ),
        group("keyless", episode("one", (None, 1.0)), episode("two", (None, 0.0), (None, 0.0))),
        group("alone", episode("survivor", ("kitchen", 1.0)), failed_episode("gone")),
        group("dead", failed_episode("a"), failed_episode("b", ("kitchen", 0.0))),
        group("empty"),
    )


def one_value_per_step(estimator: CreditEstimator) -> None:
    """Every trajectory that takes part gets one finite number per step, the others None."""
    groups = sample_groups()
    result = _assign(estimator, groups)
    _require_shape("step_advantages", result.step_advantages, groups)
    if result.token_advantages is not None:
        _require_tokens(result.token_advantages, groups)


def parts_have_the_same_shape(estimator: CreditEstimator) -> None:
    """Parts and partitions have the shape of the advantages; metrics are finite numbers."""
    groups = sample_groups()
    result = _assign(estimator, groups)
    for name, part in result.parts.items():
        _require_shape(f"part '{name}'", part, groups)
    for name, labels in result.groups.items():
        _require_shape(f"partition '{name}'", labels, groups)
    for name, value in with_diagnostics(groups, result).metrics.items():
        require(math.isfinite(value), f"metric '{name}' is {value}; give a finite number")


def assigning_is_pure(estimator: CreditEstimator) -> None:
    """The same groups give the same result twice, and are left as they were."""
    groups = sample_groups()
    before = copy.deepcopy(groups)
    first, second = _assign(estimator, groups), _assign(estimator, groups)
    require(groups == before, "assign changed the groups; work on copies")
    require(
        _values(first) == _values(second),
        "two calls on the same groups differ; keep no state and draw no random numbers",
    )


def trajectories_may_come_in_any_order(estimator: CreditEstimator) -> None:
    """Permuting the trajectories of a group permutes the advantages and changes nothing else."""
    groups = sample_groups()
    turned = tuple(replace(one, trajectories=one.trajectories[::-1]) for one in groups)
    _require_same(_by_id(estimator, groups), _by_id(estimator, turned), "the trajectories' order")


def groups_may_come_in_any_order(estimator: CreditEstimator) -> None:
    """Permuting the groups permutes the advantages and changes nothing else."""
    groups = sample_groups()
    _require_same(_by_id(estimator, groups), _by_id(estimator, groups[::-1]), "the groups' order")


def ids_are_only_names(estimator: CreditEstimator) -> None:
    """Other ids of groups, tasks and trajectories give the same numbers."""
    groups = sample_groups()
    renamed = [_renamed(one, f"z{99 - number}") for number, one in enumerate(groups)]
    one, other = _values(_assign(estimator, groups)), _values(_assign(estimator, renamed))
    require(_same(one, other), "advantages changed when only ids changed; never compute with ids")


def failures_take_no_part(estimator: CreditEstimator) -> None:
    """Without the failed and unscored trajectories the siblings get the same advantages."""
    groups = sample_groups()
    kept = [
        replace(one, trajectories=tuple(t for t in one.trajectories if t.scored)) for one in groups
    ]
    everything, without = _by_id(estimator, groups), _by_id(estimator, kept)
    present = {name: value for name, value in everything.items() if value is not None}
    _require_same(present, without, "a failed or unscored sibling")


def equal_trajectories_get_exactly_zero(estimator: CreditEstimator) -> None:
    """Trajectories that did equally well get exactly 0, whatever rounding does to their scores."""
    for scores in ((1.0,) * 8, (0.0,) * 8, (0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2), (10.0, 10.0 + 1e-9)):
        equal = group(
            "equal",
            *(
                episode(f"e{k}", ("kitchen", 0.0), ("attic", score))
                for k, score in enumerate(scores)
            ),
        )
        batch = [equal] if _spans_batch(estimator) else [equal, *sample_groups()]
        for advantages in _assign(estimator, batch).step_advantages[: len(scores)]:
            require(
                advantages is not None and all(one == 0.0 for one in advantages),
                f"scores {scores} gave {advantages}; a group within 1e-6 of equal must get "
                "exactly 0, never rounding noise divided by an epsilon",
            )


def a_lone_survivor_gets_zero(estimator: CreditEstimator) -> None:
    """A trajectory that nothing can be compared with gets 0, not its raw score."""
    survivor = episode("survivor", ("kitchen", 0.0), ("kitchen", 10.0))
    lone = group("g", survivor, failed_episode("x"))
    value, gone = _values(_assign(estimator, [lone]))
    require(
        value == [0.0, 0.0] and gone is None,
        f"one survivor of a group gave {value}, the failed one {gone}; expected 0 and None",
    )


def groups_do_not_mix(estimator: CreditEstimator) -> None:
    """Each group's advantages are what it would get alone."""
    if _spans_batch(estimator):
        return
    groups = sample_groups()
    together = _by_id(estimator, groups)
    apart = {name: value for one in groups for name, value in _by_id(estimator, [one]).items()}
    _require_same(together, apart, "another group in the batch")


def better_gets_more(estimator: CreditEstimator) -> None:
    """Of two episodes from one state the one that won has the larger sum of advantages."""
    pair = group("g", episode("win", ("kitchen", 1.0, "up")), episode("lose", ("kitchen", 0.0)))
    win, lose = _assign(estimator, [pair]).step_advantages
    require(
        win is not None and lose is not None and sum(win) > max(0.0, sum(lose)) >= sum(lose),
        f"winning gave {win} and losing {lose}; check the sign",
    )


def wrong_data_is_refused(estimator: CreditEstimator) -> None:
    """What would be averaged wrongly raises DataError, which names the trajectory (or group)."""
    good, bad = episode("a", ("kitchen", 1.0)), episode("b", ("kitchen", 0.0), ("attic", 0.0))
    foreign = group("h", bad).trajectories[0]
    pair = group("g", good, bad)
    for what, wrong, name in (
        ("a NaN reward", [group("g", good, episode("b", ("kitchen", math.nan)))], "g/b"),
        ("an infinite reward", [group("g", good, episode("b", ("kitchen", math.inf)))], "g/b"),
        ("a trajectory twice", [group("g", good, good)], "g/a"),
        ("a group twice", [pair, pair], "g"),
        ("a step twice", [_with(pair, steps=(bad.steps[0], bad.steps[0]))], "g/b"),
        ("a trajectory of another task", [_with(pair, task_id=foreign.task_id)], "g/b"),
        ("a trajectory that ended without a step", [_with(pair, steps=())], "g/b"),
    ):
        try:
            _assign(estimator, wrong)
        except DataError as error:
            require(
                f"'{name}'" in str(error),
                f"{what} is refused without naming '{name}': {error}; say group, trajectory and "
                "step (Columns.where does it)",
            )
            continue
        raise ContractViolation(f"{what} was accepted; raise DataError (columns_of does it)")


def _with(pair: Group, **changes: Any) -> Group:
    """``pair`` with its second trajectory changed."""
    first, second = pair.trajectories
    return replace(pair, trajectories=(first, replace(second, **changes)))


def nothing_gives_nothing(estimator: CreditEstimator) -> None:
    """No groups, or groups without trajectories, give an empty result."""
    for groups in ((), (group("empty"),)):
        result = _assign(estimator, groups)
        require(len(result.step_advantages) == 0, f"{len(groups)} empty groups gave {result}")


CHECKS = (
    one_value_per_step,
    parts_have_the_same_shape,
    assigning_is_pure,
    trajectories_may_come_in_any_order,
    groups_may_come_in_any_order,
    ids_are_only_names,
    failures_take_no_part,
    equal_trajectories_get_exactly_zero,
    a_lone_survivor_gets_zero,
    groups_do_not_mix,
    better_gets_more,
    wrong_data_is_refused,
    nothing_gives_nothing,
)


def _won(step: Step) -> bool:
    return isinstance(step.reward, int | float) and step.reward > 0.0


# What a step is annotated with when an estimator ``needs`` it: a function of its content alone.
SAMPLE_ANNOTATIONS: Mapping[str, Callable[[Step], Any]] = {
    "hidden": lambda step: tuple(
        1.0 + derive_seed(repr(step.anchor), axis) % 1000 for axis in range(4)
    ),
    "progress": lambda step: step.reward or 0.0,
    "votes": lambda step: (1, 1, None) if _won(step) else (1, -1, -1),
    "episode_teacher_logprobs": lambda step: tuple(-0.5 for _ in step.sample.token_ids),
    "step_teacher_logprobs": lambda step: tuple(-0.9 for _ in step.sample.token_ids),
    "skill_reward": lambda step: float(len(step.action.content)),
    "belief_entropy": lambda step: float(len(step.action.content)),
    "blueprint": lambda step: "plan",
}


def annotated_for(estimator: CreditEstimator, groups: Sequence[Group]) -> Sequence[Group]:
    """``groups`` with a sample of every annotation that the estimator ``needs`` on every step."""
    needs = getattr(estimator, "needs", ())
    unknown = [name for name in needs if name not in SAMPLE_ANNOTATIONS]
    require(
        not unknown,
        f"this suite has no sample of the annotation {', '.join(unknown)}; hand it an estimator "
        "whose assign annotates the groups first",
    )
    return [_annotated(one, needs) for one in groups] if needs else groups


def _assign(estimator: CreditEstimator, groups: Sequence[Group]) -> CreditResult:
    return estimator.assign(annotated_for(estimator, groups))


def _annotated(one: Group, needs: Sequence[str]) -> Group:
    return replace(
        one,
        trajectories=tuple(
            replace(
                t,
                steps=tuple(
                    annotate(step, **{name: SAMPLE_ANNOTATIONS[name](step) for name in needs})
                    for step in t.steps
                ),
            )
            for t in one.trajectories
        ),
    )


def _spans_batch(estimator: CreditEstimator) -> bool:
    return getattr(estimator, "scope", "group") == "batch"


def _trajectories(groups: Sequence[Group]) -> Iterator[Trajectory]:
    return (one for each in groups for one in each.trajectories)


def _require_shape(name: str, values: Sequence[Any], groups: Sequence[Group]) -> None:
    trajectories = list(_trajectories(groups))
    require(
        len(values) == len(trajectories),
        f"{name} has {len(values)} entries for {len(trajectories)} trajectories",
    )
    for one, trajectory in zip(values, trajectories, strict=True):
        if not trajectory.scored:
            require(one is None, f"{name} of unscored '{trajectory.id}' is {one}; expected None")
            continue
        require(
            one is not None and len(one) == len(trajectory.steps),
            f"{name} of '{trajectory.id}' is {one}; expected {len(trajectory.steps)} values",
        )
        require(all(math.isfinite(x) for x in one), f"{name} of '{trajectory.id}' is {one}")


def _require_tokens(values: Sequence[Any], groups: Sequence[Group]) -> None:
    _require_shape("token_advantages (steps)", [v and [0.0] * len(v) for v in values], groups)
    for one, trajectory in zip(values, _trajectories(groups), strict=True):
        for tokens, step in zip(one or (), trajectory.steps if one else (), strict=True):
            require(
                len(tokens) == len(step.sample.token_ids) and all(map(math.isfinite, tokens)),
                f"token advantages of '{trajectory.id}', step {step.index} are {tokens}; expected "
                f"{len(step.sample.token_ids)} finite values",
            )


def _values(result: CreditResult) -> list[list[float] | None]:
    return [None if one is None else [float(x) for x in one] for one in result.step_advantages]


def _by_id(
    estimator: CreditEstimator, groups: Sequence[Group]
) -> dict[str, Sequence[float] | None]:
    names = [one.id for one in _trajectories(groups)]
    return dict(zip(names, _values(_assign(estimator, groups)), strict=True))


def _require_same(
    one: Mapping[str, Sequence[float] | None],
    other: Mapping[str, Sequence[float] | None],
    cause: str,
) -> None:
    for name in one:
        require(
            _same([one[name]], [other[name]]),
            f"{cause} changed the advantages of '{name}' from {one[name]} to {other[name]}",
        )


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        (a is None and b is None)
        or (
            a is not None
            and b is not None
            and len(a) == len(b)
            and all(math.isclose(x, y, abs_tol=CLOSE) for x, y in zip(a, b, strict=True))
        )
        for a, b in zip(one, other, strict=True)
    )


def _renamed(one: Group, name: str) -> Group:
    trajectories = tuple(
        replace(t, id=f"{name}/{99 - k}", group_id=name, task_id=f"task-{name}")
        for k, t in enumerate(one.trajectories)
    )
    return replace(
        one, id=name, task=replace(one.task, id=f"task-{name}"), trajectories=trajectories
    )
