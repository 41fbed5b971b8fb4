"""TRL's gradient through our seam agrees with the float64 oracle, and with itself."""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from trl import GRPOTrainer

from agentrl.config import LearnerConfig
from agentrl.core.trajectory import Batch, Row
from agentrl.learn.oracle import oracle_gradient, oracle_loss
from agentrl.learn.rows import rows_from_demonstrations
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.contracts.learner import random_rows
from agentrl.testing.gradients import (
    Gradient,
    apart_from,
    gradient_of,
    relative_difference,
    sampled_by,
)
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 48
TEMPERATURE = 0.7


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def config(**settings: Any) -> LearnerConfig:
    settings = {"learning_rate": 1e-3, "epsilon_high": 0.28} | settings
    return LearnerConfig.model_validate(settings)


def model() -> PreTrainedModel:
    return tiny_model(vocab_size=VOCABULARY, seed=3)


def on_policy(rows: Sequence[Row], policy: PreTrainedModel) -> tuple[Row, ...]:
    """The rows as if ``policy`` had sampled them at TEMPERATURE."""
    return sampled_by(TrlLearner(policy, 0, config(), temperature=TEMPERATURE), rows)


def off_policy(rows: Sequence[Row], rng: random.Random) -> tuple[Row, ...]:
    """Ratios become 1/1.6, 1/1.1, 1.1 and 1.6; the range is 0.8 to 1.28."""
    return apart_from(rows, [math.log(one) for one in (1 / 1.6, 1 / 1.1, 1.1, 1.6)], rng)


def played_rows(seed: int = 0, *, count: int = 7) -> tuple[Row, ...]:
    """Off-policy rows with unequal weights, advantages of both signs and per token."""
    rng = random.Random(seed)
    rows = on_policy(random_rows(rng, count=count, vocabulary_size=VOCABULARY), model())
    rows = off_policy(rows, rng)
    return tuple(
        replace(
            row,
            weight=rng.uniform(0.2, 3.0),
            advantages=tuple(
                (value + rng.uniform(-0.5, 0.5)) * sampled
                for value, sampled in zip(row.advantages, row.action_mask, strict=True)
            ),
        )
        for row in rows
    )


def trl_gradient(
    rows: Sequence[Row],
    settings: LearnerConfig | None = None,
    *,
    policy: PreTrainedModel | None = None,
    learner: TrlLearner | None = None,
) -> tuple[Gradient, dict[str, float]]:
    """Gradient before clipping and the metrics of one update of a fresh learner."""
    policy = policy or model()
    if learner is None:
        learner = TrlLearner(policy, 0, settings or config(), temperature=TEMPERATURE)
    return gradient_of(learner, policy, rows)


