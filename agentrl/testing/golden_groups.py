"""Golden families of the estimators that compare whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from agentrl.core.errors import DataError
from agentrl.credit.episode import penalised_scores
from agentrl.credit.functional import (
    Array,
    Centring,
    LeafWeighting,
    Tree,
    informative,
    loop_loss,
    token_returns,
    whiten,
)
from agentrl.credit.grpo import GRPO
from agentrl.credit.loop import LOOP
from agentrl.credit.options import Entries
from agentrl.credit.pass_at_k import PassAtK
from agentrl.credit.r3l import R3L
from agentrl.credit.reinforce_plus_plus import REINFORCEPlusPlusBaseline
from agentrl.credit.rlanything import RLAnything, mean_vote
from agentrl.credit.rloo import RLOO
from agentrl.credit.treerl import TreeRL
from agentrl.testing.golden_rows import Generator, row_batch

__all__ = ["groupbase", "loop", "r3l", "rlanything", "treerl"]

Baseline = Literal["leave_one_out", "mean"]
Level = Literal["token", "trajectory"]


def groupbase(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """GRPO, Dr.GRPO, RLOO, REINFORCE++ (both forms) and pass@k in reference mode."""
    batch = row_batch(inputs)
    columns, mask = batch.columns, batch.mask
    scores = np.array(inputs["row_score"], dtype=np.float64)
    penalty = config["invalid_action_penalty_coef"]
    if not np.allclose(penalised_scores(columns, penalty), scores, atol=1e-6):
        raise DataError("row_score is not the penalised episode score")
    tokens = mask.sum(axis=1)
    grpo = GRPO(epsilon=config["epsilon"], reference=True)
    got: dict[str, Any] = {}
    names: tuple[tuple[str, Entries], ...] = (("rows", "rows"), ("trajs", "trajectories"))
    for suffix, entries in names:
        std = replace(grpo, entries=entries)
        mean = replace(std, normaliser="mean")
        baseline = REINFORCEPlusPlusBaseline(entries=entries, reference=True)
        best = PassAtK(entries=entries, epsilon=config["epsilon"], reference=True)
        got[f"grpo_std_{suffix}"] = _spread(std.episode(columns, scores), mask)
        got[f"grpo_nostd_drgrpo_{suffix}"] = _spread(mean.episode(columns, scores), mask)
        loo = RLOO(entries=entries, reference=True).episode(columns, scores)
        got[f"rloo_{suffix}"] = _spread(loo, mask)
        whitened = baseline.episode(columns, tokens, scores)
        got[f"rfpp_baseline_{suffix}"] = _spread(whitened, mask)
        got[f"grpo_passk_{suffix}"] = _or_error(
            lambda best=best: _spread(best.episode(columns, scores), mask)  # type: ignore[misc]
        )
    returns = token_returns(scores, tokens.astype(np.int64), mask.shape[1], config["rfpp_gamma"])
    flat = whiten(returns.ravel(), mask.ravel(), tolerance=None).reshape(mask.shape)
    return {**got, "rfpp_returns": returns, "rfpp_adv": flat * mask}


def _spread(rows: Array, mask: Array) -> Array:
    return rows[:, None] * mask


def _or_error(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except DataError:
        return "ValueError"


def loop(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """LOOP: advantages, filter, and the loss in all four forms."""
    if "generator" in inputs:
        return _drawn_loop(config["ppo_epsilon"])
    scenarios = inputs["scenario_returns"]
    scores = np.array([one for returns in scenarios for one in returns], dtype=np.float64)
    group = np.repeat(np.arange(len(scenarios)), [len(one) for one in scenarios])
    got: dict[str, Any] = {}
    baselines: tuple[tuple[str, Baseline], ...] = (
        ("leave_one_out", "leave_one_out"),
        ("leave_none_out", "mean"),
    )
    for name, baseline in baselines:
        for divide in (False, True):
            estimator = LOOP(baseline=baseline, divide=divide, reference=True)
            got[f"adv_{name}_norm{int(divide)}"] = estimator.advantages(scores, group)
    advantages = got["adv_leave_one_out_norm0"]
    kept, threshold = informative(
        advantages,
        threshold=config["abs_adv_threshold"],
        positive_only=config["pos_adv_only"],
    )
    got["kept_rollout_index_sorted"] = kept
    got["adv_filtered_fraction"] = 1.0 - len(kept) / len(advantages)
    got["empirical_adv_filter_threshold"] = threshold
    levels: tuple[Level, ...] = ("token", "trajectory")
    for level in levels:
        for clip in (True, False):
            losses = [
                loop_loss(
                    new,
                    old,
                    advantage + config["rloo_kl_lambda"],
                    level=level,
                    clip=clip,
                    epsilon=config["ppo_epsilon"],
                )
                for new, old, advantage in zip(
                    inputs["new_log_prob"], inputs["old_log_prob"], advantages, strict=True
                )
            ]
            name = f"pg_per_{level}_{'ppo' if clip else 'reinforce'}"
            got[f"loss_{name}"] = [one.loss for one in losses]
            got[f"grad_{name}"] = [one.gradient.tolist() for one in losses]
    return got


def _drawn_loop(epsilon: float) -> dict[str, Any]:
    draw = Generator(31)
    scores = np.array([round(draw.uniform(), 3) for _ in range(240)])
    lengths = [1 + draw.below(20) for _ in range(240)]
    old = [[-0.1 - 2 * draw.uniform() for _ in range(length)] for length in lengths]
    new = [[one + 0.3 * (draw.uniform() - 0.5) for one in row] for row in old]
    advantages = LOOP(reference=True).advantages(scores, np.repeat(np.arange(40), 6))
    losses = [
        loop_loss(n, o, a, epsilon=epsilon).loss
        for n, o, a in zip(new, old, advantages, strict=True)
    ]
    return {"adv": advantages, "loss": losses}


def r3l(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """R3L's amplified advantages of one group."""
    estimator = R3L(
        baseline={"mean": "mean", "logavgexp": "soft"}[config["opmd_baseline"]],  # type: ignore[arg-type]
        tau=config["tau"],
        alpha=config["alpha"],
        best=config["max_reward"],
        reference=True,
    )
    scores = np.array(inputs["reward"], dtype=np.float64)
    group = np.zeros(len(scores), dtype=np.int64)
    baseline = estimator.baselines(scores, group)
    return {
        "baseline": float(baseline[0]),
        "plain_opmd_adv": scores - baseline,
        "reweighted_adv": estimator.advantages(scores, group),
    }


