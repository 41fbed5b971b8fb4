from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import Group, StopReason
from agentrl.credit import GRPO, GiGPO
from agentrl.testing.episodes import (
    act,
    episode,
    failed_episode,
    group,
    random_groups,
    summary,
)

SEEDS = st.integers(0, 10**6)


def flat(values: Any) -> np.ndarray[Any, Any]:
    return np.array([x for one in values if one is not None for x in one])


def test_only_steps_from_a_shared_state_are_compared() -> None:
    # Both episodes pass "kitchen"; one then wins. "attic" is seen once.
    pair = group(
        "g",
        episode("win", ("kitchen", 0.0), ("attic", 1.0)),
        episode("lose", ("kitchen", 0.0)),
    )
    win, lose = GiGPO(discount=0.5).assign([pair]).step_advantages
    # episode part: +0.5 / -0.5;  returns at "kitchen": 0.5 and 0.0, mean 0.25
    assert win == (0.5 + 0.25, 0.5 + 0.0)
    assert lose == (-0.5 - 0.25,)


def test_revisits_of_a_state_are_compared_with_each_other() -> None:
    # One trajectory passes "s" twice: returns 0.5 and 1, the other once: 0. Mean 0.5.
    pair = group("g", episode("win", ("s", 0.0), ("s", 1.0)), episode("lose", ("s", 0.0)))
    result = GiGPO(discount=0.5).assign([pair])
    assert result.parts["step"] == ((0.0, 0.5), (-0.5,))
    assert result.groups["anchor"] == ((0, 0), (0,))


def test_mean_std_divides_both_parts_by_their_spread() -> None:
    # two entries 1 and 0: spread sqrt(1/2); at "s" the returns are 1 and 0 as well
    pair = group("g", episode("win", ("s", 1.0)), episode("lose", ("s", 0.0)))
    found = flat(GiGPO(normaliser="mean_std", epsilon=0.0).assign([pair]).step_advantages)
    np.testing.assert_allclose(found, [2 * 0.5 / np.sqrt(0.5), -2 * 0.5 / np.sqrt(0.5)])


def test_a_penalty_stays_at_its_step_and_the_parts_stay_centred() -> None:
    # Scores 1 and 0; the invalid step loses 0.2 in both parts, nothing travels back in time.
    pair = group(
        "g",
        episode("a", ("s", 0.0), act("t", 1.0, valid=False)),
        episode("b", ("s", 0.0), ("t", 0.0)),
    )
    result = GiGPO(discount=1.0, invalid_action_penalty=0.2).assign([pair])
    # one entry per trajectory: (1 + 0.8)/2 = 0.9 and 0; mean 0.45
    (a0, a1), (b0, b1) = (one or () for one in result.parts["episode"])
    np.testing.assert_allclose([a0, a1, b0, b1], [0.55, 0.35, -0.45, -0.45])
    assert abs((a0 + a1) / 2 + (b0 + b1) / 2) < 1e-12
    # returns at "s": 1, 0;  at "t": 1 - 0.2, 0
    (s0, s1), (t0, t1) = (one or () for one in result.parts["step"])
    np.testing.assert_allclose([s0, s1, t0, t1], [0.5, 0.4, -0.5, -0.4])


def test_long_episodes_weigh_no_more_than_short_ones() -> None:
    # Scores 1 (ten steps) and 0 (one step): mean 1/2 over trajectories, 10/11 over rows.
    long = episode("long", *[(f"s{k}", float(k == 9)) for k in range(10)])
    pair = group("g", long, episode("short", ("x", 0.0)))
    found = flat(GiGPO().assign([pair]).parts["episode"])
    np.testing.assert_allclose(found, [0.5] * 10 + [-0.5])
    rows = flat(GiGPO(entries="rows").assign([pair]).parts["episode"])
    np.testing.assert_allclose(rows, [1 / 11] * 10 + [-10 / 11])


