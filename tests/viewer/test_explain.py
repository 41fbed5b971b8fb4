"""Why a step got its credit: from what was recorded, for every estimator by name."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group, StopReason
from agentrl.credit import GRPO, GiGPO, annotate
from agentrl.credit.columns import Columns, columns_of
from agentrl.credit.compared import GROUP, Compared, compared
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.registry import make, names
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.contracts.credit import annotated_for, sample_groups
from agentrl.testing.episodes import act, episode, failed_episode, group, random_groups, summary
from agentrl.testing.tiny_runs import tiny_run_data
from agentrl.viewer.explain import explain
from agentrl.viewer.explain_choice import Used, find_group, instructive_group, run_estimator
from agentrl.viewer.explain_view import show_explanation
from agentrl.viewer.explanation import Explanation, StepCredit
from agentrl.viewer.wording import rounded, signed

TERMS = {"terms": [{"name": "grpo"}, {"name": "hgpo", "weight": 0.5}]}


def record(
    run_dir: Path,
    groups: Sequence[Group],
    estimator: CreditEstimator | None,
    *,
    iteration: int = 1,
    purpose: str = "train",
) -> None:
    """Write groups and, with an estimator, their credit, as a run does."""
    with SqliteStore(run_dir) as store:
        for one in groups:
            for trajectory in one.trajectories:
                store.append(trajectory, task=one.task, iteration=iteration, purpose=purpose)
        if estimator is not None:
            annotated = annotated_for(estimator, groups)
            store.add_credit(annotated, with_diagnostics(annotated, estimator.assign(annotated)))


def configure(run_dir: Path, name: str, options: dict[str, Any] | None = None) -> None:
    """Write the run's configuration: one rl stage with this credit."""
    data = tiny_run_data(run_dir)
    credit = {"name": name, "options": options or {}}
    data["stages"] = [{"kind": "rl", "iterations": 2, "credit": credit}]
    data["stages"][0] |= {"tasks_per_iteration": 3, "group_size": 3}
    run_dir.mkdir(exist_ok=True)
    (run_dir / "config.yaml").write_text(yaml.safe_dump(data))


def explained(run_dir: Path, group_id: str) -> Explanation:
    used = run_estimator(run_dir, group_id)
    with SqliteStore(run_dir, read_only=True) as store:
        return explain(
            store,
            group_id,
            estimator=used.estimator,
            name=used.name,
            options=used.options,
            unknown=used.unknown,
        )


def printed(explanation: Explanation) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    show_explanation(explanation, console)
    return console.export_text()


def step_of(explanation: Explanation, trial: int, step: int) -> StepCredit:
    return next(one for one in explanation.members if one.trial == trial).steps[step]


def kitchen() -> Group:
    return group(
        "g",
        episode("win", ("kitchen", 0.0, "open"), ("attic", 1.0, "take")),
        episode("lose", ("kitchen", 0.0, "look"), summary(), act(None, action="wait")),
        failed_episode("crash", ("kitchen", 0.0)),
        episode("unscored", ("kitchen", 0.0), ("attic", None)),
        episode("silent", stop_reason=StopReason.MAX_TOKENS),
    )


def test_each_part_says_what_it_came_from(tmp_path: Path) -> None:
    options: dict[str, Any] = {"discount": 0.5, "invalid_action_penalty": 0.1}
    configure(tmp_path, "gigpo", options)
    record(tmp_path, [kitchen()], GiGPO(**options))
    found = explained(tmp_path, "g")
    assert (found.estimator, found.options, found.agrees) == ("gigpo", options, True)
    first = step_of(found, 0, 0)
    # scores 1 and 0; returns at the kitchen 0.5 and 0
    assert (first.advantage, first.sum) == pytest.approx((0.75, 0.75))
    whole, here = first.parts
    assert (whole.name, whole.own, whole.within) == ("episode", 1.0, GROUP)
    assert whole.value == pytest.approx(0.5)
    assert whole.among is not None
    assert (whole.among.count, whole.among.entries) == (2, "trajectories")
    assert (whole.among.mean, whole.among.std) == pytest.approx((0.5, 0.5**0.5))
    assert (here.name, here.value, here.own, here.within) == ("step", 0.25, 0.5, "anchor")
    assert here.among is not None
    assert (here.among.count, here.among.entries, here.among.mean) == (2, "steps", 0.25)
    assert "discount 0.5" in found.rules["step"]
    (partition,) = found.partitions
    (cluster,) = partition.clusters
    assert (partition.name, partition.part, partition.alone) == ("anchor", "step", 3)
    assert cluster.state == "kitchen"
    assert [(one.trial, one.step, one.action, one.own, one.part) for one in cluster.members] == [
        (0, 0, "open", 0.5, 0.25),
        (1, 0, "look", 0.0, -0.25),
    ]