def rlanything(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """RLAnything's step rewards, normalised across rollouts at equal step index."""
    if config["std"] != "population" or config["eps"] != 1e-8:
        raise DataError(f"only std=population and eps=1e-8 are known, got {dict(config)}")
    outcome, votes = inputs["outcome"], inputs["step_votes"]
    raw = [
        [score + mean_vote(step) for step in steps]
        for score, steps in zip(outcome, votes, strict=True)
    ]
    flat = np.array([one for row in raw for one in row])
    index = np.array([t for row in raw for t in range(len(row))], dtype=np.int64)
    found = RLAnything(reference=True).normalised(flat, index)
    cuts = np.cumsum([len(row) for row in raw])[:-1]
    return {
        "raw_step_reward": raw,
        "normalised": [one.tolist() for one in np.split(found, cuts)],
        "acc": float(np.mean(outcome)),
    }


def treerl(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """TreeRL's segment rewards in every setting."""
    nodes = inputs["nodes_parent_ntokens_R"]
    leaves = [k for k, (_, _, score) in enumerate(nodes) if score is not None]
    tree = Tree.of(
        [parent for parent, _, _ in nodes],
        [tokens for _, tokens, _ in nodes],
        leaves,
        [nodes[k][2] for k in leaves],
    )
    got = {}
    centrings: tuple[Centring, ...] = ("token", "step", "none")
    weightings: tuple[tuple[str, LeafWeighting], ...] = (
        ("None", "none"),
        ("sqrt", "sqrt"),
        ("uniform", "uniform"),
    )
    for centring in centrings:
        for name, weighting in weightings:
            estimator = TreeRL(centring=centring, weighting=weighting, reference=True)
            stem = f"norm_{centring}__weight_{name}"
            got[f"{stem}__pure"] = estimator.rewards(tree)
            got[f"{stem}__state"] = replace(estimator, add_state=True).rewards(tree)
    return got
