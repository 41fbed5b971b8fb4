"""Estimators that read annotations: TreeRL, RLAnything, SPA, OPID, SEED, HiMAC, MMPO."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.trajectory import Step, Trajectory
from agentrl.credit import (
    GRPO,
    MMPO,
    OPID,
    RLOO,
    SEED,
    SPA,
    Combined,
    GiGPO,
    HiMAC,
    RLAnything,
    TreeRL,
    annotate,
)
from agentrl.credit.functional import (
    Tree,
    route_skills,
    segment_rewards,
    skill_reward,
    teacher_term,
    tree_values,
)
from agentrl.testing.episodes import act, episode, group, random_groups, summary

SEEDS = st.integers(0, 10**6)


def flat(values: Any) -> np.ndarray[Any, Any]:
    return np.array([x for one in values if one is not None for x in one])


def on_node(node: str, reward: float = 0.0, tokens: int = 2) -> Step:
    return annotate(act(node, reward, tokens=tokens), node=node)


def test_an_annotation_stays_with_the_step() -> None:
    step = annotate(annotate(act("s", 1.0), hidden=(1.0,)), node="n")
    assert step.annotations == {"hidden": (1.0,), "node": "n"}
    assert (step.anchor, step.reward, step.kind) == ("s", 1.0, "act")
    played = episode("a", step)
    assert played.steps[0].index == 0
    assert getattr(played.steps[0], "annotations", None) == step.annotations


def test_a_segment_earns_what_it_changed() -> None:
    # root -> a -> {b (1), c (0)}, root -> d (0).  Centred: 1, -1/2, -1/2; V(a) = 1/4.
    three = group(
        "g",
        episode("one", on_node("a"), on_node("b"), on_node("b", 1.0)),
        episode("two", on_node("a"), on_node("c", 0.0)),
        episode("three", on_node("d", 0.0)),
    )
    result = TreeRL().assign([three])
    assert result.step_advantages == ((0.25, 0.75, 0.75), (0.25, -0.75), (-0.5,))
    assert result.groups["node"] == ((0, 1, 1), (0, 2), (3,))
    state = TreeRL(add_state=True).assign([three]).step_advantages
    assert state == ((0.5, 1.75, 1.75), (0.5, -1.25), (-1.0,))


@given(SEEDS)
def test_a_tree_without_branches_is_rloo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    one, other = TreeRL().assign(groups), RLOO().assign(groups)
    np.testing.assert_allclose(flat(one.step_advantages), flat(other.step_advantages), atol=1e-12)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.integers(0, 1000))
def test_rewards_on_a_path_sum_to_the_leafs_value(parents: list[int], seed: int) -> None:
    parent = [-1, *(min(p, k) for k, p in enumerate(parents))]
    leaves = [k for k in range(len(parent)) if k not in parent]
    scores = np.random.default_rng(seed).random(len(leaves))
    tree = Tree.of(parent, [1] * len(parent), leaves, scores)
    values, root = tree_values(tree)
    for leaf, rewards in zip(leaves, segment_rewards(tree, values, root), strict=True):
        np.testing.assert_allclose(rewards.sum(), values[leaf] - root, atol=1e-12)
    assert abs(root) < 1e-12


def test_a_segment_that_changes_nothing_earns_nothing_unless_published() -> None:
    # "a" splits into equal halves on both sides: V(a) - V(root) = 0 for the second segment "m".
    tree = Tree.of([-1, 0, 1, 1, -1], [1] * 5, [2, 3, 4], [1.0, 0.0, 0.0])
    values, root = tree_values(tree)
    ours = segment_rewards(tree, values, root)[0].tolist()
    published = segment_rewards(tree, values, root, fill=True)[0].tolist()
    assert ours == [0.25, 0.0, 0.75]
    assert published == [0.25, 0.25, 0.75]


def test_wrong_trees_are_refused() -> None:
    inside = group("g", episode("a", on_node("a")), episode("b", on_node("a"), on_node("b")))
    with pytest.raises(DataError, match="ends inside the segments of another"):
        TreeRL().assign([inside])
    with pytest.raises(DataError, match="parent must come before"):
        Tree.of([1, -1], [1, 1], [0], [1.0])
    with pytest.raises(DataError, match="distinct nodes without children"):
        Tree.of([-1, 0], [1, 1], [0], [1.0])
    with pytest.raises(DataError, match="no leaf below"):
        tree_values(Tree.of([-1, -1], [1, 1], [0], [1.0]))
    lone = [group("g", episode("a", on_node("a")))]
    assert TreeRL().assign(lone).step_advantages == ((0.0,),)
    with pytest.raises(DataError, match="one leaf"):
        TreeRL(reference=True).assign(lone)
    with pytest.raises(ConfigError, match="centring must be one of none, token, step"):
        TreeRL(centring="all")  # type: ignore[arg-type]


def voted(votes: tuple[int | None, ...], reward: float = 0.0) -> Step:
    return annotate(act("s", reward), votes=votes)


def test_votes_are_compared_at_equal_step_index() -> None:
    # rewards: a: 1+1, 1+0;  b: 0-1.  Index 0: 2 and -1 -> +-1; index 1 only in a -> 0.
    pair = group(
        "g",
        episode("a", voted((1, 1)), voted((1, -1, None), 1.0)),
        episode("b", voted((-1, None))),
    )
    assert RLAnything().assign([pair]).step_advantages == ((1.0, 0.0), (-1.0,))
    published = RLAnything(reference=True).assign([pair]).step_advantages
    np.testing.assert_allclose(flat(published), [1.0, 1.0, -1.0])
    with pytest.raises(DataError, match="votes must be 1, -1 or None"):
        RLAnything().assign([group("g", episode("a", voted((2,))))])


def progressed(anchor: str, progress: float, reward: float = 0.0, valid: bool = True) -> Step:
    return annotate(act(anchor, reward, valid=valid), progress=progress)


def test_progress_takes_the_place_of_rewards() -> None:
    pair = group(
        "g",
        episode("a", progressed("s", 0.75), progressed("t", 0.25, 1.0)),
        episode("b", progressed("s", 0.0), progressed("u", 0.5)),
    )
    result = SPA().assign([pair])
    # sums 1 and 1/2: +-1/4;  returns at "s" 1 and 1/2: +-1/4
    assert result.parts["episode"] == ((0.25, 0.25), (-0.25, -0.25))
    assert result.parts["step"] == ((0.25, 0.0), (-0.25, 0.0))
    assert result.metrics["progress_error"] == 0.25
    by_index = SPA(compare="index").assign([pair])
    # second steps: 1/4 and 1/2
    assert by_index.parts["step"] == ((0.25, -0.125), (-0.25, 0.125))


def test_grounding_rewards_valid_actions() -> None:
    pair = group(
        "g",
        episode("a", progressed("s", 0.0)),
        episode("b", progressed("s", 0.0, valid=False)),
    )
    found = SPA(grounding=0.5).assign([pair]).step_advantages
    assert found == ((0.5,), (-0.5,))


def test_the_published_script_of_spa_throws_progress_away() -> None:
    pair = group(
        "g",
        episode("a", act("s", 0.0, valid=False), act("t", 1.0, valid=False)),
        episode("b", act("s", 0.0)),
    )
    # 1 - 0 and 0 - 1; grounding on valid actions and always on the last
    found = SPA(reference=True, grounding=0.5).assign([pair])
    assert found.step_advantages == ((1.0, 1.5), (-0.5,))


@given(SEEDS)
def test_spa_with_rewards_as_progress_is_gigpo(seed: int) -> None:
    def with_progress(one: Trajectory) -> Trajectory:
        steps = [annotate(s, progress=s.reward) for s in one.steps]
        return episode(one.id, *steps)

    groups = random_groups(random.Random(seed), odd=False)
    same = [group(g.id, *(with_progress(t) for t in g.trajectories)) for g in groups]
    one, other = SPA().assign(same), GiGPO(discount=1.0).assign(groups)
    np.testing.assert_allclose(flat(one.step_advantages), flat(other.step_advantages))


def taught(reward: float, **teacher: tuple[float, ...]) -> Step:
    return annotate(act("s", reward, tokens=2), **teacher)


def test_skill_terms_are_added_to_the_tokens() -> None:
    # the builders sample with log-prob -1: d = 0.5, -1 for the episode skill; 1, 1 for the step's
    pair = group(
        "g",
        episode("a", taught(1.0, episode_teacher_logprobs=(-0.5, -2.0))),
        episode("b", taught(0.0, step_teacher_logprobs=(0.0, 0.0)), act("t", 0.0, tokens=1)),
    )
    result = OPID(episode_skill_weight=0.1, step_skill_weight=0.2).assign([pair])
    assert result.step_advantages == ((0.5,), (-0.5, -0.5))
    a, b = result.token_advantages or ((), ())
    np.testing.assert_allclose(flat(a), [0.05, -0.1])
    assert b == ((0.2, 0.2), (0.0,))
    assert result.metrics["episode_teacher_token_share"] == pytest.approx(2 / 5)
    with pytest.raises(DataError, match="2 sampled tokens but 1 values"):
        OPID().assign([group("g", episode("a", taught(1.0, step_teacher_logprobs=(0.0,))))])


@given(SEEDS)
def test_without_skill_weights_opid_is_grpo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    result = OPID(episode_skill_weight=0.0, step_skill_weight=0.0).assign(groups)
    other = GRPO(normaliser="mean").assign(groups)
    assert result.step_advantages == other.step_advantages
    assert result.token_advantages is not None
    assert not any(any(step) for row in result.token_advantages for step in row or ())


def test_teacher_terms_can_be_normalised_and_clipped() -> None:
    mask = np.array([[1.0, 1.0], [1.0, 0.0]])
    teacher, old = np.array([[0.0, -1.0], [-2.0, 7.0]]), np.full((2, 2), -1.0)
    # gaps 1, 0, -1: mean 0, spread sqrt(2/3)
    found = teacher_term(teacher, old, mask, normalise=True, clip=1.0)
    np.testing.assert_allclose(found, [[1.0, 0.0], [-1.0, 0.0]])
    same = teacher_term(old + 1.0, old, mask, normalise=True)
    assert not same.any()  # equal gaps are centred, never divided
    with pytest.raises(DataError, match="not finite"):
        teacher_term([[np.nan]], [[0.0]], [[1.0]])


def test_routing_is_critical_first() -> None:
    assert route_skills("go") == (False, True)
    assert route_skills(" ") == (True, False)
    assert route_skills("go", mode="additive") == (True, True)
    assert route_skills("go", skill_mode="episode_only") == (True, False)
    assert route_skills("", skill_mode="step_only") == (False, False)
    with pytest.raises(DataError, match="mode"):
        route_skills("go", mode="best")  # type: ignore[arg-type]


def test_a_skill_is_worth_what_it_told_the_policy() -> None:
    gain, won = [0.5, 0.5, 9.0], [True, False, True]
    np.testing.assert_allclose(skill_reward(gain, won), [0.5, 0.0, 2.0])
    negated = skill_reward(gain, won, on_failure="negate", coefficient=2.0)
    np.testing.assert_allclose(negated, [1.0, -1.0, 2.0])
    ok = [True, True, False]
    found = skill_reward([0.0] * 3, won, valid_json=ok, has_skill=ok, too_long=[False, True, True])
    np.testing.assert_allclose(found, [0.4, 0.2, -0.2])


def test_seed_compares_skills_with_skills() -> None:
    def skill(reward: float) -> Step:
        return annotate(act(None, 0.0, kind="skill"), skill_reward=reward)

    pair = group("g", episode("a", ("s", 1.0), skill(0.3)), episode("b", ("s", 0.0), skill(0.1)))
    found = SEED(normaliser="mean", skill_weight=2.0).assign([pair]).step_advantages
    np.testing.assert_allclose(flat(found), [0.5, 0.2, -0.5, -0.2])
    with pytest.raises(DataError, match="no annotation 'skill_reward'"):
        SEED().assign([group("g", episode("a", act(None, kind="skill")))])


def test_plans_are_compared_with_plans_and_executions_with_executions() -> None:
    def run(name: str, plan: str, reward: float) -> Trajectory:
        macro = annotate(act("task", 0.0), blueprint=plan, role="macro")
        return episode(name, macro, annotate(act("s", reward), blueprint=plan))

    # plan x: 1, 0; plan y: 0, 0.  Plans: 1/2 against 0.
    plans = (("a", "x", 1.0), ("b", "x", 0.0), ("c", "y", 0.0), ("d", "y", 0.0))
    four = group("g", *(run(*one) for one in plans))
    found = HiMAC().assign([four]).step_advantages
    assert found == ((0.25, 0.5), (0.25, -0.5), (-0.25, 0.0), (-0.25, 0.0))
    macro = HiMAC(train="macro").assign([four]).step_advantages
    assert macro == ((0.25, 0.0), (0.25, 0.0), (-0.25, 0.0), (-0.25, 0.0))


@given(SEEDS)
def test_without_plans_himac_is_grpo(seed: int) -> None:
    groups = random_groups(random.Random(seed))
    one, other = HiMAC().assign(groups), GRPO(normaliser="mean").assign(groups)
    np.testing.assert_allclose(flat(one.step_advantages), flat(other.step_advantages), atol=1e-12)


def test_unsure_summaries_lose_advantage() -> None:
    pair = group(
        "g",
        episode("a", annotate(summary(), belief_entropy=2.0), ("s", 1.0)),
        episode("b", annotate(summary(), belief_entropy=1.0), ("s", 0.0)),
    )
    result = MMPO(normaliser="mean", belief_weight=0.2).assign([pair])
    assert result.parts["belief"] == ((-0.1, 0.0), (0.1, 0.0))
    np.testing.assert_allclose(flat(result.step_advantages), [0.4, 0.5, -0.4, -0.5])
    assert result.metrics["belief_entropy_mean"] == 1.5


def test_estimators_can_be_summed_by_weight() -> None:
    pair = [group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0)))]
    both = Combined(
        (
            {"name": "agentrl.credit.grpo:GRPO", "weight": 2.0, "options": {"normaliser": "mean"}},
            (GiGPO(), 0.5),
            (GiGPO(step_weight=0.0), 1.0),
        )
    )
    result = both.assign(pair)
    # 2 * 0.5 + 0.5 * (0.5 + 0.5) + 0.5
    assert result.step_advantages == ((2.0,), (-2.0,))
    assert list(result.parts) == [
        "GRPO.episode",
        "gigpo.episode",
        "gigpo.step",
        "gigpo_2.episode",
        "gigpo_2.step",
    ]
    np.testing.assert_allclose(sum(flat(part) for part in result.parts.values()), [2.0, -2.0])
    assert result.token_advantages is None
    with_tokens = Combined(((OPID(), 1.0), (OPID(), 0.5))).assign(pair)
    assert with_tokens.token_advantages == (((0.0, 0.0),), ((0.0, 0.0),))
    assert Combined(((OPID(), 1.0),)).needs == OPID.needs


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ((), "at least one term"),
        (({"weight": 1.0},), "keys name, weight and options"),
        (({"name": "grpo", "wieght": 1.0},), "keys name, weight and options"),
        (({"name": "grop"},), "unknown credit 'grop'"),
        (({"name": "grpo", "options": {"discont": 1}},), "no option 'discont'"),
        (((GRPO(), float("nan")),), "finite number"),
        (((GRPO(), True),), "finite number"),
    ],
)
def test_wrong_terms_are_refused(terms: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Combined(terms)
