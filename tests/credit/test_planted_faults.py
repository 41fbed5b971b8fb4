"""Faults planted in the mathematics of credit turn the reference values and the invariants red.

Each fault takes the place of one function of ``agentrl.credit.functional`` wherever it is used.
``GOLDEN`` are the recorded reference cases, ``PROPERTIES`` the invariants of ``invariants.py``; a
fault names which of the two must notice it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl.credit import episode, states
from agentrl.credit import functional as f
from agentrl.testing.golden import check_file, golden_files
from tests.credit.invariants import INVARIANTS

FILES = golden_files([Path(__file__).parents[1] / "golden" / "credit"])
SEEDS = range(6)
GOLDEN, PROPERTIES = "golden", "properties"
BOTH = (GOLDEN, PROPERTIES)

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        kind: ddof, off by one, weights, mixing, or another word.
        what: In words.
        replaces: The function whose place it takes. plant: makes it of that function.
        seen_by: Which nets must go red.
    """

    kind: str
    what: str
    replaces: Function
    plant: Callable[[Function], Function]
    seen_by: tuple[str, ...] = BOTH


def with_options(**options: Any) -> Callable[[Function], Function]:
    """The function with these keyword arguments whatever the caller says."""
    return lambda right: lambda *args, **kwargs: right(*args, **{**kwargs, **options})


