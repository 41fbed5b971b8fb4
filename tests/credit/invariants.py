"""What must hold of credit for any groups: plain functions of a seed, each raises if it does not.

``test_invariants.py`` draws seeds for them, ``test_planted_faults.py`` shows that they go red.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group, Step, Trajectory
from agentrl.credit import (
    GRPO,
    HGPO,
    LOOP,
    OPID,
    RLOO,
    BiPACE,
    DrGRPO,
    GiGPO,
    PassAtK,
    REINFORCEPlusPlus,
    TreeRL,
    annotate,
)
from agentrl.credit import functional as f
from agentrl.registry import make, names
from agentrl.testing.contracts.credit import annotated_for
from agentrl.testing.episodes import act, episode, group, random_groups

Advantages = Mapping[tuple[str, int], float | None]

SIMPLE: dict[str, CreditEstimator] = {
    name: make("credit", name) for name in names("credit") if name != "combined"
}
SIMPLE["combined"] = make("credit", "combined", {"terms": [{"name": "hgpo"}, {"name": "spa"}]})
SIMPLE["gigpo_similar"] = GiGPO(similarity=0.9)
SIMPLE["bipace_peers"] = BiPACE(comparison="different_peer", radius=0.2)


def flat(values: Any) -> npt.NDArray[np.float64]:
    return np.array([x for one in values if one is not None for x in one], dtype=np.float64)


def groups_of(seed: int, *, odd: bool = True) -> tuple[Group, ...]:
    return random_groups(random.Random(seed), odd=odd)


def by_step(groups: Sequence[Group], result: CreditResult) -> Advantages:
    """The advantage of each step by trajectory id and index, wherever it was stored."""
    played = [one for each in groups for one in each.trajectories]
    found: dict[tuple[str, int], float | None] = {}
    for one, row in zip(played, result.step_advantages, strict=True):
        if row is None:
            found[one.id, -1] = None
        for step, value in zip(one.steps, row or (), strict=row is not None):
            found[one.id, step.index] = value
    return found


def close(one: Advantages, other: Advantages, tolerance: float = 1e-9) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        again = other[key]
        if value is None or again is None:
            assert value is again, key
        else:
            assert abs(value - again) <= tolerance, (key, value, again)


def assigned(estimator: CreditEstimator, groups: Sequence[Group]) -> CreditResult:
    return estimator.assign(annotated_for(estimator, groups))


def with_scores(groups: Sequence[Group], change: Callable[[float], float]) -> list[Group]:
    """The groups with the reward of each trajectory's last step changed."""

    def changed(one: Trajectory) -> Trajectory:
        last = one.steps[-1]
        assert last.result is not None
        assert last.result.reward is not None
        reward = change(last.result.reward)
        last = replace(last, result=replace(last.result, reward=reward))
        return replace(one, steps=(*one.steps[:-1], last))

    return [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in groups]


def rows_may_come_in_any_order(seed: int) -> None:
    """Permuting groups, trajectories and records permutes the output: time is the step's index."""
    rng = random.Random(seed)
    groups = groups_of(seed)

    def shuffled(one: Trajectory) -> Trajectory:
        return replace(one, steps=tuple(rng.sample(one.steps, len(one.steps))))

    turned = [
        replace(g, trajectories=tuple(rng.sample(g.trajectories, len(g.trajectories))))
        for g in rng.sample(groups, len(groups))
    ]
    turned = [replace(g, trajectories=tuple(map(shuffled, g.trajectories))) for g in turned]
    for name, estimator in SIMPLE.items():
        one = by_step(groups, assigned(estimator, groups))
        other = by_step(turned, assigned(estimator, turned))
        try:
            close(one, other)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def ids_are_only_names(seed: int) -> None:
    """Relabelling groups, tasks and trajectories changes nothing."""
    groups = groups_of(seed)

    def renamed(number: int, one: Group) -> Group:
        task = replace(one.task, id=f"task{9 - number}")
        trajectories = tuple(
            replace(t, id=f"z{9 - number}/{9 - k}", group_id=f"z{9 - number}", task_id=task.id)
            for k, t in enumerate(one.trajectories)
        )
        return replace(one, id=f"z{9 - number}", task=task, trajectories=trajectories)

    others = [renamed(number, one) for number, one in enumerate(groups)]
    for name, estimator in SIMPLE.items():
        one, other = assigned(estimator, groups), assigned(estimator, others)
        np.testing.assert_allclose(
            flat(one.step_advantages), flat(other.step_advantages), atol=1e-9, err_msg=name
        )


