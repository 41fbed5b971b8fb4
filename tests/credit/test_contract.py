from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentrl.core.errors import DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit import (
    GRPO,
    HGPO,
    LOOP,
    MMPO,
    OPID,
    R3L,
    RLOO,
    SEED,
    SPA,
    BiPACE,
    Combined,
    DrGRPO,
    GiGPO,
    HiMAC,
    PassAtK,
    REINFORCEPlusPlus,
    REINFORCEPlusPlusBaseline,
    RLAnything,
    TreeRL,
)
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.credit import CHECKS

ESTIMATORS: list[CreditEstimator] = [
    GRPO(),
    GRPO(normaliser="mean", invalid_action_penalty=0.1),
    GiGPO(),
    GiGPO(discount=0.5, normaliser="mean_std", invalid_action_penalty=0.1),
    GiGPO(step_weight=0.0, entries="rows"),
    GiGPO(similarity=0.9),
    DrGRPO(),
    RLOO(),
    REINFORCEPlusPlus(),
    REINFORCEPlusPlusBaseline(),
    PassAtK(),
    PassAtK(normaliser="mean", invalid_action_penalty=0.1),
    LOOP(),
    LOOP(baseline="mean", divide=True),
    HGPO(),
    HGPO(base_group=False, normaliser="mean_std", history_length=4),
    BiPACE(),
    BiPACE(comparison="different_peer", action="first_tokens"),
    BiPACE(comparison="mean", centroid="first", radius=0.2),
    R3L(),
    R3L(baseline="soft"),
    TreeRL(),
    TreeRL(centring="step", weighting="sqrt", add_state=True),
    RLAnything(),
    SPA(),
    SPA(compare="index", grounding=0.1),
    OPID(),
    OPID(step_weight=1.0, normalise_teacher=True),
    SEED(),
    HiMAC(),
    MMPO(),
    Combined(({"name": "grpo", "weight": 0.5}, {"name": "gigpo", "options": {"discount": 0.5}})),
    Combined(((HGPO(), 1.0), (BiPACE(), 0.5), (OPID(), 1.0))),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_every_estimator_keeps_the_contract(estimator: CreditEstimator) -> None:
    assert_contract(CHECKS, estimator)


def _repaired(one: Group) -> Group:
    """The group with every trajectory made one of its task."""
    task = one.task.id
    return replace(one, trajectories=tuple(replace(t, task_id=task) for t in one.trajectories))


@dataclass
class Spoiled:
    """An estimator with one planted fault."""

    fault: str
    calls: int = 0

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Credit of GiGPO, spoiled."""
        self.calls += 1
        if self.fault == "careless":
            return GiGPO().assign([_repaired(one) for one in groups])
        try:
            result = GiGPO().assign(groups)
        except DataError as error:
            raise DataError("bad data" if self.fault == "nameless" else str(error)) from None
        if self.fault == "nameless":
            return result
        trajectories = [one for each in groups for one in each.trajectories]

        def change(value: Any) -> CreditResult:
            rows = [
                None if row is None else [value(x, one) for x in row]
                for row, one in zip(result.step_advantages, trajectories, strict=True)
            ]
            return replace(result, step_advantages=rows)

        match self.fault:
            case "zero for none":
                rows = [row or (0.0,) for row in result.step_advantages]
                return replace(result, step_advantages=rows)
            case "forgets one":
                return replace(result, step_advantages=result.step_advantages[:-1])
            case "noise":
                return change(lambda x, one: x + 1e-7)
            case "state":
                return change(lambda x, one: x * self.calls)
            case "ids":
                return change(lambda x, one: x * (1 + len(one.id)))
            case "sign":
                return change(lambda x, one: -x)
            case "batch":
                return change(lambda x, one: x * len(groups))
            case "order":
                return change(lambda x, one: x * (1 + one.trial + trajectories.index(one)))
            case "nan metric":
                return replace(result, metrics={"x": float("nan")})
        raise AssertionError(self.fault)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("zero for none", "expected None"),
        ("forgets one", "entries for"),
        ("noise", "exactly 0"),
        ("state", "two calls on the same groups differ"),
        ("ids", "only ids changed"),
        ("sign", "check the sign"),
        ("batch", "another group in the batch"),
        ("order", "the trajectories' order"),
        ("nan metric", "metric 'x' is nan"),
        ("careless", "a trajectory of another task was accepted"),
        ("nameless", "a NaN reward is refused without naming 'g/b': bad data"),
    ],
)
def test_the_contract_finds_planted_faults(fault: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_contract(CHECKS, Spoiled(fault))
