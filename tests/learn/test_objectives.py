"""Every objective through TRL has the gradient of its equations, and keeps what all must keep."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from agentrl.config import LOSS_SETTINGS, LearnerConfig
from agentrl.core.errors import DataError
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.credit.functional import (
    cpgd,
    decoupled_ppo,
    gated_distillation,
    gspo,
    opmd,
)
from agentrl.learn.oracle import oracle_gradient, oracle_loss
from agentrl.learn.proximal import with_proximal_logprobs
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.contracts.learner import random_rows
from agentrl.testing.gradients import (
    Gradient,
    TableLearner,
    apart_from,
    gradient_of,
    relative_difference,
    sampled_by,
)
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 40
TEMPERATURE = 0.7
# Ratios 1/1.6, 1/1.05, 1.05 and 1.6 lie well inside or outside of every clip range but GSPO's.
LOG_RATIOS = (-math.log(1.6), -math.log(1.05), math.log(1.05), math.log(1.6))
GATED = {"kind": "gated", "coefficient": 0.5}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "dapo": {"loss": "dapo", "epsilon_high": 0.28},
    "dapo with dual clip": {"loss": "dapo", "dual_clip": 1.4},
    "cispo": {"loss": "cispo", "epsilon_high": 0.28},
    "loop": {"loss": "loop"},
    "no_ratio": {"loss": "no_ratio"},
    "gspo_token": {"loss": "gspo_token", "epsilon_low": 0.1, "epsilon_high": 0.15},
    "cpgd": {"loss": "cpgd", "drift": 0.3},
    "decoupled": {"loss": "decoupled", "weight_cap": 1.3},
    "gated": {"distillation": GATED},
    "delta": {"distillation": {"kind": "delta", "coefficient": 0.5, "clip": 0.4}},
    "importance": {
        "loss": "loop",
        "distillation": {"kind": "importance", "coefficient": 0.5, "clip": 0.4},
    },
    "cpgd, gated": {"loss": "cpgd", "distillation": GATED},
    "decoupled, gated": {"loss": "decoupled", "distillation": GATED},
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def config(name: str, **settings: Any) -> LearnerConfig:
    return LearnerConfig.model_validate({"learning_rate": 1e-3} | OBJECTIVES[name] | settings)


def model(seed: int = 3) -> PreTrainedModel:
    return tiny_model(vocab_size=VOCABULARY, hidden_size=16, seed=seed, dtype=torch.float64)


def learner(policy: PreTrainedModel, settings: LearnerConfig) -> TrlLearner:
    return TrlLearner(policy, 0, settings, temperature=TEMPERATURE)


def on_policy(seed: int = 0, *, count: int = 6) -> tuple[Row, ...]:
    """Rows of several answers each, sampled by the policy itself."""
    rows = random_rows(random.Random(seed), count=count, vocabulary_size=VOCABULARY)
    return sampled_by(learner(model(), config("dapo")), rows)


def played(seed: int = 0) -> tuple[Row, ...]:
    """Off-policy rows with unequal weights, advantages per token, proximal policy and teacher."""
    rng = random.Random(seed)
    return tuple(
        replace(
            row,
            weight=rng.uniform(0.2, 3.0),
            advantages=tuple(
                (value + rng.uniform(-0.5, 0.5)) * sampled
                for value, sampled in zip(row.advantages, row.action_mask, strict=True)
            ),
            proximal_logprobs=tuple(
                (value + rng.choice(LOG_RATIOS)) * sampled
                for value, sampled in zip(
                    row.behaviour_logprobs or (), row.action_mask, strict=True
                )
            ),
            teacher_logprobs=tuple(
                -rng.uniform(0.1, 5.0) if sampled and rng.random() < 0.6 else None
                for sampled in row.action_mask
            ),
        )
        for row in apart_from(on_policy(seed), LOG_RATIOS, rng)
    )


def through_trl(rows: Sequence[Row], settings: LearnerConfig) -> tuple[Gradient, dict[str, float]]:
    policy = model()
    return gradient_of(learner(policy, settings), policy, rows)


def check_against_oracle(rows: Sequence[Row], settings: LearnerConfig) -> dict[str, float]:
    expected = oracle_gradient(model(), rows, settings, temperature=TEMPERATURE)
    actual, metrics = through_trl(rows, settings)
    assert relative_difference(actual, expected) < 1e-9
    loss = oracle_loss(model(), rows, settings, temperature=TEMPERATURE)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-9)
    return metrics


def test_every_loss_is_tried() -> None:
    assert {config(name).loss for name in OBJECTIVES} == set(LOSS_SETTINGS)


@every_objective
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_the_oracles(name: str, seed: int) -> None:
    metrics = check_against_oracle(played(seed), config(name))
    assert (metrics["clip_fraction"] == 0) == (name in ("no_ratio",))
    assert metrics["grad_norm"] > 0.01


@every_objective
def test_the_gradient_with_a_kl_term_is_the_oracles(name: str) -> None:
    # The reference is the model at the start, so the KL term has a gradient only after it moved.
    settings = config(name, kl_coefficient=0.5, learning_rate=0.02)
    policy = model()
    one = learner(policy, settings)
    one.fit(iter([Batch(played())]), on_update=lambda stats: None)
    moved = copy.deepcopy(policy)
    rows = played(5)
    expected = oracle_gradient(moved, rows, settings, temperature=TEMPERATURE, reference=model())
    without = oracle_gradient(
        moved, rows, settings.model_copy(update={"kl_coefficient": 0.0}), temperature=TEMPERATURE
    )
    actual, _ = gradient_of(one, policy, rows)
    assert relative_difference(actual, expected) < 1e-9
    assert relative_difference(without, expected) > 0.01


@every_objective
def test_rows_of_every_kind_mix(name: str) -> None:
    # Of the policy, of nobody (demonstrations), without a teacher, and without an advantage.
    rows = played()
    nobody = replace(rows[0], behaviour_logprobs=None, proximal_logprobs=None)
    untaught = replace(rows[1], teacher_logprobs=None)
    idle = replace(rows[2], advantages=(0.0,) * len(rows[2].token_ids))
    check_against_oracle([nobody, untaught, idle, *rows[3:]], config(name))


@every_objective
@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_the_gradient_does_not_depend_on_the_micro_batches(name: str, budget: int) -> None:
    whole, _ = through_trl(played(), config(name, micro_batch_tokens=60))
    cut, metrics = through_trl(played()[::-1], config(name, micro_batch_tokens=budget))
    assert relative_difference(cut, whole) < 1e-9
    assert metrics["micro_batches"] == {1: 6, 40: 3, 100_000: 1}[budget]


@every_objective
def test_how_an_episode_is_cut_into_rows_does_not_matter(name: str) -> None:
    # A row of several answers, or a row for each with what came before as its prompt.
    whole, apart = played(), []
    for row in whole:
        ends = [
            k + 1
            for k, sampled in enumerate(row.action_mask)
            if sampled and not (*row.action_mask, 0)[k + 1]
        ]
        for start, end in zip([0, *ends], ends, strict=False):
            mask = (0,) * start + row.action_mask[start:end]
            apart.append(
                Row(
                    row.token_ids[:end],
                    mask,
                    (row.behaviour_logprobs or ())[:end],
                    tuple(a * m for a, m in zip(row.advantages, mask, strict=False)),
                    row.weight,
                    row.trajectory_id,
                    row.group_id,
                    0,
                    (row.proximal_logprobs or ())[:end],
                    (row.teacher_logprobs or ())[:end],
                )
            )
    assert len(apart) > len(whole)
    expected, expected_metrics = through_trl(whole, config(name))
    actual, metrics = through_trl(apart, config(name))
    # The model's norms are in float32, and another length is another order of sums.
    assert relative_difference(actual, expected) < 1e-5
    for key in ("loss", "clip_fraction", "action_tokens", "taught_tokens", "ratio_mean"):
        assert metrics[key] == pytest.approx(expected_metrics[key], rel=1e-5)


@every_objective
def test_pad_rows_and_unsampled_tokens_have_no_influence(name: str) -> None:
    rows, length = played(), 30
    nothing = (0.0,) * length
    pad = Row((1,) * length, (0,) * length, nothing, (9.0,) * length, 1.0, "pad", "pad", 0)
    pad = replace(pad, proximal_logprobs=(7.0,) * length, teacher_logprobs=(-1.0,) * length)
    dirty = [
        replace(
            row,
            **{  # type: ignore[arg-type]
                name: tuple(
                    value if sampled else spoiled
                    for value, sampled in zip(getattr(row, name), row.action_mask, strict=True)
                )
                for name, spoiled in (
                    ("behaviour_logprobs", math.nan),
                    ("proximal_logprobs", math.inf),
                    ("advantages", math.nan),
                    ("teacher_logprobs", 3.0),
                )
            },
        )
        for row in rows
    ]
    for settings in (config(name), config(name, kl_coefficient=0.1)):
        expected, expected_metrics = through_trl(rows, settings)
        actual, metrics = through_trl([*dirty, pad], settings)
        assert relative_difference(actual, expected) < 1e-9
        apart = {"rows", "rows_skipped", "tokens", "padded_tokens", "micro_batches"}
        for key in set(metrics) - apart:
            if not key.endswith("_s"):
                assert metrics[key] == pytest.approx(expected_metrics[key], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "name", [one for one in OBJECTIVES if "distillation" not in OBJECTIVES[one]]
)
def test_unchanged_weights_give_the_policy_gradient(name: str) -> None:
    # At the temperature of sampling the ratio is 1: no clip, no drift, no correction (B12).
    rows = [replace(row, weight=1.0 + k) for k, row in enumerate(on_policy(1))]
    plain = [replace(row, behaviour_logprobs=None) for row in rows]
    expected, _ = through_trl(plain, config("dapo"))
    factor = 0.5 if name == "no_ratio" else 1.0  # 1 / (1 + tau)
    actual, metrics = through_trl(rows, config(name))
    wanted = {key: factor * value for key, value in expected.items()}
    assert relative_difference(actual, wanted) < 1e-9
    assert metrics["ratio_min"] == pytest.approx(1, abs=1e-9)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-9)
    assert metrics["clip_fraction"] == 0
    assert metrics["behaviour_kl"] == pytest.approx(0, abs=1e-12)


@every_objective
def test_a_trajectory_counts_once_however_many_steps_it_has(name: str) -> None:
    # One token and ten, weights N / (M n) = 11 / 2 and 11 / 20: the table's gradient sums to
    # half of the policy gradient each (D6). Each distils the same share too.
    def row(place: int, tokens: int) -> Row:
        mask = (0,) + (1, 0) * tokens  # every token an answer of its own
        logprobs = tuple(-1.0 * sampled for sampled in mask)
        return Row(
            (place,) + (0,) * 2 * tokens,
            mask,
            logprobs,
            tuple(float(one) for one in mask),
            11 / (2 * tokens),
            str(place),
            "g",
            0,
            teacher_logprobs=tuple(-0.5 if one else None for one in mask),
        )

    table = [[-1.0] * 20, [-1.0] * 20]
    metrics, gradient = TableLearner(config(name)).gradient(table, [row(0, 1), row(1, 10)])
    short, long = (sum(one) for one in gradient)
    assert short == pytest.approx(long, rel=1e-9)
    assert short < -0.2
    assert metrics["action_tokens"] == 11


@every_objective
@pytest.mark.parametrize("shift", [30.0, 1e4, -30.0, -1e4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extreme_log_ratios_stay_finite(name: str, shift: float, sign: float) -> None:
    # In float32, where exp(89) is no number any more.
    policy = tiny_model(vocab_size=VOCABULARY, hidden_size=16)
    rows = [
        replace(
            row,
            advantages=tuple(sign * sampled for sampled in row.action_mask),
            behaviour_logprobs=tuple(
                value - shift * sampled
                for value, sampled in zip(
                    row.behaviour_logprobs or (), row.action_mask, strict=True
                )
            ),
        )
        for row in played()
    ]
    gradient, metrics = gradient_of(learner(policy, config(name)), policy, rows)
    assert all(bool(one.isfinite().all()) for one in gradient.values())
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert all(bool(one.isfinite().all()) for one in policy.parameters())


@pytest.mark.parametrize("name", ["dapo", "cispo", "loop", "cpgd", "decoupled", "importance"])
def test_extreme_log_ratios_are_those_of_the_oracle(name: str) -> None:
    rows = apart_from(played(), (-25.0, 25.0, 0.02), random.Random(1))
    check_against_oracle(rows, config(name))


@every_objective
def test_one_optimiser_step_per_update_however_many_passes(name: str) -> None:
    policy = model()
    one = learner(policy, config(name, micro_batch_tokens=1))
    updates: list[UpdateStats] = []
    one.fit(iter([Batch(played(0)), Batch(played(1))]), on_update=updates.append)
    assert [update.update for update in updates] == [1, 2]
    assert all(update.metrics["micro_batches"] == 6 for update in updates)
    steps = {int(state["step"].item()) for state in one._optimizer.state.values()}
    assert steps == {2}


def array(rows: Sequence[Row], name: str) -> Any:
    """A column of rows with one answer each, without the prompt, NaN where there is nothing."""
    columns = [getattr(row, name)[1:] for row in rows]
    width = max(map(len, columns))
    return np.array(
        [[*map(float, column), *[math.nan] * (width - len(column))] for column in columns]
    )


@pytest.mark.parametrize("name", ["no_ratio", "gspo_token", "cpgd", "decoupled", "gated"])
def test_the_numbers_are_those_of_the_functional_form(name: str) -> None:
    rng = random.Random(4)
    settings = config(name)
    lengths = [3, 1, 4, 2]
    total = sum(lengths)
    rows = []
    table = []
    for place, length in enumerate(lengths):
        old = [-rng.uniform(0.5, 2.0) for _ in range(length)]
        table.append([one + rng.uniform(-0.4, 0.4) for one in old])
        rows.append(
            Row(
                (place,) + (0,) * length,
                (0,) + (1,) * length,
                (0.0, *old),
                (0.0, *(rng.uniform(-1, 1) for _ in range(length))),
                total / (len(lengths) * length) if name == "gspo_token" else 1.0,
                str(place),
                "g",
                0,
                (0.0, *(one + rng.uniform(-0.4, 0.4) for one in old)),
                (None, *(one + rng.uniform(-0.9, 0.9) for one in old)),
            )
        )
    now = np.array([[*one, *[math.nan] * (4 - len(one))] for one in table])
    mask = np.nan_to_num(array(rows, "action_mask"))
    old_, near, a = (
        array(rows, one) for one in ("behaviour_logprobs", "proximal_logprobs", "advantages")
    )
    if name == "gated":
        expected = gated_distillation(now, array(rows, "teacher_logprobs"), mask)
        rows = [replace(one, advantages=(0.0,) * len(one.token_ids)) for one in rows]
        settings = settings.model_copy(
            update={"distillation": settings.distillation.model_copy(update={"coefficient": 1.0})}  # type: ignore[union-attr]
        )
    elif name == "no_ratio":
        expected = opmd(now, a, mask)
    elif name == "gspo_token":
        expected = gspo(now, old_, a, mask, low=0.1, high=0.15)
    elif name == "cpgd":
        expected = cpgd(now, old_, a, mask, drift=0.3)
    else:
        expected = decoupled_ppo(now, near, old_, a, mask, weight_cap=1.3)
    metrics, gradient = TableLearner(settings).gradient(table, rows)
    np.testing.assert_allclose(metrics["loss"], expected.loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected.gradient, rtol=1e-6, atol=1e-12)
    if name == "decoupled":
        assert metrics["left_out"] == pytest.approx(expected.metrics["left_out"])
        assert 0 < metrics["left_out"] < 1


def test_loop_clips_by_the_same_factor_on_both_sides() -> None:
    # e = 0.1: the range is [1/1.1, 1.1]. A ratio of 0.905 lies inside [0.9, ..] and outside this.
    def gradient(ratio: float, advantage: float) -> float:
        row = Row((0, 0), (0, 1), (0.0, -math.log(ratio)), (0.0, advantage), 1.0, "t", "g", 0)
        found = TableLearner(LearnerConfig(loss="loop")).gradient([[0.0]], [row])[1]
        return found[0][0]

    assert gradient(0.905, -1.0) == 0
    assert gradient(0.911, -1.0) == pytest.approx(0.911)
    assert gradient(1.105, 1.0) == 0
    assert gradient(1.095, 1.0) == pytest.approx(-1.095)


def test_the_ratio_of_gspo_is_that_of_the_answer_not_of_the_row() -> None:
    # Two answers in one row, log-ratios (0.2, 0.0) and (-0.1, -0.1): means 0.1 and -0.1.
    row = Row(
        (0,) * 6, (0, 1, 1, 0, 1, 1), (0.0, -1.2, -1.0, 0.0, -0.9, -0.9),
        (0.0, 1.0, 2.0, 0.0, 3.0, -4.0), 1.0, "t", "g", 0,
    )  # fmt: skip
    settings = config("gspo_token", epsilon_low=0.2, epsilon_high=0.2)
    _, (gradient,) = TableLearner(settings).gradient([[-1.0, -1.0, 0.0, -1.0, -1.0]], [row])
    up, down = math.exp(0.1) / 4, math.exp(-0.1) / 4
    np.testing.assert_allclose(gradient, [-up, -2 * up, 0.0, -3 * down, 4 * down], atol=1e-12)


def test_proximal_log_probabilities_are_those_before_the_first_update() -> None:
    policy = model()
    settings = config("decoupled", learning_rate=0.05, weight_cap=1e6)
    one = learner(policy, settings)
    before = copy.deepcopy(policy)
    plain = [
        Batch(tuple(replace(row, proximal_logprobs=None) for row in played(seed)), str(seed))
        for seed in range(3)
    ]
    batches = with_proximal_logprobs(plain, one)
    assert batches[0] == plain[0]
    updates: list[UpdateStats] = []
    one.fit(iter(batches[:1]), on_update=updates.append)
    assert updates[0].metrics["ratio_max"] == pytest.approx(1, abs=1e-9)
    expected = learner(before, settings).score(batches[1].rows)
    for row, scores in zip(batches[1].rows, expected.logprobs, strict=True):
        wanted = [s * m for s, m in zip(scores, row.action_mask, strict=True)]
        assert row.proximal_logprobs == pytest.approx(wanted, abs=1e-12)
    # The weights have moved: the second update is clipped against where they were.
    moved = copy.deepcopy(policy)
    wanted_gradient = oracle_gradient(moved, batches[1].rows, settings, temperature=TEMPERATURE)
    actual, metrics = gradient_of(one, policy, batches[1].rows)
    assert relative_difference(actual, wanted_gradient) < 1e-9
    assert metrics["ratio_max"] > 1.01


def test_only_rows_that_will_need_it_are_scored() -> None:
    class Counting(TrlLearner):
        scored = 0

        def score(self, rows: Sequence[Row], **settings: Any) -> Any:
            self.scored += len(rows)
            return super().score(rows, **settings)

    one = Counting(model(), 0, config("decoupled"), temperature=TEMPERATURE)
    rows = [replace(row, proximal_logprobs=None) for row in played()]
    idle = replace(rows[0], advantages=(0.0,) * len(rows[0].token_ids))
    nobody = replace(rows[1], behaviour_logprobs=None)
    with_proximal_logprobs([Batch(tuple(rows))], one)
    assert one.scored == 0  # one update an iteration costs nothing
    first, second = with_proximal_logprobs(
        [Batch(tuple(rows)), Batch((idle, nobody, *rows[2:]))], one
    )
    assert one.scored == 4
    assert [row.proximal_logprobs is None for row in second.rows] == [True] * 2 + [False] * 4
    assert all(row.proximal_logprobs is None for row in first.rows)
    one.fit(iter([second]), on_update=lambda stats: None)


def test_proximal_log_probabilities_on_some_rows_only_are_refused() -> None:
    rows = played()
    mixed = Batch((replace(rows[0], proximal_logprobs=None), *rows[1:]), "b")
    with pytest.raises(DataError, match="batch 'b' has proximal log-probabilities on 5 of 6 rows"):
        learner(model(), config("decoupled")).fit(iter([mixed]), on_update=lambda stats: None)
    learner(model(), config("dapo")).fit(iter([mixed]), on_update=lambda stats: None)


@pytest.mark.parametrize("column", ["proximal_logprobs", "teacher_logprobs"])
def test_columns_of_another_length_are_refused(column: str) -> None:
    row = replace(played()[0], **{column: (0.0,)})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"but 1 {column}"):
        learner(model(), config("dapo")).fit(iter([Batch((row,))]), on_update=lambda stats: None)


def test_a_row_with_a_teacher_and_no_advantage_is_trained_on() -> None:
    rows = [replace(row, advantages=(0.0,) * len(row.token_ids)) for row in played()]
    metrics = check_against_oracle(rows, config("gated"))
    assert metrics["rows_skipped"] == 0
    assert metrics["no_signal"] == 0
    assert metrics["loss"] == pytest.approx(0.5 * metrics["distillation"])
    assert through_trl(rows, config("dapo"))[1]["no_signal"] == 1


def test_the_drift_of_cpgd_acts_where_no_advantage_does() -> None:
    rows = [replace(row, advantages=(0.0,) * len(row.token_ids)) for row in played()]
    assert check_against_oracle(rows, config("cpgd"))["rows_skipped"] == 0
    assert through_trl(rows, config("cpgd", drift=0.0))[1]["no_signal"] == 1