def mean_parts_sum_to_zero(seed: int) -> None:
    """Without division every comparison is centred: over rows where each row is an entry."""
    groups = groups_of(seed)
    for estimator in (
        GiGPO(entries="rows", invalid_action_penalty=0.1),
        GRPO(normaliser="mean", entries="rows"),
    ):
        result = estimator.assign(groups)
        place = 0
        for one in groups:
            rows = slice(place, place + len(one.trajectories))
            place = rows.stop
            for name, part in result.parts.items():
                assert abs(flat(part[rows]).sum()) < 1e-9, (estimator, name)
    per_trajectory: tuple[CreditEstimator, ...] = (DrGRPO(), RLOO(), LOOP(threshold=0.0))
    for one_each in per_trajectory:
        result = one_each.assign(groups)
        place = 0
        for one in groups:
            rows = slice(place, place + len(one.trajectories))
            place = rows.stop
            each = [row[0] for row in result.step_advantages[rows] if row]
            assert abs(sum(each)) < 1e-9, one_each
    result = GiGPO().assign(groups)
    labels, step = flat(result.groups["anchor"]), flat(result.parts["step"])
    for label in set(labels[labels >= 0].tolist()):
        assert abs(step[labels == label].sum()) < 1e-9


MEAN: tuple[CreditEstimator, ...] = (
    DrGRPO(),
    GRPO(normaliser="mean"),
    RLOO(),
    LOOP(threshold=0.0),
    GiGPO(discount=1.0),
    HGPO(discount=1.0),
    TreeRL(),
)
MEAN_STD: tuple[CreditEstimator, ...] = (
    GRPO(),
    GiGPO(normaliser="mean_std", discount=1.0),
    HGPO(normaliser="mean_std", discount=1.0),
    PassAtK(),
)


def shift_leaves_mean_norm(seed: int) -> None:
    """A constant on every score (and so on every undiscounted return) changes nothing."""
    groups = groups_of(seed, odd=False)
    shift = random.Random(seed).uniform(-5.0, 5.0)
    for estimator in MEAN:
        one = flat(estimator.assign(groups).step_advantages)
        other = estimator.assign(with_scores(groups, lambda reward: reward + shift))
        np.testing.assert_allclose(
            flat(other.step_advantages), one, atol=1e-9, err_msg=str(estimator)
        )


def scale_scales_mean_norm(seed: int) -> None:
    """Rewards times c give advantages times c without division, the same (almost) with it."""
    groups = groups_of(seed, odd=False)
    scale = random.Random(seed).uniform(0.5, 4.0)
    scaled = with_scores(groups, lambda reward: scale * reward)
    for estimator in MEAN:
        one = scale * flat(estimator.assign(groups).step_advantages)
        other = flat(estimator.assign(scaled).step_advantages)
        np.testing.assert_allclose(other, one, atol=1e-9, err_msg=str(estimator))
    for estimator in MEAN_STD:
        one = flat(estimator.assign(groups).step_advantages)
        other = flat(estimator.assign(scaled).step_advantages)
        np.testing.assert_allclose(other, one, atol=2e-5, err_msg=str(estimator))


def hgpo_without_history_is_level_one(seed: int) -> None:
    """HGPO with K = 0 is the level-1 comparison with ddof 0."""
    groups = groups_of(seed)
    std = HGPO(history_length=0, base_group=False, normaliser="mean_std").assign(groups)
    mean = HGPO(history_length=0, base_group=False).assign(groups)
    gigpo = GiGPO().assign(groups)
    np.testing.assert_allclose(flat(mean.step_advantages), flat(gigpo.parts["step"]), atol=1e-12)
    labels, centred = flat(mean.groups["context_1"]), flat(mean.step_advantages)
    for label in set(labels[labels >= 0].tolist()):
        members = centred[labels == label]
        spread = float(np.sqrt((members**2).mean()))  # ddof 0
        expected = members / (spread + 1e-6)
        np.testing.assert_allclose(flat(std.step_advantages)[labels == label], expected, atol=1e-9)


