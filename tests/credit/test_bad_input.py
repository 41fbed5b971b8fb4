"""Every estimator refuses data it would average wrongly, naming group, trajectory and step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentrl.core.errors import ConfigError, DataError, UnknownPluginError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import Group, Step, StopReason, Trajectory
from agentrl.credit import annotate
from agentrl.credit import functional as f
from agentrl.registry import make, names
from agentrl.testing.contracts.credit import annotated_for
from agentrl.testing.episodes import act, episode, failed_episode, group, summary

NAMES = names("credit")
ANNOTATED = {
    "bipace": "hidden",
    "rlanything": "votes",
    "spa": "progress",
}


def estimator_of(name: str) -> CreditEstimator:
    options = {"terms": [{"name": "grpo"}, {"name": "gigpo"}]} if name == "combined" else {}
    made: CreditEstimator = make("credit", name, options)
    return made


def sound() -> Group:
    """A group in which everything is as it should be, with two steps an episode."""
    return group(
        "g",
        episode("good", ("kitchen", 0.0, "open"), ("attic", 1.0, "take")),
        episode("bad", ("kitchen", 0.0, "look"), ("cellar", 0.0, "wait")),
    )


def with_step(change: Callable[[Step], Step], position: int = 1) -> list[Group]:
    """The sound group with one step of ``g/bad`` changed."""
    one = sound()
    good, bad = one.trajectories
    steps = list(bad.steps)
    steps[position] = change(steps[position])
    return [replace(one, trajectories=(good, replace(bad, steps=tuple(steps))))]


def with_reward(reward: Any) -> list[Group]:
    def change(step: Step) -> Step:
        assert step.result is not None
        return replace(step, result=replace(step.result, reward=reward))

    return with_step(change)


def with_bad(change: Callable[[Trajectory], Trajectory]) -> list[Group]:
    one = sound()
    good, bad = one.trajectories
    return [replace(one, trajectories=(good, change(bad)))]


def of_another_task() -> list[Group]:
    other = group("h", episode("b", ("kitchen", 0.0))).trajectories[0]
    return with_bad(lambda bad: replace(bad, task_id=other.task_id))


def twice(one: Trajectory) -> Trajectory:
    return replace(one, steps=(*one.steps, one.steps[1]))


HERE = r"group 'g'.*trajectory 'g/bad'"
STEP = HERE + r", step 1 "
FAULTS: dict[str, tuple[Callable[[], Sequence[Group]], str]] = {
    "NaN reward": (lambda: with_reward(math.nan), STEP + "is nan, expected a finite number"),
    "infinite reward": (lambda: with_reward(math.inf), STEP + "is inf"),
    "minus infinite reward": (lambda: with_reward(-math.inf), STEP + "is -inf"),
    "NumPy NaN reward": (lambda: with_reward(np.float32("nan")), STEP + "is .*nan"),
    "reward as text": (lambda: with_reward("1"), STEP + "is '1', expected a finite number"),
    "reward as a list": (lambda: with_reward([1.0]), STEP + r"is \[1.0\]"),
    "a row twice": (lambda: with_bad(twice), STEP + "appears twice"),
    "a trajectory twice": (
        lambda: with_bad(lambda bad: replace(bad, id="g/good")),
        r"group 'g', trajectory 'g/good', steps 0 to 1: given twice",
    ),
    "a group twice": (lambda: [sound(), sound()], "group 'g' is given twice"),
    "a padded batch": (
        lambda: [sound(), replace(sound(), id="copy")],
        r"group 'g', trajectory 'g/good', steps 0 to 1: given twice.*never pad a batch",
    ),
    "a group spanning tasks": (
        of_another_task,
        r"group 'g' of task '\w+' holds trajectory 'g/bad', steps 0 to 1, of task '\w+'",
    ),
    "a trajectory with no steps": (
        lambda: with_bad(lambda bad: replace(bad, steps=())),
        HERE + " has no steps, but its task ended it; expected at least step 0",
    ),
    "an unknown kind of step": (
        lambda: with_step(lambda step: replace(step, kind="atc")),  # type: ignore[arg-type]
        STEP + r"has the kind 'atc'; did you mean 'act'\? Expected act, summary, skill",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_refuses_it(name: str, fault: str) -> None:
    make_groups, words = FAULTS[fault]
    estimator = estimator_of(name)
    with pytest.raises(DataError, match=words):
        estimator.assign(annotated_for(estimator, make_groups()))


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_takes_the_sound_group(name: str) -> None:
    estimator = estimator_of(name)
    result = estimator.assign(annotated_for(estimator, [sound()]))
    assert all(one is not None and len(one) == 2 for one in result.step_advantages)


@pytest.mark.parametrize("name", NAMES)
def test_what_broke_or_could_not_be_scored_is_left_out_and_not_refused(name: str) -> None:
    """A NaN that the runtime recorded as a failure, a missing reward, a budget before step 0."""
    estimator = estimator_of(name)
    left_out = (
        failed_episode("nan", ("kitchen", math.nan)),
        episode("none", ("kitchen", 0.0), ("attic", None)),
        episode("budget", stop_reason=StopReason.MAX_TOKENS),
        failed_episode("reset"),
    )
    pair = (episode("good", ("kitchen", 1.0)), episode("bad", ("kitchen", 0.0)))
    alone, among = group("g", *pair), group("g", *pair, *left_out)
    result = estimator.assign(annotated_for(estimator, [among]))
    expected = estimator.assign(annotated_for(estimator, [alone]))
    assert list(result.step_advantages[:2]) == list(expected.step_advantages)
    assert list(result.step_advantages[2:]) == [None] * 4


# Annotations


@pytest.mark.parametrize("name", ANNOTATED)
def test_a_missing_annotation_is_named_with_its_step(name: str) -> None:
    needed = ANNOTATED[name]
    estimator = estimator_of(name)
    whole = annotated_for(estimator, [sound()])
    with pytest.raises(DataError, match=HERE + rf", step 0 .*has no annotation '{needed}'"):
        estimator.assign([_without(whole[0], 0)])
    misspelt = with_step(lambda step: annotate(step, **{f"{needed}s": 1}))
    with pytest.raises(DataError, match=rf"has no annotation '{needed}', found {needed}s"):
        estimator.assign([_taken(whole[0], misspelt[0])])


def _without(one: Group, position: int) -> Group:
    plain = sound().trajectories[1].steps[position]
    good, bad = one.trajectories
    steps = (*bad.steps[:position], plain, *bad.steps[position + 1 :])
    return replace(one, trajectories=(good, replace(bad, steps=steps)))


def _taken(one: Group, other: Group) -> Group:
    """``one`` with the last step of ``other``'s second trajectory."""
    good, bad = one.trajectories
    steps = (*bad.steps[:-1], other.trajectories[1].steps[-1])
    return replace(one, trajectories=(good, replace(bad, steps=steps)))