def check_against_oracle(
    rows: Sequence[Row], settings: LearnerConfig, reference: PreTrainedModel | None = None
) -> dict[str, float]:
    expected = oracle_gradient(
        model(), rows, settings, temperature=TEMPERATURE, reference=reference
    )
    actual, metrics = trl_gradient(rows, settings)
    assert relative_difference(actual, expected) < 1e-5
    precise = copy.deepcopy(model()).double()
    frozen = None if reference is None else copy.deepcopy(reference).double()
    loss = oracle_loss(precise, rows, settings, temperature=TEMPERATURE, reference=frozen)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    return metrics


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_on_policy_gradient_is_the_oracles(loss: str) -> None:
    rows = on_policy(random_rows(random.Random(1), count=6, vocabulary_size=VOCABULARY), model())
    metrics = check_against_oracle(rows, config(loss=loss))
    # Log-probabilities are compared at the temperature of sampling: unchanged weights, ratio 1.
    assert metrics["ratio_min"] == pytest.approx(1, abs=1e-5)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-5)
    assert metrics["clip_fraction"] == 0
    assert metrics["behaviour_kl"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_off_policy_gradient_with_clipping_is_the_oracles(loss: str) -> None:
    metrics = check_against_oracle(played_rows(), config(loss=loss))
    assert 0.1 < metrics["clip_fraction"] < 0.9
    assert metrics["ratio_max"] == pytest.approx(1.6, rel=1e-4)


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_gradient_without_behaviour_policy_is_the_oracles(loss: str) -> None:
    rows = [replace(row, behaviour_logprobs=None) for row in played_rows()]
    check_against_oracle(rows, config(loss=loss))


def test_rows_with_and_without_behaviour_policy_mix() -> None:
    rows = played_rows()
    mixed = [replace(row, behaviour_logprobs=None) for row in rows[:3]] + list(rows[3:])
    check_against_oracle(mixed, config())


def test_gradient_of_the_kl_term_is_the_oracles() -> None:
    # The reference is the model at the start, so the KL term has a gradient only after it moved.
    settings = config(kl_coefficient=0.5, learning_rate=0.02)
    policy, rows = model(), played_rows()
    learner = TrlLearner(policy, 0, settings, temperature=TEMPERATURE)
    learner.fit(iter([Batch(rows)]), on_update=lambda stats: None)
    moved = copy.deepcopy(policy)
    rows = off_policy(on_policy(rows, moved), random.Random(5))
    expected = oracle_gradient(moved, rows, settings, temperature=TEMPERATURE, reference=model())
    without = oracle_gradient(moved, rows, config(), temperature=TEMPERATURE)
    actual, _ = trl_gradient(rows, policy=policy, learner=learner)
    assert relative_difference(actual, expected) < 1e-5
    assert relative_difference(without, expected) > 0.05


def test_an_idle_row_still_has_a_kl_term() -> None:
    settings = config(kl_coefficient=0.5)
    rows = played_rows()
    idle = replace(rows[0], advantages=(0.0,) * len(rows[0].token_ids))
    _, metrics = trl_gradient([idle, *rows[1:]], settings)
    assert metrics["rows_skipped"] == 0


@pytest.mark.parametrize("budget", [1, 40, 100, 100_000])
def test_gradient_does_not_depend_on_the_micro_batches(budget: int) -> None:
    rows = played_rows()
    whole, _ = trl_gradient(rows)
    cut, metrics = trl_gradient(rows, config(micro_batch_tokens=budget))
    assert relative_difference(cut, whole) < 1e-5
    assert metrics["micro_batches"] == {1: 7, 40: 4, 100: 2, 100_000: 1}[budget]


def test_gradient_does_not_depend_on_the_order_of_rows() -> None:
    rows = played_rows()
    assert relative_difference(trl_gradient(rows[::-1])[0], trl_gradient(rows)[0]) < 1e-5


def test_a_weight_is_a_factor_of_the_advantage() -> None:
    # Importance weights, staleness discounts and trajectory weights fold into the advantages.
    rows = played_rows()
    folded = [
        replace(row, weight=1.0, advantages=tuple(row.weight * one for one in row.advantages))
        for row in rows
    ]
    assert relative_difference(trl_gradient(folded)[0], trl_gradient(rows)[0]) < 1e-5


def test_rows_without_gradient_are_skipped_but_counted() -> None:
    rows = played_rows()
    idle = [replace(row, advantages=(0.0,) * len(row.token_ids)) for row in rows[:3]]
    part = [*idle, *rows[3:]]
    check_against_oracle(part, config())  # the oracle computes all of them
    _, metrics = trl_gradient(part)
    assert metrics["rows_skipped"] == 3
    assert metrics["action_tokens"] == sum(sum(row.action_mask) for row in rows)


def test_pad_rows_have_no_influence() -> None:
    # A row that fills up a batch: an action mask of zeros, and here even an advantage.
    rows = played_rows()
    length = 30
    pad = Row((1,) * length, (0,) * length, (0.0,) * length, (9.0,) * length, 1.0, "pad", "pad", 0)
    for settings in (config(), config(kl_coefficient=0.1)):
        plain, metrics = trl_gradient(rows, settings)
        padded, padded_metrics = trl_gradient([*rows, pad], settings)
        assert relative_difference(padded, plain) < 1e-6
        for name in ("loss", "nll", "entropy", "ratio_mean", "clip_fraction", "action_tokens"):
            assert padded_metrics[name] == pytest.approx(metrics[name], rel=1e-5)


def test_what_follows_the_last_action_has_no_influence() -> None:
    rows = played_rows()
    tail = 5
    longer = [
        replace(
            row,
            token_ids=row.token_ids + (7,) * tail,
            action_mask=row.action_mask + (0,) * tail,
            behaviour_logprobs=(row.behaviour_logprobs or ()) + (0.0,) * tail,
            advantages=row.advantages + (9.0,) * tail,  # of no sampled token: never read
        )
        for row in rows
    ]
    expected, expected_metrics = trl_gradient(rows)
    actual, metrics = trl_gradient(longer)
    assert relative_difference(actual, expected) < 1e-5
    assert metrics["loss"] == pytest.approx(expected_metrics["loss"], rel=1e-5)


def test_cloning_is_cross_entropy() -> None:
    rng = random.Random(2)
    drawn = random_rows(rng, count=5, vocabulary_size=VOCABULARY)
    rows = rows_from_demonstrations([[(row.token_ids, row.action_mask)] for row in drawn])
    policy = model()
    labels = [
        [token if sampled else -100 for token, sampled in zip(ids, mask, strict=True)]
        for ids, mask in ((row.token_ids, row.action_mask) for row in drawn)
    ]
    losses = [
        torch.nn.functional.cross_entropy(
            policy(input_ids=torch.tensor([row.token_ids])).logits[0, :-1] / TEMPERATURE,
            torch.tensor(label[1:]),
            reduction="sum",
        )
        for row, label in zip(drawn, labels, strict=True)
    ]
    mean = torch.stack(losses).sum() / sum(sum(row.action_mask) for row in drawn)
    mean.backward()  # type: ignore[no-untyped-call]
    expected = {name: one.grad for name, one in policy.named_parameters() if one.grad is not None}
    actual, metrics = trl_gradient(rows)
    assert relative_difference(actual, expected) < 1e-5
    assert metrics["nll"] == pytest.approx(mean.item(), rel=1e-5)


def test_the_fused_head_gives_the_same_gradient() -> None:
    # What a GPU and models with scaled logits use: on a CPU it is chosen for a scaled model.
    plain, metrics = trl_gradient(played_rows())
    policy = model()
    policy.config.logit_scale = 1.0 + 1e-12
    fused, fused_metrics = trl_gradient(played_rows(), policy=policy)
    assert relative_difference(fused, plain) < 1e-5
    assert fused_metrics["entropy"] == pytest.approx(metrics["entropy"], rel=1e-5)
    assert fused_metrics["entropy"] != metrics["entropy"]  # so it was another head


def test_large_vocabularies_are_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = trl_gradient(played_rows())
    monkeypatch.setattr("agentrl.learn.logprobs.LOGITS_AT_ONCE", 10 * VOCABULARY)
    pieces, _ = trl_gradient(played_rows())
    assert relative_difference(pieces, whole) < 1e-5


def test_gradient_is_clipped_to_the_norm() -> None:
    # AdamW hides the size of a gradient; the moments after one step show it: (1 - beta1) * g.
    policy = model()
    settings = config(max_grad_norm=0.01)
    learner = TrlLearner(policy, 0, settings, temperature=TEMPERATURE)
    _, metrics = trl_gradient(played_rows(), policy=policy, learner=learner)
    assert metrics["grad_norm"] > 0.1
    moments = [one["exp_avg"] for one in learner._optimizer.state.values()]
    norm = torch.stack([one.norm() for one in moments]).norm().item()
    assert norm == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_the_private_seam_of_trl_is_the_one_we_know() -> None:
    seam = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies)
    assert list(seam.parameters)[:8] == [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ]
    assert str(seam.return_annotation) == (
        "tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]"
    )
    assert list(inspect.signature(GRPOTrainer._compute_loss).parameters) == [
        "self",
        "model",
        "inputs",
    ]