def bipace_of_exact_states_is_gigpo(seed: int) -> None:
    """Radius 0, one-hot states and the plain comparison: GiGPO's step part."""
    groups = groups_of(seed)
    keys = [step.anchor for g in groups for t in g.trajectories for step in t.steps]
    known: dict[Any, int] = {}
    for place, anchor in enumerate(keys):
        known.setdefault(place if anchor is None else anchor, len(known))
    count = iter(range(len(keys)))

    def seen(step: Step) -> Step:
        place = next(count)
        position = known[place if step.anchor is None else step.anchor]
        return annotate(step, hidden=tuple(float(k == position) for k in range(len(known))))

    hot = [
        replace(
            g,
            trajectories=tuple(
                replace(t, steps=tuple(seen(step) for step in t.steps)) for t in g.trajectories
            ),
        )
        for g in groups
    ]
    one = BiPACE(radius=0.0, comparison="mean").assign(hot)
    np.testing.assert_allclose(
        flat(one.parts["step"]), flat(GiGPO().assign(groups).parts["step"]), atol=1e-9
    )


def weight_zero_is_grpo(seed: int) -> None:
    """GiGPO and OPID without their own weights are GRPO."""
    groups = groups_of(seed)
    grpo = GRPO(normaliser="mean").assign(groups).step_advantages
    assert GiGPO(step_weight=0.0).assign(groups).step_advantages == grpo
    opid = OPID(episode_skill_weight=0.0, step_skill_weight=0.0).assign(groups)
    assert opid.step_advantages == grpo
    assert not any(any(step) for row in opid.token_advantages or () for step in row or ())


def no_discount_uses_immediate_rewards(seed: int) -> None:
    """With discount 0 a step is compared by its own reward."""
    groups = groups_of(seed)
    result = GiGPO(discount=0.0).assign(groups)
    played = [t for g in groups for t in g.trajectories]
    rows = [t for t, row in zip(played, result.step_advantages, strict=True) if row is not None]
    rewards = np.array([step.reward for t in rows for step in t.steps])
    labels, step = flat(result.groups["anchor"]), flat(result.parts["step"])
    alone = [
        sum(t.scored for t in g.trajectories) == 1
        for g in groups
        for t in g.trajectories
        if t.scored
        for _ in t.steps
    ]
    for label in set(labels[labels >= 0].tolist()):
        members = labels == label
        if not np.array(alone)[members].any():
            expected = rewards[members] - rewards[members].mean()
            np.testing.assert_allclose(step[members], expected, atol=1e-9)


def leave_one_out_is_mean_norm_scaled(seed: int) -> None:
    """RLOO and LOOP are n / (n - 1) times Dr.GRPO; a tree without branches is RLOO."""
    groups = groups_of(seed)
    centred, others = DrGRPO().assign(groups), RLOO().assign(groups)
    place = 0
    for one in groups:
        n = sum(t.scored for t in one.trajectories)
        rows = slice(place, place + len(one.trajectories))
        place = rows.stop
        factor = n / (n - 1) if n > 1 else 1.0
        np.testing.assert_allclose(
            flat(others.step_advantages[rows]), factor * flat(centred.step_advantages[rows])
        )
    for estimator in (LOOP(threshold=0.0), TreeRL()):
        same = estimator.assign(groups).step_advantages
        np.testing.assert_allclose(flat(same), flat(others.step_advantages), atol=1e-9)


def groups_do_not_mix(seed: int) -> None:
    """Each group gets alone what it gets beside others."""
    groups = groups_of(seed)
    for name, estimator in SIMPLE.items():
        if getattr(estimator, "scope", "group") == "batch":
            continue
        together = flat(assigned(estimator, groups).step_advantages)
        apart = [flat(assigned(estimator, [one]).step_advantages) for one in groups]
        np.testing.assert_allclose(np.concatenate(apart), together, atol=1e-9, err_msg=name)


def equal_is_equal(seed: int) -> None:
    """Scores that differ by rounding alone give exactly 0, divided or not."""
    rng = random.Random(seed)
    score = rng.choice((0.1, 0.3, 1.0, 10.0))
    noise = [score + rng.choice((-1, 0, 1)) * 1e-12 for _ in range(rng.randint(2, 8))]
    one = group("g", *(episode(f"e{k}", ("s", 0.0), ("t", x)) for k, x in enumerate(noise)))
    for name, estimator in SIMPLE.items():
        found = assigned(estimator, [one])
        assert not flat(found.step_advantages).any(), name
    for estimator in MEAN_STD:
        assert not flat(estimator.assign([one]).step_advantages).any(), estimator