def test_d2_a_single_survivor_gets_zero() -> None:
    seven_failed = [failed_episode(f"f{k}") for k in range(7)]
    lone = group("g", episode("survivor", ("s", 0.0), ("t", 10.0)), *seven_failed)
    for estimator in (GiGPO(), GiGPO(normaliser="mean_std"), GRPO()):
        result = estimator.assign([lone])
        assert result.step_advantages == ((0.0, 0.0), *[None] * 7)
        assert result.metrics["groups_of_one"] == 1
        assert result.metrics["trajectories_failed"] == 7


def test_d3_a_state_seen_once_keeps_the_episode_part_and_is_reported() -> None:
    pair = group("g", episode("a", ("x", 0.0), ("y", 1.0)), episode("b", ("z", 0.0), (None, 0.0)))
    result = GiGPO().assign([pair])
    assert flat(result.parts["step"]).tolist() == [0.0] * 4
    assert flat(result.step_advantages).tolist() == [0.5, 0.5, -0.5, -0.5]
    assert result.groups["anchor"] == ((0, 1), (2, -1))
    assert result.metrics["anchor_size_1_share"] == 1.0


def test_d5_a_trajectory_without_tokens_is_not_in_the_mean() -> None:
    nothing_sampled = episode("empty", act("s", 0.0, tokens=0))
    four = group(
        "g",
        *(episode(f"e{k}", ("s", reward)) for k, reward in enumerate((1.0, 0.0, 0.0))),
        nothing_sampled,
        episode("no steps", stop_reason=StopReason.MAX_TOKENS),
    )
    result = GiGPO(step_weight=0.0).assign([four])
    np.testing.assert_allclose(flat(result.step_advantages), [2 / 3, -1 / 3, -1 / 3])
    assert result.step_advantages[3:] == (None, None)


@pytest.mark.parametrize("rewards", [[1.0] * 8, [0.0] * 8, [0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2]])
@pytest.mark.parametrize("normaliser", ["mean", "mean_std"])
def test_d1_equal_rewards_give_exactly_zero(rewards: list[float], normaliser: Any) -> None:
    equal = group("g", *(episode(f"e{k}", ("s", 0.0), ("t", r)) for k, r in enumerate(rewards)))
    for estimator in (GiGPO(normaliser=normaliser), GRPO(normaliser=normaliser)):
        result = estimator.assign([equal])
        assert set(flat(result.step_advantages).tolist()) == {0.0}
        assert result.metrics["groups_equal"] == 1.0
        assert result.metrics["zero_advantage_share"] == 1.0


def test_steps_that_are_no_act_share_the_episode_part_only() -> None:
    pair = group(
        "g",
        episode("a", ("s", 0.0), summary(), ("s", 1.0)),
        episode("b", ("s", 0.0)),
    )
    result = GiGPO(discount=0.5).assign([pair])
    assert result.parts["episode"] == ((0.5, 0.5, 0.5), (-0.5,))
    # the summary does not discount: returns at "s" are 0.5, 1 and 0
    assert result.parts["step"] == ((0.0, 0.0, 0.5), (-0.5,))
    assert result.groups["anchor"] == ((0, -1, 0), (0,))


def test_d2_a_single_survivor_is_not_compared_with_itself_either() -> None:
    lone = [group("g", episode("a", ("s", 0.0), ("s", 1.0)), failed_episode("b"))]
    assert GiGPO().assign(lone).step_advantages == ((0.0, 0.0), None)
    assert GiGPO(singleton="raw", discount=0.0).assign(lone).step_advantages == ((0.5, 1.5), None)


def test_similar_anchors_can_be_compared() -> None:
    pair = group(
        "g",
        episode("a", ("you see a red apple on the table 1", 1.0)),
        episode("b", ("you see a red apple on the table 2", 0.0)),
    )
    assert flat(GiGPO().assign([pair]).parts["step"]).tolist() == [0.0, 0.0]
    assert flat(GiGPO(similarity=0.9).assign([pair]).parts["step"]).tolist() == [0.5, -0.5]