@pytest.mark.parametrize("name", ["seed", "mmpo"])
def test_a_step_that_must_be_scored_and_was_not_is_named(name: str) -> None:
    kind, needed = {"seed": ("skill", "skill_reward"), "mmpo": ("summary", "belief_entropy")}[name]
    step = summary() if kind == "summary" else act(None, 0.0, kind="skill")
    one = group("g", episode("good", ("s", 1.0)), episode("bad", ("s", 0.0), step))
    with pytest.raises(DataError, match=STEP + rf".*has no annotation '{needed}'"):
        estimator_of(name).assign([one])
    for value in (math.nan, "high", None, (1.0,)):
        scored = annotate(step, **{needed: value})
        wrong = group("g", episode("good", ("s", 1.0)), episode("bad", ("s", 0.0), scored))
        with pytest.raises(DataError, match=STEP + r"has .* as annotation .*a finite number"):
            estimator_of(name).assign([wrong])


@pytest.mark.parametrize(
    ("name", "annotations", "words"),
    [
        ("bipace", {"hidden": (1.0, 0.0, 0.0)}, "expected 4 finite numbers"),
        ("bipace", {"hidden": (1.0, math.nan, 0.0, 0.0)}, "expected 4 finite numbers"),
        ("bipace", {"hidden": (0.0, 0.0, 0.0, 0.0)}, "not all 0"),
        ("bipace", {"hidden": "far"}, "has 'far' as annotation 'hidden'"),
        ("bipace", {"hidden": None}, "as annotation 'hidden'"),
        ("spa", {"progress": math.inf}, "has inf as annotation 'progress'"),
        ("spa", {"progress": "half"}, "has 'half' as annotation 'progress'"),
        ("rlanything", {"votes": (1, 2)}, ": votes must be 1, -1 or None"),
        ("rlanything", {"votes": None}, ": votes must be a list"),
        ("rlanything", {"votes": 1}, ": votes must be a list"),
        ("opid", {"episode_teacher_logprobs": (-1.0,)}, "has 2 sampled tokens but 1 values of"),
        ("opid", {"step_teacher_logprobs": (-1.0, math.nan)}, "values of .* no finite numbers"),
        ("opid", {"step_teacher_logprobs": "no"}, "values of 'step_teacher_logprobs'"),
        ("opid", {"step_teacher_logprobs": -1.0}, "has 2 sampled tokens but 1 values of"),
        ("treerl", {"node": ["a"]}, r"has \['a'\] as annotation 'node'"),
    ],
)
def test_a_wrong_annotation_is_named_with_its_step(
    name: str, annotations: dict[str, Any], words: str
) -> None:
    estimator = estimator_of(name)
    whole = annotated_for(estimator, [sound()])[0]
    good, bad = whole.trajectories
    steps = (bad.steps[0], annotate(bad.steps[1], **annotations))
    wrong = replace(whole, trajectories=(good, replace(bad, steps=steps)))
    with pytest.raises(DataError, match=HERE + ", step 1.*" + words):
        estimator.assign([wrong])