def states_of_another_type_are_others(seed: int) -> None:
    """1, True and 1.0 are three states; arrays of another shape too."""
    for one, other in ((1, True), (1, 1.0), ("1", 1), (np.zeros((2, 3)), np.zeros((3, 2)))):
        pair = group("g", episode("a", (one, 1.0)), episode("b", (other, 0.0)))
        assert not flat(GiGPO().assign([pair]).parts["step"]).any()


def returns_are_their_definition(seed: int) -> None:
    """G_t is the sum of the later rewards, each discounted by its distance."""
    rng = random.Random(seed)
    rewards = [rng.uniform(-1.0, 1.0) for _ in range(rng.randint(1, 8))]
    discount = rng.uniform(0.1, 0.95)
    order = rng.sample(range(len(rewards)), len(rewards))
    found = f.step_returns([rewards[k] for k in order], [0] * len(order), order, discount)
    for k, value in zip(order, found, strict=True):
        later = rewards[k:]
        assert abs(value - sum(x * discount**j for j, x in enumerate(later))) < 1e-9


def penalties_stay_at_their_step(seed: int) -> None:
    """An invalid action lowers the score and the return of its own step only."""
    rng = random.Random(seed)
    wrong = rng.randrange(3)
    steps = [act(f"s{k}", 0.0, valid=k != wrong) for k in range(3)]
    pair = group("g", episode("a", *steps), episode("b", *(act(f"s{k}") for k in range(3))))
    result = GiGPO(invalid_action_penalty=0.3).assign([pair])
    for k in range(3):
        here = -0.15 if k == wrong else 0.0
        # entries are trajectories: the mean penalty of "a" is 0.1, the group's mean -0.05
        assert abs((result.parts["step"][0] or ())[k] - here) < 1e-9
        expected = 0.05 - (0.3 if k == wrong else 0.0)
        assert abs((result.parts["episode"][0] or ())[k] - expected) < 1e-9


def levels_are_their_definition(seed: int) -> None:
    """HGPO of two episodes that part after their first step, worked out by hand."""
    rng = random.Random(seed)
    won, lost = rng.uniform(1.0, 2.0), rng.uniform(-1.0, 0.0)
    both = group(
        "g",
        episode("a", ("x", 0.0), ("y", won)),
        episode("b", ("x", 0.0), ("y", lost)),
        episode("c", ("z", 0.0), ("y", lost)),
    )
    result = HGPO(history_length=1, discount=1.0).assign([both])
    base, mean = won - (won + 2 * lost) / 3, (won + 2 * lost) / 3
    first, second = result.step_advantages[0] or ()
    # at "x": level 0 (weight 1) and level 1 (weight 2), of two; no level 2 so early
    assert abs(first - (base + 2 * (won - (won + lost) / 2)) / 3) < 1e-9
    # at "y": level 1 of three, level 2 ("x" before) of two, weight 3
    expected = (base + 2 * (won - mean) + 3 * (won - (won + lost) / 2)) / 6
    assert abs(second - expected) < 1e-9


def whitened_is_mean_zero_variance_one(seed: int) -> None:
    """REINFORCE++ over the sampled tokens of the batch: Bessel's correction, every token once."""
    groups = groups_of(seed)
    result = REINFORCEPlusPlus().assign(groups)
    played = [t for g in groups for t in g.trajectories]
    tokens = np.array(
        [
            len(step.sample.token_ids)
            for t, row in zip(played, result.step_advantages, strict=True)
            if row is not None
            for step in t.steps
        ]
    )
    values = flat(result.step_advantages)
    if len(values) and values.any():
        n = tokens.sum()
        assert abs((tokens * values).sum() / n) < 1e-9
        assert abs((tokens * values**2).sum() / (n - 1) - 1.0) < 1e-3


