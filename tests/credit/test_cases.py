"""Cases from real systems, for every estimator by name: rewards missing, equal, alone, unlike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from agentrl.core.errors import DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group, StopReason, Trajectory
from agentrl.credit import GRPO, GiGPO
from agentrl.credit.diagnostics import diagnose
from agentrl.learn.rows import batches_from_groups
from agentrl.registry import make, names
from agentrl.testing.contracts.credit import annotated_for
from agentrl.testing.episodes import act, episode, failed_episode, group

NAMES = names("credit")
BATCH = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")


def estimator_of(name: str) -> CreditEstimator:
    options = {"terms": [{"name": "grpo"}, {"name": "hgpo"}]} if name == "combined" else {}
    made: CreditEstimator = make("credit", name, options)
    return made


def assigned(name: str, groups: Sequence[Group]) -> CreditResult:
    estimator = estimator_of(name)
    return estimator.assign(annotated_for(estimator, groups))


def rewarded(name: str, reward: float | None, *, steps: int = 2) -> Trajectory:
    """An episode through one corridor of states; the last step is rewarded."""
    walked = [(f"room {k}", 0.0) for k in range(steps - 1)]
    return episode(name, *walked, ("door", reward))


def outcome(name: str, reward: float | None) -> Trajectory:
    """What the runtime makes of a reward: NaN and infinity are failures of the environment."""
    if reward is not None and not math.isfinite(reward):
        return failed_episode(name, ("room 0", 0.0), ("door", reward))
    return rewarded(name, reward)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "rewards",
    [
        (1.0, math.nan, 0.0, None),
        (math.nan, 1.0, None, 0.0),
        (1.0, 0.0, math.inf, -math.inf),
        (None, None, 1.0, 0.0),
        (math.nan, math.nan, 0.0, 1.0),
    ],
)
def test_c1_what_cannot_be_scored_is_left_out_and_never_zero(
    name: str, rewards: tuple[float | None, ...]
) -> None:
    played = [outcome(f"e{k}", reward) for k, reward in enumerate(rewards)]
    scored = [one for one in played if one.scored]
    result = assigned(name, [group("g", *played)])
    alone = assigned(name, [group("g", *scored)])
    kept = [row for row in result.step_advantages if row is not None]
    assert kept == list(alone.step_advantages)
    assert [row is None for row in result.step_advantages] == [not one.scored for one in played]
    assert all(math.isfinite(x) for row in kept for x in row)


@pytest.mark.parametrize("name", NAMES)
def test_c1_when_nothing_can_be_scored_nobody_takes_part(name: str) -> None:
    result = assigned(name, [group("g", outcome("a", math.nan), outcome("b", None))])
    assert list(result.step_advantages) == [None, None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "rewards",
    [
        (1.0,) * 8,
        (0.0,) * 8,
        (-1.0,) * 2,
        (0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2),
        (0.7, 0.1 * 7, 0.7 + 1e-9),
        (10.0, 10.0 + 1e-7, 10.0 - 1e-7),
        (1e6, 1e6 + 0.5),
        (1.0 / 3.0, 1.0 - 2.0 / 3.0),
    ],
)
def test_d1_equal_rewards_give_exactly_zero_and_are_counted(
    name: str, rewards: tuple[float, ...]
) -> None:
    groups = [group("g", *(rewarded(f"e{k}", x) for k, x in enumerate(rewards)))]
    estimator = estimator_of(name)
    groups = list(annotated_for(estimator, groups))
    result = estimator.assign(groups)
    assert all(x == 0.0 for row in result.step_advantages for x in row or ())
    found = diagnose(groups, result)
    assert found["groups_equal"] == 1
    assert found["zero_advantage_share"] == 1.0
    if result.token_advantages is None:
        assert (found["without_signal_share"], found["groups_silent"]) == (1.0, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left_out", [math.nan, None])
@pytest.mark.parametrize("reward", [0.0, 1.0, 10.0, -3.0])
def test_d2_a_single_survivor_has_no_baseline(
    name: str, left_out: float | None, reward: float
) -> None:
    if name in BATCH:
        return  # alone in the batch, too: the next test
    gone = [outcome(f"x{k}", left_out) for k in range(7)]
    lone = group("g", rewarded("survivor", reward), *gone)
    others = group("h", rewarded("a", 1.0), rewarded("b", 0.0))
    result = assigned(name, [lone, others])
    assert list(result.step_advantages[:8]) == [(0.0, 0.0), *[None] * 7]
    assert result.metrics["groups_of_one"] == 1


@pytest.mark.parametrize("name", BATCH)
def test_d2_a_batch_of_one_episode_is_finite(name: str) -> None:
    result = assigned(name, [group("g", rewarded("survivor", 10.0), outcome("x", math.nan))])
    assert result.step_advantages[0] == (0.0, 0.0)
    assert result.step_advantages[1] is None


@pytest.mark.parametrize(
    ("name", "part", "partition"),
    [
        ("gigpo", "step", "anchor"),
        ("opid", "step", "anchor"),
        ("spa", "step", "anchor"),
        ("bipace", "step", "cluster"),
        ("hgpo", "level_1", "context_1"),
    ],
)
def test_d3_a_state_seen_once_keeps_the_episode_part_and_is_reported(
    name: str, part: str, partition: str
) -> None:
    groups = [
        group(
            "g",
            episode("won", ("hall", 0.0), ("kitchen", 1.0)),
            episode("lost", ("cellar", 0.0), ("attic", 0.0), ("garden", 0.0)),
        )
    ]
    # the sample of hidden states points somewhere: only equal directions are one state here
    estimator = make("credit", name, {"radius": 0.0} if name == "bipace" else {})
    result = estimator.assign(annotated_for(estimator, groups))
    assert all(x == 0.0 for row in result.parts[part] for x in row or ())
    assert all(x != 0.0 for row in result.parts["episode"] for x in row or ())
    assert [[*map(_sign, row or ())] for row in result.step_advantages] == [[1, 1], [-1, -1, -1]]
    assert result.metrics[f"{partition}_size_1_share"] == 1.0


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["no step", "no token", "failed at once"])
def test_d5_a_trajectory_without_rows_is_in_no_mean(name: str, how: str) -> None:
    empty = {
        "no step": episode("x", stop_reason=StopReason.MAX_TOKENS),
        "no token": episode("x", act("room 0", 1.0, tokens=0), act("door", 9.0, tokens=0)),
        "failed at once": failed_episode("x"),
    }[how]
    played = [rewarded("a", 1.0), rewarded("b", 0.0), rewarded("c", 0.0)]
    with_it = assigned(name, [group("g", *played, empty)])
    without = assigned(name, [group("g", *played)])
    assert list(with_it.step_advantages) == [*without.step_advantages, None]


@pytest.mark.parametrize("lengths", [(1, 10), (6, 14), (3, 3)])
def test_d6_an_episode_weighs_the_same_however_many_steps_it_took(
    lengths: tuple[int, int],
) -> None:
    short, long = lengths
    groups = [group("g", rewarded("a", 1.0, steps=short), rewarded("b", 0.0, steps=long))]
    for estimator in (GRPO(normaliser="mean"), GiGPO(step_weight=0.0)):
        result = estimator.assign(groups)
        (batch,) = batches_from_groups(
            groups, result, updates=1, trajectory_weighting="equal", batch_id="b"
        )
        pull: dict[str, float] = {}
        for row in batch.rows:
            each = [
                row.weight * a for a, m in zip(row.advantages, row.action_mask, strict=True) if m
            ]
            pull[row.trajectory_id] = pull.get(row.trajectory_id, 0.0) + sum(each)
        assert pull["g/a"] == pytest.approx(-pull["g/b"])


@pytest.mark.parametrize("name", NAMES)
def test_d8_padding_never_reaches_a_mean(name: str) -> None:
    """A copy of a trajectory is refused; one that sampled nothing has no part and no row."""
    played = [rewarded(f"e{k}", float(k == 0)) for k in range(7)]
    with pytest.raises(DataError, match="never pad a batch before credit"):
        assigned(name, [group("g", *played, played[0])])
    padded = group("g", *played, episode("pad", act("room 0", 0.0, tokens=0)))
    result = assigned(name, [padded])
    without = assigned(name, [group("g", *played)])
    assert list(result.step_advantages) == [*without.step_advantages, None]
    batches: Any = batches_from_groups(
        [padded], result, updates=1, trajectory_weighting="equal", batch_id="b"
    )
    assert {row.trajectory_id for one in batches for row in one.rows} == {
        f"g/e{k}" for k in range(7)
    }
