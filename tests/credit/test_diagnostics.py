"""Diagnostics: the same numbers for every estimator, from the groups and the result alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit import GRPO, HGPO, OPID, Combined, GiGPO, annotate, columns_of
from agentrl.credit.diagnostics import diagnose, measures, with_diagnostics
from agentrl.registry import make, names
from agentrl.testing.episodes import act, episode, failed_episode, group, random_groups

NO_EXTRAS = [name for name in names("credit") if name not in ("bipace", "combined")]


@dataclass(frozen=True)
class Foreign:
    """An estimator of somebody else: it knows nothing of agentrl.credit and gives no metrics."""

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Each step its reward."""
        return CreditResult(
            [
                tuple(step.reward or 0.0 for step in one.steps) if one.scored else None
                for each in groups
                for one in each.trajectories
            ]
        )


def test_every_number_by_hand() -> None:
    groups = [
        group(
            "g",
            episode("win", ("kitchen", 0.0), ("attic", 1.0)),
            episode("lose", ("kitchen", 0.0), act("cellar", valid=False)),
            failed_episode("crash", ("kitchen", 0.0)),
            episode("unscored", ("kitchen", None)),
        ),
        group("even", episode("a", ("hall", 1.0)), episode("b", ("hall", 1.0))),
        group("one", episode("a", ("hall", 1.0))),
        group("none", failed_episode("a")),
    ]
    found = diagnose(groups, GiGPO(discount=0.5).assign(groups))
    # g: episode +-0.5 on four steps; returns at kitchen 0.5 and 0: step +-0.25 on two of seven
    assert found == pytest.approx(
        {
            "groups": 4,
            "groups_empty": 1,
            "groups_of_one": 1,
            "groups_equal": 1,
            "groups_silent": 1,
            "group_size_min": 1,
            "group_size_mean": 5 / 3,
            "group_size_max": 2,
            "trajectories": 5,
            "trajectories_failed": 2,
            "trajectories_unscored": 1,
            "trajectories_silent": 3,
            "steps": 7,
            "zero_advantage_share": 3 / 7,
            "without_signal_share": 3 / 7,
            "valid_action_share": 6 / 7,
            "episode_abs_mean": 2 / 7,
            "episode_share": 0.8,
            "episode_zero_share": 3 / 7,
            "step_abs_mean": 0.5 / 7,
            "step_share": 0.2,
            "step_zero_share": 5 / 7,
            "anchor_clusters": 5,
            "anchor_size_mean": 7 / 5,
            "anchor_size_max": 2,
            "anchor_size_1_share": 3 / 7,
            "anchor_size_2_to_4_share": 4 / 7,
            "anchor_size_5_to_16_share": 0.0,
            "anchor_size_over_16_share": 0.0,
        }
    )


def test_what_is_added_to_tokens_is_signal_and_a_component() -> None:
    taught = annotate(act("s", 1.0), episode_teacher_logprobs=(-0.5, -1.5))
    groups = [group("g", episode("a", taught), episode("b", ("s", 1.0)))]
    found = diagnose(groups, OPID(episode_skill_weight=0.1).assign(groups))
    # equal scores: no step advantage; tokens of one step: 0.1 * (+0.5, -0.5)
    assert found["zero_advantage_share"] == 1.0
    assert found["without_signal_share"] == 0.5
    assert found["tokens_abs_mean"] == pytest.approx(0.05 / 2)
    assert (found["tokens_share"], found["episode_share"]) == (1.0, 0.0)
    assert (found["trajectories_silent"], found["groups_silent"]) == (1, 0)


@pytest.mark.parametrize("name", NO_EXTRAS)
@pytest.mark.parametrize("seed", range(3))
def test_an_estimators_own_metrics_say_the_same(name: str, seed: int) -> None:
    # without odd ones there are no summaries, which mmpo would want scored
    groups = _judged(random_groups(random.Random(seed), odd=name != "mmpo"))
    result = make("credit", name).assign(groups)
    found = diagnose(groups, result)
    shared = result.metrics.keys() & found.keys()
    assert len(shared) >= 14
    assert {key: result.metrics[key] for key in shared} == pytest.approx(
        {key: found[key] for key in shared}
    )


def _judged(groups: Sequence[Group]) -> list[Group]:
    return [
        replace(
            one,
            trajectories=tuple(
                replace(t, steps=tuple(annotate(s, votes=(1,), progress=0.5) for s in t.steps))
                for t in one.trajectories
            ),
        )
        for one in groups
    ]


def test_an_estimator_of_somebody_else_has_them_too() -> None:
    groups = [group("g", episode("a", ("s", 1.0), ("t", 0.0)), failed_episode("b"))]
    result = with_diagnostics(groups, Foreign().assign(groups))
    assert result.metrics["without_signal_share"] == 0.5
    assert result.metrics["groups_of_one"] == 1
    assert result.step_advantages == Foreign().assign(groups).step_advantages


def test_of_a_sum_they_are_those_of_the_sum_and_said_once() -> None:
    pair = [group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0)))]
    metrics = Combined(((GRPO(normaliser="mean"), 1.0), (HGPO(), -1.0))).assign(pair).metrics
    assert metrics["zero_advantage_share"] == 1.0  # +-0.5 and their opposite
    assert metrics["grpo.episode_abs_mean"] == 0.5
    assert metrics["hgpo.context_1_clusters"] == 1
    assert not [key for key in metrics if key.endswith(".groups") or key.endswith(".steps")]
    loop = Combined(({"name": "grpo"}, {"name": "loop"})).assign(pair).metrics
    assert loop["loop.filtered_share"] == 0.0


def test_misaligned_credit_is_refused() -> None:
    pair = [group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0)))]
    with pytest.raises(DataError, match="credit is for 1 trajectories, but the groups hold 2"):
        diagnose(pair, CreditResult([(0.0,)]))
    with pytest.raises(DataError, match=r"'g/b' of group 'g' has 2 values for 1 steps"):
        diagnose(pair, CreditResult([(0.0,), (0.0, 0.0)]))


@given(st.integers(0, 10**6))
def test_they_are_finite_and_shares_are_shares(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    found = diagnose(groups, GiGPO().assign(groups))
    assert all(math.isfinite(value) for value in found.values())
    assert all(0.0 <= found[key] <= 1.0 for key in found if key.endswith("_share"))
    sizes = [found[key] for key in found if key.startswith("anchor_size_") and "share" in key]
    assert sum(sizes) == pytest.approx(1.0) or not found["steps"]
    turned = groups[::-1]
    assert diagnose(turned, GiGPO().assign(turned)) == pytest.approx(found)


def test_nothing_gives_zeros() -> None:
    assert diagnose((), CreditResult(()))["steps"] == 0
    columns = columns_of(())
    assert measures(columns.reward, {}, {}, columns.act)["without_signal_share"] == 0.0