def test_similar_anchors_are_taken_by_trial_and_index_however_they_are_stored() -> None:
    # "abcd" ~ "abcx" ~ "abyx" at 0.7, but "abcd" and "abyx" are only 0.5 alike.
    three = group(
        "g",
        episode("a", ("abcd", 0.0)),
        episode("b", ("abcx", 0.0), ("abyx", 1.0)),
    )
    assert GiGPO(similarity=0.7).assign([three]).groups["anchor"] == ((0,), (0, 1))
    a, b = three.trajectories
    stored = replace(three, trajectories=(replace(b, steps=b.steps[::-1]), a))
    assert GiGPO(similarity=0.7).assign([stored]).groups["anchor"] == ((1, 0), (0,))


def slow_gigpo(
    groups: tuple[Group, ...], discount: float, weight: float, penalty: float, std: bool
) -> list[list[float] | None]:
    """GiGPO from its definition, with loops over steps and no arrays."""
    found: list[list[float] | None] = []

    def relative(x: float, entries: list[tuple[float, float]], members: list[float]) -> float:
        n = sum(w for _, w in entries)
        mean = sum(w * v for v, w in entries) / n
        if n < 1.5 or max(members) - min(members) <= 1e-6 * max(1.0, abs(mean)):
            return 0.0
        variance = sum(w * (v - mean) ** 2 for v, w in entries) / (n - 1)
        return (x - mean) / (variance**0.5 + 1e-6 if std else 1.0)

    for one in groups:
        scored = [t for t in one.trajectories if t.scored]
        value: dict[tuple[str, int], tuple[Any, float, float]] = {}
        entries: list[tuple[float, float]] = []
        for t in scored:
            score = sum(s.reward or 0.0 for s in t.steps)
            acts = [s for s in t.steps if s.kind == "act"]
            for s in t.steps:
                valid = s.result is None or s.result.action_valid
                p = 0.0 if valid else penalty
                later = [a for a in acts if a.index >= s.index]
                back = sum((a.reward or 0.0) * discount**k for k, a in enumerate(later)) - p
                anchor = s.anchor if s.kind == "act" else None
                value[t.id, s.index] = (anchor, score - p, back)
                entries.append((score - p, 1.0 / len(t.steps)))
        for t in one.trajectories:
            if not t.scored:
                found.append(None)
                continue
            row = []
            for s in t.steps:
                anchor, score, back = value[t.id, s.index]
                same = [b for a, _, b in value.values() if a == anchor and anchor is not None]
                advantage = relative(score, entries, [e for e, _ in entries])
                if anchor is not None and len(scored) > 1:
                    advantage += weight * relative(back, [(b, 1.0) for b in same], same)
                row.append(advantage)
            found.append(row)
    return found


@given(SEEDS, st.floats(0, 1), st.floats(0, 2), st.sampled_from([0.0, 0.1]), st.booleans())
def test_gigpo_agrees_with_a_loop(
    seed: int, discount: float, weight: float, penalty: float, std: bool
) -> None:
    groups = random_groups(random.Random(seed))
    estimator = GiGPO(
        discount=discount,
        step_weight=weight,
        invalid_action_penalty=penalty,
        normaliser="mean_std" if std else "mean",
    )
    found = estimator.assign(groups).step_advantages
    expected = slow_gigpo(groups, discount, weight, penalty, std)
    assert [one is None for one in found] == [one is None for one in expected]
    np.testing.assert_allclose(flat(found), flat(expected), atol=2e-5)


@given(SEEDS, st.sampled_from(["mean", "mean_std"]), st.sampled_from([0.0, 0.1]))
def test_without_step_weight_it_is_grpo(seed: int, normaliser: Any, penalty: float) -> None:
    groups = random_groups(random.Random(seed))
    one = GiGPO(step_weight=0.0, normaliser=normaliser, invalid_action_penalty=penalty)
    other = GRPO(normaliser=normaliser, invalid_action_penalty=penalty)
    assert one.assign(groups).step_advantages == other.assign(groups).step_advantages


