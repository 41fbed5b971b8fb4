"""Golden families of the estimators that compare states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.credit.functional import text_ratio
from agentrl.credit.gigpo import GiGPO
from agentrl.testing.golden_rows import long_texts, row_batch

__all__ = ["gigpo"]


def gigpo(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """GiGPO in reference mode."""
    texts = long_texts(inputs) if "check_prefix" in inputs else None
    batch = row_batch(inputs, texts)
    columns = batch.columns
    threshold = config["similarity_thresh"]
    estimator = GiGPO(
        discount=config["gamma"],
        step_weight=config["step_advantage_w"],
        normaliser=config["mode"].removesuffix("_norm"),
        invalid_action_penalty=config.get("invalid_action_penalty_coef", 0.0),
        similarity=threshold if config["enable_similarity"] else None,
        entries="rows" if config["compute_mean_std_cross_steps"] else "trajectories",
        epsilon=config["epsilon"],
        reference=True,
    )
    scores = returns = None
    if "duplicated_source_rows" in inputs:
        source = inputs["duplicated_source_rows"]
        returns = np.array(inputs["step_rewards"], dtype=np.float64)
        scores = np.array(inputs["token_level_row_score"], dtype=np.float64)
        if returns[-len(source) :].tolist() != returns[source].tolist():
            raise ValueError("the last rows do not copy duplicated_source_rows")
    per_trajectory = replace(estimator, entries="trajectories")
    anchor = estimator.partition(columns)
    episode = estimator.episode(columns, scores)
    step = estimator.step(columns, anchor, returns)
    total = episode + estimator.step_weight * step
    got: dict[str, Any] = {
        "step_returns": replace(estimator, invalid_action_penalty=0.0).returns(columns),
        "step_rewards_after_penalty": estimator.returns(columns),
        "step_group_id": anchor,
        "n_step_groups": len(set(anchor.tolist())),
        "episode_adv": episode,
        "episode_adv_dedup_by_traj": per_trajectory.episode(columns, scores),
        "step_adv": step,
        "row_advantage": total,
        "advantages": total[:, None] * batch.mask,
    }
    if texts is not None:
        got["ratio_matrix_autojunk"] = [
            [text_ratio(a, b, autojunk=True) for b in texts] for a in texts
        ]
        got["ratio_row0_row1_without_autojunk"] = text_ratio(texts[0], texts[1])
    return got
