"""Golden families of the estimators that compare states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.core.errors import DataError
from agentrl.credit.bipace import BiPACE, Comparison
from agentrl.credit.columns import Columns
from agentrl.credit.episode import episode_part
from agentrl.credit.functional import Array, text_ratio
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.hgpo import HGPO
from agentrl.credit.states import penalised_returns
from agentrl.testing.golden_rows import Generator, long_texts, row_batch

__all__ = ["bipace", "gigpo", "hgpo"]


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


def hgpo(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """HGPO in reference mode."""
    batch = row_batch(inputs)
    columns = batch.columns
    estimator = HGPO(
        history_length=config["history_length"],
        discount=config["gamma"],
        alpha=config["length_weight_alpha"],
        base_group=config["base_group"],
        normaliser=config["mode"].removesuffix("_norm"),
        invalid_action_penalty=config.get("invalid_action_penalty_coef", 0.0),
        epsilon=config["epsilon"],
        drop_zero_levels=config["drop_zero_items"],
        reference=True,
    )
    contexts = estimator.contexts(columns)
    total = estimator.levels(columns, contexts).sum(axis=0)
    keeping = replace(estimator, drop_zero_levels=False)
    kept = keeping.levels(columns, contexts).sum(axis=0)
    return {
        "step_rewards": estimator.returns(columns),
        "row_advantage": total,
        "advantages": total[:, None] * batch.mask,
        "variant_keep_zero_items": {"row_advantage": kept},
        "variant_keep_zero_items_row_advantage": kept,
    }


def bipace(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """BiPACE in reference mode, all three comparisons and both centroids."""
    columns = row_batch(inputs).columns
    if "hidden" in inputs:
        hidden = np.array(inputs["hidden"], dtype=np.float64)
    else:
        hidden, actions = _drawn_states(columns, inputs["params"])
        steps = zip(columns.steps, actions, strict=True)
        columns = replace(columns, steps=tuple(replace(one, action_key=key) for one, key in steps))
        if abs(hidden.sum() - inputs["check_hidden_sum"]) > 1e-6:
            raise DataError(f"check_hidden_sum does not hold: the drawn sum is {hidden.sum()}")
    estimator = BiPACE(
        radius=config["eps"],
        discount=config["gamma"],
        step_weight=config["step_advantage_w"],
        normaliser=config["episode_mode"].removesuffix("_norm"),
        reference=True,
    )
    first = replace(estimator, centroid="first").partition(columns, hidden)
    cluster = estimator.partition(columns, hidden)
    episode = episode_part(columns, estimator)
    sizes = np.bincount(cluster)
    got: dict[str, Any] = {
        "step_returns": penalised_returns(columns, estimator),
        "episode_adv": episode,
        "cluster_id": cluster,
        "cluster_id_centroid_mean": cluster,
        "cluster_id_centroid_first": first,
        "n_clusters": len(sizes),
        "singleton_cluster_rate": float((sizes == 1).mean()),
    }
    comparisons: tuple[tuple[str, Comparison], ...] = (
        ("q_style", "q"),
        ("diff_peer", "different_peer"),
        ("mean", "mean"),
    )
    for name, comparison in comparisons:
        step = replace(estimator, comparison=comparison).step(columns, cluster)
        got[f"step_adv_{name}"] = step
        got[f"row_advantage_{name}"] = episode + estimator.step_weight * step
    return got


def _drawn_states(columns: Columns, params: Mapping[str, Any]) -> tuple[Array, tuple[str, ...]]:
    draw = Generator(params["seed"])
    hidden = np.array([[0.15 * (draw.uniform() - 0.5) for _ in range(8)] for _ in columns.steps])
    for row, step in enumerate(columns.steps):
        hidden[row, int(step.anchor.rpartition("_o")[2])] += 1.0
    return hidden, tuple(f"act{draw.below(3)}" for _ in columns.steps)