@given(SEEDS)
def test_without_discount_only_immediate_rewards_are_compared(seed: int) -> None:
    groups = random_groups(random.Random(seed), odd=False)
    result = GiGPO(discount=0.0).assign(groups)
    by_label: dict[int, list[tuple[float, float]]] = {}
    for t, labels, parts in zip(
        [t for g in groups for t in g.trajectories],
        result.groups["anchor"],
        result.parts["step"],
        strict=True,
    ):
        for s, label, part in zip(t.steps, labels or (), parts or (), strict=True):
            by_label.setdefault(label, []).append((s.reward or 0.0, part))
    for members in by_label.values():
        mean = sum(reward for reward, _ in members) / len(members)
        for reward, part in members:
            assert abs(part - (reward - mean)) < 1e-12


@given(SEEDS, st.sampled_from([0.0, 0.1]))
def test_both_parts_are_centred(seed: int, penalty: float) -> None:
    groups = random_groups(random.Random(seed))
    result = GiGPO(invalid_action_penalty=penalty).assign(groups)
    position = 0
    for one in groups:
        size = len(one.trajectories)
        episode_parts = [p for p in result.parts["episode"][position : position + size] if p]
        assert abs(sum(sum(p) / len(p) for p in episode_parts)) < 1e-9
        assert abs(sum(map(sum, (p or () for p in result.parts["step"][position:][:size])))) < 1e-9
        position += size


@given(SEEDS, st.floats(-5, 5), st.floats(0.5, 4))
def test_scores_may_be_shifted_and_scaled(seed: int, shift: float, scale: float) -> None:
    # A constant added to every episode's last reward, so every score and return shifts alike.
    def with_rewards(change: Any) -> list[Group]:
        changed = []
        for one in groups:
            trajectories = []
            for t in one.trajectories:
                last = t.steps[-1]
                assert last.result is not None
                result = replace(last.result, reward=change(last.result.reward))
                trajectories.append(replace(t, steps=(*t.steps[:-1], replace(last, result=result))))
            changed.append(replace(one, trajectories=tuple(trajectories)))
        return changed

    groups = random_groups(random.Random(seed), odd=False)
    estimator = GiGPO(discount=1.0)
    base = flat(estimator.assign(groups).step_advantages)
    shifted = flat(estimator.assign(with_rewards(lambda r: r + shift)).step_advantages)
    np.testing.assert_allclose(shifted, base, atol=1e-9)
    scaled = flat(estimator.assign(with_rewards(lambda r: r * scale)).step_advantages)
    np.testing.assert_allclose(scaled, scale * base, atol=1e-9)


def test_reference_mode_keeps_the_published_choices() -> None:
    long = episode("long", (1, 0.0), (True, 1.0))
    groups = [group("g", long, episode("short", (1.0, 0.0))), group("h", episode("x", ("s", 3.0)))]
    result = GiGPO(reference=True, discount=1.0).assign(groups)
    # rows: mean 2/3;  1 == True == 1.0: one step group with returns 1, 1, 0;  a lone row keeps 3
    np.testing.assert_allclose(flat(result.parts["episode"]), [1 / 3, 1 / 3, -2 / 3, 3.0])
    np.testing.assert_allclose(flat(result.parts["step"]), [1 / 3, 1 / 3, -2 / 3, 0.0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"discount": 1.1}, r"GiGPO: discount must be in \[0, 1\], got 1.1"),
        ({"discount": float("nan")}, "discount"),
        ({"step_weight": -1.0}, "step_weight"),
        ({"invalid_action_penalty": -0.1}, "invalid_action_penalty"),
        ({"normaliser": "meanstd"}, "normaliser must be one of mean, mean_std; got 'meanstd'"),
        ({"entries": "tokens"}, "entries must be one of trajectories, rows"),
        ({"singleton": "one"}, "singleton must be one of zero, raw"),
        ({"similarity": 1.0}, "similarity must be strictly"),
    ],
)
def test_wrong_options_are_refused_when_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GiGPO(**options)
