"""The learner's losses, through TRL, give the values that public reference code gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentrl.config import LearnerConfig
from agentrl.core.trajectory import Batch, Row
from agentrl.credit import LOOP
from agentrl.testing.golden_rows import Generator
from agentrl.testing.gradients import TableLearner

FOLDER = Path(__file__).parent / "credit"
LOOPS = ["binary", "kl_lambda", "on_policy", "partial_credit", "zero_variance_group"]
PPO = ["dapo_clip_higher", "drgrpo_agg", "ppo_token_mean"]
SEED = ["beta0", "beta5", "empty", "mask_none"]
OPID = ["delta", "empty", "importance", "importance_clip"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def case(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return data


def row(
    place: int,
    old: list[float],
    advantages: list[float],
    *,
    length: int | None = None,
    weight: float = 1.0,
    teacher: list[float] | None = None,
) -> Row:
    """Row ``place`` of a table: a prompt of one token and one answer, its first ``length`` real."""
    length = len(old) if length is None else length
    return Row(
        token_ids=(place, *[0] * len(old)),
        action_mask=(0, *(int(k < length) for k in range(len(old)))),
        behaviour_logprobs=(0.0, *old),
        advantages=(0.0, *advantages),
        weight=weight,
        trajectory_id=str(place),
        group_id="g",
        policy_version=0,
        teacher_logprobs=None if teacher is None else (None, *teacher),
    )


def close(got: Any, expected: Any, tolerance: dict[str, float]) -> None:
    np.testing.assert_allclose(got, expected, rtol=tolerance["rtol"], atol=tolerance["atol"])


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("form", ["ppo", "reinforce"])
def test_loop(name: str, form: str) -> None:
    data = case(f"loop_{name}")
    inputs, expected, config = data["inputs"], data["expected"], data["config"]
    settings: dict[str, Any] = {"loss": "loop", "epsilon_high": config["ppo_epsilon"]}
    if form == "reinforce":  # without a clip the published code has no ratio either
        settings = {"loss": "no_ratio", "tau": 0.0}
    learner = TableLearner(LearnerConfig(**settings))
    new, old = inputs["new_log_prob"], inputs["old_log_prob"]
    for place, advantage in enumerate(expected["adv_leave_one_out_norm0"]):
        value = advantage + config["rloo_kl_lambda"]
        rows = [row(0, old[place], [value] * len(old[place]))]
        if not value:  # nothing to learn from it
            assert not any(expected[f"grad_pg_per_token_{form}"][place])
            continue
        metrics, gradient = learner.gradient([new[place]], rows)
        close(metrics["loss"], expected[f"loss_pg_per_token_{form}"][place], data["tolerance"])
        close(gradient[0], expected[f"grad_pg_per_token_{form}"][place], data["tolerance"])


def test_loop_of_many_trajectories() -> None:
    data = case("loop_large_seeded")
    digest = data["expected"]["loss"]
    draw = Generator(31)
    scores = np.array([round(draw.uniform(), 3) for _ in range(240)])
    lengths = [1 + draw.below(20) for _ in range(240)]
    old = [[-0.1 - 2 * draw.uniform() for _ in range(length)] for length in lengths]
    new = [[one + 0.3 * (draw.uniform() - 0.5) for one in values] for values in old]
    advantages = LOOP(reference=True).advantages(scores, np.repeat(np.arange(40), 6))
    rows = [
        row(place, values, [float(advantages[place])] * len(values))
        for place, values in enumerate(old)
    ]
    learner = TableLearner(LearnerConfig(loss="loop", epsilon_high=data["config"]["ppo_epsilon"]))
    losses = np.array(learner.losses(new, [Batch((one,)) for one in rows]))
    close(losses[:16], digest["first16"], data["tolerance"])
    close(losses[-16:], digest["last16"], data["tolerance"])
    close(losses.sum(), digest["sum"], data["tolerance"])
    close((losses**2).sum(), digest["sq_sum"], data["tolerance"])


def weights(lengths: list[int], width: int, aggregation: str) -> list[float]:
    """Weights that make a mean over all tokens that aggregation."""
    total, rows = sum(lengths), len(lengths)
    return {
        "token-mean": [1.0] * rows,
        "seq-mean-token-mean": [total / (rows * max(one, 1)) for one in lengths],
        "seq-mean-token-sum-norm": [total / width] * rows,
    }[aggregation]


@pytest.mark.parametrize("name", [*PPO, "gspo"])
def test_policy_losses(name: str) -> None:
    data = case(f"policyloss_{name}")
    inputs, expected, config = data["inputs"], data["expected"], data["config"]
    both = config["cliprange"]
    settings = {
        "epsilon_low": config.get("cliprange_low", both),
        "epsilon_high": config.get("cliprange_high", both),
    }
    if name == "gspo":
        settings |= {"loss": "gspo_token"}
        aggregation = "seq-mean-token-mean"
    else:
        settings |= {"loss": "dapo", "dual_clip": config["clip_ratio_c"]}
        aggregation = config["loss_agg_mode"]
    lengths = inputs["response_len"]
    rows = [
        row(place, old, advantages, length=length, weight=weight)
        for place, (old, advantages, length, weight) in enumerate(
            zip(
                inputs["old_log_prob"],
                inputs["advantages"],
                lengths,
                weights(lengths, inputs["response_width"], aggregation),
                strict=True,
            )
        )
    ]
    learner = TableLearner(LearnerConfig(**settings))
    metrics, gradient = learner.gradient(inputs["log_prob"], rows)
    close(metrics["loss"], expected["loss"], data["tolerance"])
    close(gradient, expected["grad_log_prob"], data["tolerance"])
    clipped = expected["clipfrac"] + expected["clipfrac_lower"]
    if name == "gspo":  # reported with each token of an answer
        clipped = expected["clipfrac"]
    close(metrics["clip_fraction"], clipped, data["tolerance"])


@pytest.mark.parametrize("name", [f"seed_{one}" for one in SEED] + [f"opid_{one}" for one in OPID])
def test_distillation(name: str) -> None:
    family, _, kind = name.partition("_")
    data = case(f"{family}_opdloss_{kind}")
    inputs, expected, config = data["inputs"], data["expected"], data["config"]
    lengths = inputs["response_len"]
    routed = inputs["opd_step_mask"] or [1] * len(lengths)
    scored = sum(length for length, on in zip(lengths, routed, strict=True) if on)
    coefficient = 1.0
    if config["loss_agg_mode"] == "seq-mean-token-sum" and scored:
        coefficient = scored / len(lengths)
    distillation = {"kind": "gated", "coefficient": coefficient}
    if family == "seed":
        distillation |= {"beta": config["gate_beta"]}
    else:
        distillation |= {"kind": config["weight_mode"], "clip": config["opd_clip"]}
    old = inputs.get("old_log_prob", inputs["log_prob"])
    rows = [
        row(
            place,
            old[place],
            [0.0] * len(old[place]),
            length=length,
            teacher=inputs["teacher_log_prob"][place] if routed[place] else None,
        )
        for place, length in enumerate(lengths)
    ]
    learner = TableLearner(LearnerConfig.model_validate({"distillation": distillation}))
    metrics, gradient = learner.gradient(inputs["log_prob"], rows)
    close(metrics["loss"], expected["loss"], data["tolerance"])
    close(gradient, expected["grad_log_prob"], data["tolerance"])
    assert metrics["taught_tokens"] == scored
    assert metrics["no_signal"] == (scored == 0)