def test_equal_numbers_look_alike_wherever_they_stand(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo", {"discount": 1.0})
    third = 10.0 / 3.0  # it once was 3.33 as a number that was compared and +3.333 as an advantage
    groups = [
        group(
            "g",
            episode("win", ("hall", 1234.5678), ("attic", third)),
            episode("lose", ("hall", third)),
            episode("faint", ("hall", 1e-5)),
        )
    ]
    record(tmp_path, groups, GiGPO(discount=1.0))
    shown = printed(explained(tmp_path, "g"))
    scores = (1234.5678 + third, third, 1e-5)
    mean = sum(scores) / 3
    # each as score, as reward or return, and as the mean that it is compared with
    for words in ("1237.901", "3.333", "1e-05", "1234.568", f"mean {mean:.3f}"):
        assert words in shown, words
    assert {f"{x - mean:+.3f}" for x in scores} <= set(re.findall(r"[+-]\d+\.\d+", shown))
    for wrong in ("1.24e+03", "1.23e+03", "3.33 ", "1234.57 ", "1237.9 ", "+0.000", "-0.000"):
        assert wrong not in shown, wrong


@pytest.mark.parametrize(
    ("number", "plain", "with_sign"),
    [
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (1.0, "1", "+1.000"),
        (100.0, "100", "+100.000"),
        (-2.0 / 3.0, "-0.667", "-0.667"),
        (0.0005, "0.001", "+0.001"),
        (0.00049, "5e-04", "+5e-04"),
        (-1e-9, "-1e-09", "-1e-09"),
        (float("inf"), "inf", "+inf"),
    ],
)
def test_one_rule_rounds_numbers(number: float, plain: str, with_sign: str) -> None:
    assert (rounded(number), signed(number)) == (plain, with_sign)


def test_a_step_without_signal_says_why(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo", {"discount": 1.0})
    equal = group(
        "equal",
        episode("a", ("hall", 0.0), ("kitchen", 1.0)),
        episode("b", ("hall", 0.0), (None, 1.0), summary()),
    )
    alone = group("alone", episode("a", ("hall", 1.0)), failed_episode("b"))
    record(tmp_path, [equal, alone], GiGPO(discount=1.0))
    found = explained(tmp_path, "equal")

    def step_part(trial: int, step: int) -> str:
        return step_of(found, trial, step).parts[1].why_zero

    assert step_part(0, 0) == "all that it was compared with are equal (1)"
    assert step_part(0, 1) == "compared with nothing: no other step has its anchor"
    assert step_part(1, 1) == "the environment gave the state no anchor"
    assert step_part(1, 2) == "a summary step is not compared by anchor"
    why = step_of(found, 0, 0).why_none
    assert why.startswith("episode: all that it was compared with are equal (1); step: all")
    lone = step_of(explained(tmp_path, "alone"), 0, 0)
    assert lone.parts[0].why_zero == "no other trajectory of the group takes part"
    assert "no signal" in printed(found)


def test_a_trajectory_without_part_says_why(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo")
    record(tmp_path, [kitchen()], GiGPO())
    found = {one.trial: one for one in explained(tmp_path, "g").members}
    assert found[2].why_none == "infra failure at step: EnvError: the world is gone"
    assert found[3].why_none == "unscored: the environment gave step 1 no reward"
    assert found[4].why_none == "nothing was sampled (max_tokens came first)"
    assert not any(found[trial].takes_part or found[trial].steps for trial in (2, 3, 4))


def test_a_retried_attempt_is_told_from_the_one_that_counted(tmp_path: Path) -> None:
    configure(tmp_path, "grpo")
    played = group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0)))
    crash = replace(
        failed_episode("x", ("s", 0.0)),
        id="g/1/0",
        group_id="g",
        task_id=played.task.id,
        trial=1,
    )
    again = replace(played.trajectories[1], id="g/1/1", attempt=1)
    counted = replace(played, trajectories=(played.trajectories[0], again))
    with SqliteStore(tmp_path) as store:
        for one in (played.trajectories[0], crash, again):
            store.append(one, task=played.task, iteration=1, purpose="train")
        store.add_credit([counted], GRPO().assign([counted]))
    found = explained(tmp_path, "g")
    assert found.agrees is True
    assert [(one.trial, one.attempt, one.takes_part) for one in found.members] == [
        (0, 0, True),
        (1, 0, False),
        (1, 1, True),
    ]
    assert found.members[1].why_none.endswith("the trial was played again as attempt 1")