def test_sampled_tokens_without_their_log_probabilities_are_refused_where_they_are_read() -> None:
    estimator = estimator_of("opid")

    def change(step: Step) -> Step:
        taught = annotate(step, episode_teacher_logprobs=(-1.0, -1.0))
        return replace(taught, sample=replace(taught.sample, logprobs=(-1.0,)))

    with pytest.raises(DataError, match=STEP + "has 2 sampled tokens but 1 log-probabilities"):
        estimator.assign(with_step(change))


def test_an_episode_that_ends_inside_a_tree_is_named() -> None:
    def on(node: str, reward: float = 0.0) -> Step:
        return annotate(act("s", reward), node=node)

    one = group("g", episode("good", on("a"), on("b", 1.0)), episode("bad", on("a")))
    with pytest.raises(DataError, match=HERE + r", step 0: the episode ends inside"):
        estimator_of("treerl").assign([one])


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "opid"])
def test_an_anchor_of_unknown_equality_is_named(name: str) -> None:
    estimator = estimator_of(name)
    odd = with_step(lambda step: replace(step, anchor=object()))
    with pytest.raises(DataError, match=STEP.rstrip() + ": an anchor holds"):
        estimator.assign(annotated_for(estimator, odd))


@pytest.mark.parametrize("name", ["gigpo", "hgpo"])
def test_similar_states_need_text(name: str) -> None:
    estimator = make("credit", name, {"similarity": 0.9})
    with pytest.raises(DataError, match=STEP.rstrip() + ":.*text"):
        estimator.assign(with_step(lambda step: replace(step, anchor={"room": 1})))


def test_where_a_margin_needs_two_the_lone_one_is_named() -> None:
    estimator = make("credit", "pass_at_k", {"reference": True})
    lone = group("h", episode("only", ("s", 1.0)))
    with pytest.raises(DataError, match=r"group 'h', trajectory 'h/only', step 0.* needs two"):
        estimator.assign([sound(), lone])


# Options


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(ConfigError, match=f"credit '{name}' has no option 'discont'.*Accepted: "):
        make("credit", name, {"discont": 1.0})


def test_an_unknown_estimator_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownPluginError, match="unknown credit 'gigop'; did you mean 'gigpo'"):
        make("credit", "gigop")


# Arrays

LABELS, FLAGS = np.array([0, 0]), np.array([True, False])
UNEQUAL: dict[str, Callable[[], Any]] = {
    "step_returns": lambda: f.step_returns([1.0], [0, 0], [0, 1], 1.0),
    "step_returns index": lambda: f.step_returns([1.0, 0.0], [0, 0], [0], 1.0),
    "episode_scores": lambda: f.episode_scores([1.0], [0, 0]),
    "token_returns": lambda: f.token_returns([1.0, 2.0], [1], 3, 1.0),
    "normalise": lambda: f.normalise([1.0], LABELS),
    "normalise weights": lambda: f.normalise([1.0, 2.0], LABELS, weights=[1.0]),
    "leave_one_out": lambda: f.leave_one_out([1.0], LABELS),
    "top_margin": lambda: f.top_margin([1.0], LABELS),
    "deviations": lambda: f.deviations([1.0], LABELS),
    "equal_groups": lambda: f.equal_groups([1.0], LABELS),
    "whiten": lambda: f.whiten([1.0], [1.0, 1.0]),
    "exact_partition": lambda: f.exact_partition(["a"], LABELS),
    "similarity_partition": lambda: f.similarity_partition(["a"], LABELS, 0.9),
    "context_partition": lambda: f.context_partition([0], LABELS, LABELS, 2),
    "refine": lambda: f.refine([0], LABELS),
    "cosine_partition": lambda: f.cosine_partition([[1.0]], LABELS, 0.1),
    "q_advantage": lambda: f.q_advantage([1.0], LABELS, LABELS),
    "different_peer_advantage": lambda: f.different_peer_advantage([1.0], LABELS, LABELS),
    "weighted_sum": lambda: f.weighted_sum([[1.0], [1.0, 2.0]], [1.0, 1.0]),
    "level_contributions": lambda: f.level_contributions([[1.0]], [[True, True]], [1.0]),
    "teacher_term": lambda: f.teacher_term([1.0], [1.0, 1.0], [1.0]),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_arrays_of_unequal_lengths_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"length|shape|one weight per"):
        UNEQUAL[name]()