def spread_is_that_of_a_sample(seed: int) -> None:
    """GRPO, GiGPO and pass@k divide by the standard deviation with n - 1."""
    rng = random.Random(seed)
    scores = [rng.uniform(-2.0, 2.0) for _ in range(rng.randint(2, 6))]
    one = group("g", *(episode(f"e{k}", ("s", x)) for k, x in enumerate(scores)))
    mean = sum(scores) / len(scores)
    spread = (sum((x - mean) ** 2 for x in scores) / (len(scores) - 1)) ** 0.5
    expected = np.array([(x - mean) / (spread + 1e-6) for x in scores])
    np.testing.assert_allclose(flat(GRPO().assign([one]).step_advantages), expected, atol=1e-9)
    gigpo = GiGPO(normaliser="mean_std").assign([one])
    np.testing.assert_allclose(flat(gigpo.parts["step"]), expected, atol=1e-9)
    best, second = sorted(scores)[-1], sorted(scores)[-2]
    found = flat(PassAtK().assign([one]).step_advantages)
    assert abs(found.max() - (best - second) / (spread + 1e-6)) < 1e-9
    loop = LOOP(divide=True, threshold=0.0, baseline="mean").assign([one])
    whole = (sum((x - mean) ** 2 for x in scores) / len(scores)) ** 0.5
    expected = np.array([(x - mean) / whole for x in scores])
    np.testing.assert_allclose(flat(loop.step_advantages), expected, atol=1e-6)


def a_long_episode_counts_once(seed: int) -> None:
    """The mean of a group is over trajectories, however long they are."""
    rng = random.Random(seed)
    long = [(f"l{k}", 0.0) for k in range(rng.randint(2, 9))]
    one = group("g", episode("long", *long), episode("short", ("s", 1.0)))
    for estimator in (GiGPO(), DrGRPO(), GRPO(normaliser="mean")):
        found = estimator.assign([one]).parts["episode"]
        assert abs((found[0] or ())[0] + 0.5) < 1e-9
        assert abs((found[1] or ())[0] - 0.5) < 1e-9


def a_teachers_gap_raises_what_it_likes(seed: int) -> None:
    """OPID: a token that the skill makes likelier gains, by its weight times the gap."""
    gap = random.Random(seed).uniform(0.1, 0.9)
    told = annotate(act("s", 1.0, tokens=1), episode_teacher_logprobs=(-1.0 + gap,))
    pair = group("g", episode("a", told), episode("b", ("s", 0.0)))
    tokens = OPID(episode_skill_weight=0.5).assign([pair]).token_advantages
    assert tokens is not None
    assert tokens[0] is not None
    assert abs(tokens[0][0][0] - 0.5 * gap) < 1e-9


def actions_of_a_state_are_compared(seed: int) -> None:
    """BiPACE: mean return of the action minus that of the cluster; peers are those who differ."""
    rng = random.Random(seed)
    left, right = rng.uniform(0.5, 1.0), rng.uniform(-1.0, 0.0)

    def seen(reward: float, action: str) -> Step:
        return annotate(act("s", reward, action), hidden=(1.0, 0.0))

    one = group(
        "g",
        episode("a", seen(left, "left")),
        episode("b", seen(0.0, "left")),
        episode("c", seen(right, "right")),
    )
    mean = (left + right) / 3
    q = flat(BiPACE().assign([one]).parts["step"])
    np.testing.assert_allclose(q, [left / 2 - mean] * 2 + [right - mean], atol=1e-9)
    peers = flat(BiPACE(comparison="different_peer").assign([one]).parts["step"])
    np.testing.assert_allclose(peers, [left - right, -right, right - left / 2], atol=1e-9)


INVARIANTS: dict[str, Callable[[int], None]] = {
    one.__name__: one
    for one in (
        returns_are_their_definition,
        penalties_stay_at_their_step,
        levels_are_their_definition,
        spread_is_that_of_a_sample,
        a_long_episode_counts_once,
        a_teachers_gap_raises_what_it_likes,
        actions_of_a_state_are_compared,
        states_of_another_type_are_others,
        mean_parts_sum_to_zero,
        shift_leaves_mean_norm,
        scale_scales_mean_norm,
        hgpo_without_history_is_level_one,
        bipace_of_exact_states_is_gigpo,
        weight_zero_is_grpo,
        no_discount_uses_immediate_rewards,
        leave_one_out_is_mean_norm_scaled,
        whitened_is_mean_zero_variance_one,
        equal_is_equal,
        groups_do_not_mix,
        ids_are_only_names,
        rows_may_come_in_any_order,
    )
}