def of_first(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """The function with its first argument changed."""
    return lambda right: lambda first, *args, **kwargs: right(change(first), *args, **kwargs)


def of_second(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """The function with its second argument changed."""
    return lambda right: (
        lambda x, second, *args, **kwargs: right(x, change(second), *args, **kwargs)
    )


def of_result(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """The function with its result changed."""
    return lambda right: lambda *args, **kwargs: change(right(*args, **kwargs))


def one_group(labels: Any) -> Any:
    """Labels that put everybody into one group; negative labels stay."""
    return np.minimum(np.asarray(labels), 0)


def population_spread(right: Function) -> Function:
    def wrong(values: Any, weights: Any, **options: Any) -> Any:
        n = max(float(np.sum(weights)), 2.0)
        return right(values, weights, **options) * np.sqrt(n / (n - 1))

    return wrong


def in_order_of_rows(right: Function) -> Function:
    def wrong(rewards: Any, trajectory: Any, index: Any, discount: float) -> Any:
        return right(rewards, trajectory, np.arange(len(rewards)), discount)

    return wrong


def without_own_reward(right: Function) -> Function:
    def wrong(rewards: Any, trajectory: Any, index: Any, discount: float) -> Any:
        return right(rewards, trajectory, index, discount) - np.asarray(rewards)

    return wrong


def discounted_once_more(right: Function) -> Function:
    def wrong(rewards: Any, trajectory: Any, index: Any, discount: float) -> Any:
        return discount * right(rewards, trajectory, index, discount)

    return wrong


def one_context_deeper(right: Function) -> Function:
    def wrong(labels: Any, trajectory: Any, index: Any, length: int) -> Any:
        return right(labels, trajectory, index, length + 1)[1:]

    return wrong


def early_steps_wrap(right: Function) -> Function:
    def wrong(labels: Any, trajectory: Any, index: Any, length: int) -> Any:
        levels = right(labels, trajectory, index, length)
        for k in range(1, length):
            levels[k] = np.where(levels[k] < 0, levels[k - 1], levels[k])
        return levels

    return wrong


def all_levels_count(right: Function) -> Function:
    def wrong(values: Any, counted: Any, weights: Any, **options: Any) -> Any:
        return right(values, np.ones_like(np.asarray(counted)), weights, **options)

    return wrong


def mean_of_all(right: Function) -> Function:
    def wrong(values: Any, labels: Any, **options: Any) -> Any:
        return f.normalise(values, labels, **options)

    return wrong


def third_best(right: Function) -> Function:
    """The margin over the worst instead of the second."""

    def wrong(values: Any, labels: Any, **options: Any) -> Any:
        found, x, of = right(values, labels, **options), np.asarray(values), np.asarray(labels)
        for place in np.flatnonzero(found):
            members = np.sort(x[of == of[place]])
            found[place] *= (members[-1] - members[0]) / (members[-1] - members[-2])
        return found

    return wrong


def last_token_not_counted(right: Function) -> Function:
    def wrong(scores: Any, lengths: Any, width: int, discount: float) -> Any:
        return discount * right(scores, lengths, width, discount)

    return wrong


def as_mean_of_the_cluster(right: Function) -> Function:
    def wrong(returns: Any, cluster: Any, action: Any, **options: Any) -> Any:
        return f.normalise(returns, cluster, **options)

    return wrong


FAULTS = (
    # ddof
    Fault("ddof", "normalise: n instead of n - 1", f.normalise, with_options(ddof=0)),
    Fault("ddof", "normalise: n - 1 instead of n", f.normalise, with_options(ddof=1)),
    Fault("ddof", "deviations: n instead of n - 1", f.deviations, with_options(ddof=0)),
    Fault("ddof", "deviations: n - 1 instead of n", f.deviations, with_options(ddof=1)),
    Fault("ddof", "whiten: n instead of n - 1", f.whiten, population_spread),
    # off by one
    Fault("off by one", "returns leave the own reward out", f.step_returns, without_own_reward),
    Fault("off by one", "returns discount the own reward", f.step_returns, discounted_once_more),
    Fault(
        "off by one",
        "time is the order of rows",
        f.step_returns,
        in_order_of_rows,
        (PROPERTIES,),  # the reference cases keep their rows in order
    ),
    Fault("off by one", "contexts one state deeper", f.context_partition, one_context_deeper),
    Fault("off by one", "early steps have deep contexts", f.context_partition, early_steps_wrap),
    Fault(
        "off by one",
        "level weights k + 2 instead of k + 1",
        f.level_weights,
        of_first(lambda levels: [k + 1 for k in levels]),
    ),
    Fault(
        "off by one",
        "the last token discounted too",
        f.token_returns,
        last_token_not_counted,
        (GOLDEN,),  # token returns serve the published form alone
    ),
    Fault("off by one", "margin over the worst", f.top_margin, third_best),
    # weights
    Fault(
        "weights",
        "every row is an entry",
        f.trajectory_weights,
        of_result(np.ones_like),
        (PROPERTIES,),  # the published code weighs rows or takes the first
    ),
    Fault(
        "weights",
        "every row is an entry, whatever was asked",
        episode.entry_weights,
        of_result(np.ones_like),
    ),
    Fault(
        "weights",
        "weights are not looked at",
        f.normalise,
        with_options(weights=None),
        BOTH,
    ),
    Fault("weights", "all levels weigh alike", f.level_weights, of_result(np.ones_like)),
    Fault("weights", "levels alone count too", f.level_contributions, all_levels_count),
    Fault("weights", "leave-one-out forgets n / (n - 1)", f.leave_one_out, mean_of_all),
    Fault(
        "weights", "successes are not amplified", f.amplified, with_options(alpha=1.0), (GOLDEN,)
    ),
    Fault(
        "weights",
        "leaves are not weighed",
        f.tree_values,
        with_options(weighting="none"),
        (GOLDEN,),
    ),
    Fault("weights", "the teacher's gap doubled", f.teacher_term, of_result(lambda x: 2 * x)),
    # mixing of groups
    Fault("mixing", "normalise over the batch", f.normalise, of_second(one_group)),
    Fault("mixing", "leave-one-out over the batch", f.leave_one_out, of_second(one_group)),
    Fault("mixing", "equal states of two tasks", f.exact_partition, of_second(one_group)),
    Fault("mixing", "similar states of two tasks", f.similarity_partition, of_second(one_group)),
    Fault("mixing", "hidden states of two tasks", f.cosine_partition, of_second(one_group)),
    Fault("mixing", "refining forgets what it refines", f.refine, of_first(one_group)),
    Fault("mixing", "scores summed over the batch", f.episode_scores, of_second(one_group)),
    Fault("mixing", "margins over the batch", f.top_margin, of_second(one_group)),
    # others
    Fault(
        "equality",
        "rounding is divided by epsilon",
        f.normalise,
        with_options(tolerance=None),
        (PROPERTIES,),
    ),
    Fault(
        "equality",
        "1, True and 1.0 are one state",
        f.anchor_key,
        lambda _: f.reference_anchor_key,
        (PROPERTIES,),
    ),
    Fault("sign", "the teacher's gap reversed", f.teacher_term, of_result(np.negative)),
    Fault(
        "sign", "valid actions are penalised", f.invalid_action_penalty, of_first(np.logical_not)
    ),
    Fault("comparison", "Q compares rows, not actions", f.q_advantage, as_mean_of_the_cluster),
    Fault(
        "comparison",
        "peers include the own action",
        f.different_peer_advantage,
        as_mean_of_the_cluster,
    ),
    Fault(
        "comparison", "A_S of penalised returns is 0", states.state_part, of_result(np.zeros_like)
    ),
)


def plant(monkeypatch: pytest.MonkeyPatch, right: Function, wrong: Function) -> int:
    """Put ``wrong`` wherever a module of agentrl holds ``right``; returns in how many places."""
    places = 0
    for name, module in list(sys.modules.items()):
        if name != "agentrl" and not name.startswith("agentrl."):
            continue
        for key, value in list(vars(module).items()):
            if value is right:
                monkeypatch.setattr(module, key, wrong)
                places += 1
    return places


def golden_is_red() -> bool:
    return any(check_file(path) for path in FILES)


def properties_are_red() -> bool:
    for check in INVARIANTS.values():
        for seed in SEEDS:
            try:
                check(seed)
            except Exception:  # a fault may also provoke an error, which is as red
                return True
    return False


RED: dict[str, Callable[[], bool]] = {GOLDEN: golden_is_red, PROPERTIES: properties_are_red}


def test_nothing_planted_is_green() -> None:
    assert not golden_is_red()
    assert not properties_are_red()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}: {fault.what}")
def test_a_planted_fault_turns_red(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plant(monkeypatch, fault.replaces, fault.plant(fault.replaces)) > 0
    for net in fault.seen_by:
        assert RED[net](), f"{net} did not notice: {fault.what}"


def test_each_of_the_four_kinds_is_noticed_by_both_nets() -> None:
    for kind in ("ddof", "off by one", "weights", "mixing"):
        assert sum(one.kind == kind and one.seen_by == BOTH for one in FAULTS) >= 3