@pytest.mark.parametrize("name", names("credit"))
def test_every_estimator_is_explained_by_name(name: str, tmp_path: Path) -> None:
    options = TERMS if name == "combined" else {}
    estimator = make("credit", name, options)
    configure(tmp_path, name, options)
    groups = sample_groups()
    record(tmp_path, groups, estimator)
    recorded = estimator.assign(annotated_for(estimator, groups))
    ids = [one.id for each in groups for one in each.trajectories]
    advantages = dict(zip(ids, recorded.step_advantages, strict=True))
    for each in groups:
        if not each.trajectories:
            continue
        found = explained(tmp_path, each.id)
        assert found.estimator == name
        assert found.agrees is (None if getattr(estimator, "needs", ()) else True)
        assert found.rules.keys() == recorded.parts.keys()
        for member in found.members:
            wanted = advantages[member.id]
            assert member.takes_part is (wanted is not None)
            assert [one.advantage for one in member.steps] == list(wanted or ())
            assert all(one.sum == pytest.approx(one.advantage) for one in member.steps)
            assert member.takes_part or member.why_none
            assert all(one.why_none for one in member.steps if not _signal(one))
        assert {one.name for one in found.partitions} <= recorded.groups.keys()
        json.dumps(_plain(found))
        assert found.group in printed(found)


def _signal(step: StepCredit) -> bool:
    return step.advantage != 0.0 or (step.tokens is not None and any(step.tokens))


def _plain(value: Any) -> Any:
    from agentrl.cli.app import plain_json

    return plain_json(value)


@pytest.mark.parametrize("name", ["grpo", "rloo", "gigpo", "hgpo", "pass_at_k"])
@pytest.mark.parametrize("seed", range(4))
def test_the_numbers_compared_give_the_parts(name: str, seed: int) -> None:
    """Own minus mean, by the rule of each part: what is shown is what was computed."""
    options = {"invalid_action_penalty": 0.1} | ({} if name == "rloo" else {"normaliser": "mean"})
    options |= {"history_length": 0, "base_group": False} if name == "hgpo" else {}
    groups = random_groups(random.Random(seed))
    estimator = make("credit", name, options)
    columns = columns_of(groups)
    result = estimator.assign(groups)
    for part in compared(estimator, columns):
        if name == "hgpo" and part.part == "episode":
            continue
        assert part.values is not None
        labels = [x for row in result.groups.get(part.within, ()) if row for x in row]
        of = labels or columns.group.tolist()
        values = [x for row in result.parts[part.part] if row is not None for x in row]
        for row, value in enumerate(values):
            if value == 0.0 or name == "pass_at_k":
                continue
            members = [k for k, label in enumerate(of) if label == of[row]]
            weights = [1.0 if part.weights is None else part.weights[k] for k in members]
            mean = sum(w * part.values[k] for w, k in zip(weights, members, strict=True)) / sum(
                weights
            )
            n = sum(weights)
            factor = n / (n - 1) if name == "rloo" else 1.0
            assert value == pytest.approx(factor * (part.values[row] - mean))


