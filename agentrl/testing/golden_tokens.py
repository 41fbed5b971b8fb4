"""Golden families that work on tokens: skill terms, distillation, policy losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.credit.functional import (
    Array,
    Objective,
    gated_distillation,
    gspo,
    kl_estimators,
    opd_loss,
    ppo_clip,
    route_skills,
    teacher_term,
)
from agentrl.credit.gigpo import GiGPO
from agentrl.testing.golden_rows import row_batch, token_mask

__all__ = ["opid", "opid_opdloss", "policyloss", "seed_opdloss"]


def opid(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """OPID's advantage from its parts; the routing table holds its inputs itself."""
    if "rows" in inputs:
        return {"rows": _routing_table(inputs["rows"])}
    batch = row_batch(inputs)
    columns, mask = batch.columns, batch.mask
    gigpo = GiGPO(
        step_weight=config["step_advantage_w"],
        normaliser=config["mode"].removesuffix("_norm"),
        epsilon=config["epsilon"],
        reference=True,
    )
    scores = np.array(inputs["episode_score"], dtype=np.float64)
    returns = np.array(inputs["step_rewards"], dtype=np.float64)
    episode = gigpo.episode(columns, scores)[:, None] * mask
    step = gigpo.step(columns, gigpo.partition(columns), returns)[:, None] * mask
    present = {"episode": True, "step": inputs["step_teacher_present"]}
    teacher = np.zeros_like(mask)
    for source in ("episode", "step"):
        weight = config[f"{source}_skill_teacher_advantage_w"]
        routed = inputs[f"{source}_skill_mask"]
        rows = np.ones(len(mask)) if routed is None else np.array(routed, dtype=np.float64)
        term = teacher_term(
            inputs[f"{source}_teacher_log_prob"],
            inputs["old_log_prob"],
            mask * rows[:, None],
            normalise=config["normalize_teacher_adv"],
            clip=config["clip_teacher_adv"],
        )
        teacher += weight * term * present[source]
    return {
        "episode_adv": episode,
        "step_adv": step if gigpo.step_weight else np.zeros_like(step),
        "teacher_adv": teacher,
        "advantages": episode + gigpo.step_weight * step + teacher,
    }


def _routing_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their outputs computed from what they give."""
    table = []
    for row in rows:
        given = {key: row[key] for key in ("mode", "step_skill", "episode_enabled", "step_enabled")}
        episode, step = route_skills(
            row["step_skill"],
            mode=row["mode"],
            episode_enabled=row["episode_enabled"],
            step_enabled=row["step_enabled"],
        )
        table.append({**given, "use_episode_skill": episode, "use_step_skill": step})
    return table


def _routed_mask(inputs: Mapping[str, Any]) -> Array:
    mask = token_mask(inputs["response_len"], inputs["response_width"])
    rows = inputs["opd_step_mask"]
    return mask if rows is None else mask * np.array(rows, dtype=np.float64)[:, None]


def _report(objective: Objective) -> dict[str, Any]:
    return {
        "loss": objective.loss,
        "grad_log_prob": objective.gradient,
        **objective.metrics,
    }


def opid_opdloss(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """OPID's auxiliary loss."""
    objective = opd_loss(
        inputs["log_prob"],
        inputs["old_log_prob"],
        inputs["teacher_log_prob"],
        _routed_mask(inputs),
        weighting=config["weight_mode"],
        clip=config["opd_clip"],
        aggregation=config["loss_agg_mode"],
    )
    return _report(objective)


def seed_opdloss(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """SEED's gated loss."""
    objective = gated_distillation(
        inputs["log_prob"],
        inputs["teacher_log_prob"],
        _routed_mask(inputs),
        beta=config["gate_beta"],
        aggregation=config["loss_agg_mode"],
    )
    return _report(objective)


def policyloss(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """PPO with dual clip, GSPO, and the KL estimators (which have no config)."""
    if "ref_log_prob" in inputs:
        return dict(kl_estimators(inputs["log_prob"], inputs["ref_log_prob"]))
    arrays = (
        inputs["log_prob"],
        inputs["old_log_prob"],
        inputs["advantages"],
        token_mask(inputs["response_len"], inputs["response_width"]),
    )
    both = config["cliprange"]
    low, high = config.get("cliprange_low", both), config.get("cliprange_high", both)
    dual = config["clip_ratio_c"]
    if config["kind"] == "gspo":
        return _report(gspo(*arrays, low=low, high=high))
    aggregation = config["loss_agg_mode"]
    return _report(ppo_clip(*arrays, low=low, high=high, dual=dual, aggregation=aggregation))