def test_statistics_that_span_the_batch_are_those_of_the_iteration(tmp_path: Path) -> None:
    configure(tmp_path, "reinforce_plus_plus")
    estimator = make("credit", "reinforce_plus_plus")
    groups = [
        group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0), ("s", 0.0))),
        group("h", episode("a", ("s", 1.0))),
    ]
    record(tmp_path, groups, estimator)
    record(tmp_path, [group("later", episode("a", ("s", 1.0)))], estimator, iteration=2)
    found = explained(tmp_path, "g")
    assert found.agrees is True
    among = step_of(found, 0, 0).parts[0].among
    assert among is not None
    assert (among.count, among.entries, among.mean) == (8, "tokens", 0.5)


def test_what_the_estimator_no_longer_gives_is_said_and_not_replaced(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo", {"discount": 0.5, "step_weight": 2.0})
    record(tmp_path, [kitchen()], GiGPO(discount=0.5))
    found = explained(tmp_path, "g")
    assert found.agrees is False
    assert "gives something else (by up to 0.25, at 'g/win' step 0)" in found.check
    assert step_of(found, 0, 0).advantage == pytest.approx(0.75)  # as recorded
    assert "something else" in printed(found)


@dataclass(frozen=True)
class Foreign:
    """An estimator of somebody else: no parts, one partition."""

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Each step its reward."""
        rows = [
            tuple(step.reward or 0.0 for step in one.steps) if one.scored else None
            for each in groups
            for one in each.trajectories
        ]
        labels = [None if row is None else (0,) * len(row) for row in rows]
        return CreditResult(rows, groups={"all": labels})


@dataclass(frozen=True)
class Described(Foreign):
    """The same, and it says what it compares."""


@compared.register
def _described(estimator: Described, columns: Columns) -> tuple[Compared, ...]:
    return (Compared("reward", "the reward itself", within="all", values=columns.reward),)


def test_an_estimator_of_somebody_else_is_shown_as_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    configure(tmp_path, "tests.viewer.test_explain:Foreign")
    record(tmp_path, [kitchen()], Foreign())
    found = explained(tmp_path, "g")
    assert found.agrees is True
    assert step_of(found, 0, 1).advantage == 1.0
    assert step_of(found, 0, 0).why_none == "the estimator gave 0 and names no parts"
    (cluster,) = found.partitions[0].clusters
    assert (len(cluster.members), cluster.among) == (5, None)
    with SqliteStore(tmp_path, read_only=True) as store:
        told = explain(store, "g", estimator=Described())
    (cluster,) = told.partitions[0].clusters
    assert cluster.among is not None
    assert cluster.among.mean == pytest.approx(0.2)


def test_without_the_estimator_what_was_recorded_is_shown(tmp_path: Path) -> None:
    record(tmp_path, [kitchen()], GiGPO(discount=0.5))
    found = explained(tmp_path, "g")
    assert (found.agrees, found.estimator, found.rules) == (None, None, {})
    assert "What was compared is not known: the run's configuration cannot be read" in found.check
    assert [part.value for part in step_of(found, 0, 0).parts] == pytest.approx([0.5, 0.25])
    configure(tmp_path, "no.such.module:Credit")
    found = explained(tmp_path, "g")
    assert found.estimator == "no.such.module:Credit"
    assert "it cannot be made here" in found.check
    assert run_estimator(tmp_path, "stage7-0-0-x").name == "no.such.module:Credit"


def test_the_stage_of_a_group_is_that_of_its_name(tmp_path: Path) -> None:
    data = tiny_run_data(tmp_path)
    rl = data["stages"][1]
    data["stages"] = [
        data["stages"][0],
        {**rl, "credit": {"name": "grpo"}},
        {**rl, "credit": {"name": "rloo"}},
    ]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(data))
    assert run_estimator(tmp_path, "stage2-0-1-abc").name == "rloo"
    assert run_estimator(tmp_path, "stage1-0-1-abc").name == "grpo"
    for unfit in ("stage0-0-1-abc", "elsewhere", "stage9-0"):
        used = run_estimator(tmp_path, unfit)
        assert used == Used(unknown=used.unknown)
        assert "no rl stage of the run's configuration fits the group" in used.unknown


def test_token_terms_and_annotated_parts_are_shown_as_recorded(tmp_path: Path) -> None:
    configure(tmp_path, "opid", {"episode_skill_weight": 0.1})
    taught = annotate(act("s", 1.0), episode_teacher_logprobs=(-0.5, -1.5))
    groups = [group("g", episode("a", taught), episode("b", ("s", 1.0)))]
    with SqliteStore(tmp_path) as store:
        for one in groups[0].trajectories:
            store.append(one, task=groups[0].task, iteration=1, purpose="train")
        store.add_credit(
            groups, make("credit", "opid", {"episode_skill_weight": 0.1}).assign(groups)
        )
    found = explained(tmp_path, "g")
    assert found.agrees is None
    assert "episode_teacher_logprobs, step_teacher_logprobs" in found.check
    assert step_of(found, 0, 0).tokens == pytest.approx((0.0, -0.05, 0.05))
    assert step_of(found, 0, 0).why_none == ""  # it has a signal, though its advantage is 0
    assert step_of(found, 1, 0).why_none


def test_it_works_while_the_run_writes(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo")
    played, more = kitchen(), group("h", episode("a", ("s", 1.0)))
    with SqliteStore(tmp_path) as store:
        for one in played.trajectories:
            store.append(one, task=played.task, iteration=1, purpose="train")
        with pytest.raises(DataError, match="'g' has no credit: its iteration 1 is still being"):
            explained(tmp_path, "g")
        store.add_credit([played], GiGPO().assign([played]))
        store.append(more.trajectories[0], task=more.task, iteration=2, purpose="train")
        assert explained(tmp_path, "g").agrees is True
        with SqliteStore(tmp_path, read_only=True) as reading:
            assert instructive_group(reading)[0] == "g"


def test_groups_without_credit_are_refused_in_words(tmp_path: Path) -> None:
    configure(tmp_path, "gigpo")
    record(tmp_path, [kitchen()], None, purpose="before/sampled")
    with pytest.raises(DataError, match="was played for 'before/sampled', from which nothing is"):
        explained(tmp_path, "g")
    with SqliteStore(tmp_path, read_only=True) as store:
        with pytest.raises(DataError, match="no credit was recorded yet"):
            instructive_group(store)
        with pytest.raises(DataError, match="no episode of group 'x'"):
            explain(store, "x")


def test_a_group_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    groups = [group(name, episode("a", ("s", 1.0))) for name in ("alpha-1", "alpha-2", "beta")]
    record(tmp_path, groups, GRPO())
    with SqliteStore(tmp_path, read_only=True) as store:
        assert find_group(store, "beta") == find_group(store, "b") == "beta"
        assert find_group(store, "alpha-2") == "alpha-2"
        with pytest.raises(ConfigError, match="begins the names of 2 groups: 'alpha-1', 'alpha-2'"):
            find_group(store, "alpha")
        with pytest.raises(ConfigError, match="no group 'betta' in this run; did you mean 'beta'"):
            find_group(store, "betta")


def test_the_most_instructive_group_is_of_the_newest_iteration_with_signal(tmp_path: Path) -> None:
    def pair(name: str, *rewards: float) -> Group:
        return group(name, *(episode(f"e{k}", ("s", x)) for k, x in enumerate(rewards)))

    credit = GRPO(normaliser="mean")
    record(tmp_path, [pair("old", 9.0, 0.0)], credit, iteration=1)
    record(tmp_path, [pair("even", 1.0, 1.0), pair("odd", 1.0, 0.0)], credit, iteration=2)
    record(tmp_path, [pair("silent", 1.0, 1.0)], credit, iteration=3)
    with SqliteStore(tmp_path, read_only=True) as store:
        chosen, why = instructive_group(store)
    assert chosen == "odd"
    assert why == (
        "of the 2 groups of iteration 2, the newest with signal, the one with the most different "
        "advantages (-0.500 .. +0.500)"
    )
    silent = tmp_path / "silent"
    record(silent, [pair("even", 1.0, 1.0)], credit)
    with SqliteStore(silent, read_only=True) as store:
        assert instructive_group(store)[1].endswith("the first: none got any signal")
