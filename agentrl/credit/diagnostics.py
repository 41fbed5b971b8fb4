"""Diagnostics of credit: plain numbers that say what an estimator did with its groups.

They are made of the groups and the result alone, so every estimator has them, also one that
somebody else wrote. A run records them for each iteration (event ``credit``, and its curve), and
``agentrl view`` shows those of the newest one.

| metric | meaning |
|---|---|
| ``groups``, ``groups_empty``, ``groups_of_one`` | all; those of which none or one takes part |
| ``groups_equal``, ``groups_silent`` | of two and more: equal scores; no signal at all |
| ``group_size_min``, ``_mean``, ``_max`` | trajectories that take part, over groups with any |
| ``trajectories``, ``_failed``, ``_unscored`` | that take part; left out, by cause |
| ``trajectories_silent`` | that take part and got no signal at all |
| ``steps`` | of the trajectories that take part |
| ``zero_advantage_share`` | of the steps: the step advantage is 0 |
| ``without_signal_share`` | of the steps: so are those of its tokens; nothing is learnt there |
| ``valid_action_share`` | of the acts |
| ``PART_abs_mean``, ``_share``, ``_zero_share`` | mean size, its share of all, how often 0 |
| ``tokens_abs_mean``, ``tokens_share`` | the same of what was added below the step |
| ``PARTITION_clusters``, ``_size_mean``, ``_size_max`` | of the acts with a label |
| ``PARTITION_size_1_share``, ``_size_2_to_4_share``, ... | of the acts, by size of their cluster |

``PARTITION_size_1_share`` is the share of singletons: acts that were compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.functional import (
    Array,
    Flags,
    Labels,
    cluster_sizes,
    dense,
    equal_groups,
)

__all__ = ["diagnose", "measures", "token_sizes", "with_diagnostics"]


def with_diagnostics(groups: Sequence[Group], result: CreditResult) -> CreditResult:
    """``result`` with ``diagnose`` among its metrics, which means the same for every estimator."""
    return replace(result, metrics={**result.metrics, **diagnose(groups, result)})


def diagnose(groups: Sequence[Group], result: CreditResult) -> dict[str, float]:
    """The diagnostics of one call of an estimator. Pure.

    Args:
        groups: What it was given.
        result: What it made of them, aligned with ``groups``.

    Returns:
        Finite numbers by name, as the table above says.

    Raises:
        DataError: ``result`` is not aligned with ``groups``.
    """
    given = [(number, one) for number, group in enumerate(groups) for one in group.trajectories]
    if len(given) != len(result.step_advantages):
        raise DataError(
            f"credit is for {len(result.step_advantages)} trajectories, but the groups hold "
            f"{len(given)}; they must be aligned"
        )
    takes_part = [one is not None for one in result.step_advantages]
    present = [pair for pair, part in zip(given, takes_part, strict=True) if part]
    absent = [one for (_, one), part in zip(given, takes_part, strict=True) if not part]
    for (_, one), advantages in zip(present, _rows(result.step_advantages), strict=True):
        if len(advantages) != len(one.steps):
            raise DataError(
                f"credit of trajectory '{one.id}' of group '{one.group_id}' has {len(advantages)} "
                f"values for {len(one.steps)} steps"
            )
    steps = [step for _, one in present for step in one.steps]
    act = np.array([step.kind == "act" for step in steps], dtype=np.bool_)
    valid = np.array([s.result is None or s.result.action_valid for s in steps], dtype=np.bool_)
    total = _flat(result.step_advantages)
    tokens = token_sizes(result.token_advantages)
    silent = _silent(total, tokens, [len(one.steps) for _, one in present])
    group = np.array([number for number, _ in present], dtype=np.int64)
    scores = np.array([one.reward or 0.0 for _, one in present], dtype=np.float64)
    failed = sum(one.failure is not None for one in absent)
    return {
        **_group_measures(len(groups), group, scores, silent),
        "trajectories": len(present),
        "trajectories_failed": failed,
        "trajectories_unscored": len(absent) - failed,
        "trajectories_silent": int(silent.sum()),
        "valid_action_share": _mean(valid[act]),
        **measures(
            total,
            {name: _flat(part) for name, part in result.parts.items()},
            {name: _flat(one).astype(np.int64) for name, one in result.groups.items()},
            act,
            tokens,
        ),
    }


def measures(
    total: Array,
    parts: Mapping[str, Array],
    partitions: Mapping[str, Labels],
    act: Flags,
    tokens: Array | None = None,
) -> dict[str, float]:
    """Sizes of the components and of the clusters.

    Args:
        total: Advantage of each step, shape (M,).
        parts: Its components, each of shape (M,).
        partitions: Labels, each of shape (M,); negative: compared with nothing.
        act: Which steps are acts, shape (M,); only acts are counted in clusters.
        tokens: Mean size of the token advantages of each step, shape (M,), if there are any.
    """
    silent = total == 0.0 if tokens is None else (total == 0.0) & (tokens == 0.0)
    found: dict[str, float] = {
        "steps": len(total),
        "zero_advantage_share": _mean(total == 0.0),
        "without_signal_share": _mean(silent),
    }
    size = {name: _mean(np.abs(part)) for name, part in parts.items()}
    if tokens is not None:
        size["tokens"] = _mean(tokens)
    whole = sum(size.values())
    for name, mean in size.items():
        found[f"{name}_abs_mean"] = mean
        found[f"{name}_share"] = mean / whole if whole else 0.0
    for name, part in parts.items():
        found[f"{name}_zero_share"] = _mean(part == 0.0)
    for name, labels in partitions.items():
        found |= _cluster_measures(name, labels[act])
    return found


def _cluster_measures(name: str, labels: Labels) -> dict[str, float]:
    """How many clusters, and which share of the acts lies in clusters of which size."""
    size = cluster_sizes(labels)
    clusters = int(dense(labels[labels >= 0]).max(initial=-1)) + 1
    return {
        f"{name}_clusters": clusters,
        f"{name}_size_mean": float((labels >= 0).sum()) / clusters if clusters else 0.0,
        f"{name}_size_max": int(size[labels >= 0].max(initial=0)),
        f"{name}_size_1_share": _mean(size == 1),
        f"{name}_size_2_to_4_share": _mean((size >= 2) & (size <= 4)),
        f"{name}_size_5_to_16_share": _mean((size >= 5) & (size <= 16)),
        f"{name}_size_over_16_share": _mean(size > 16),
    }


def _group_measures(count: int, group: Labels, scores: Array, silent: Flags) -> dict[str, float]:
    """Sizes of the groups, and in how many nothing can be learnt.

    Args:
        count: How many groups there are.
        group: Number of the group of each trajectory that takes part, shape (n,).
        scores: Their scores, shape (n,). silent: which of them got no signal, shape (n,).
    """
    size = np.bincount(group, minlength=count)
    some = size[size > 0]
    several = size > 1
    equal = np.unique(group[equal_groups(scores, group)])
    heard = np.bincount(group, weights=~silent, minlength=count)
    return {
        "groups": count,
        "groups_empty": int((size == 0).sum()),
        "groups_of_one": int((size == 1).sum()),
        "groups_equal": int(several[equal].sum()),
        "groups_silent": int((several & (heard == 0)).sum()),
        "group_size_min": int(some.min()) if len(some) else 0,
        "group_size_mean": _mean(some),
        "group_size_max": int(some.max(initial=0)),
    }


def _silent(total: Array, tokens: Array | None, lengths: Sequence[int]) -> Flags:
    """Which trajectories got no signal on any step or token, shape (trajectories,)."""
    size = np.abs(total) if tokens is None else np.abs(total) + tokens
    ends = np.concatenate(([0.0], np.cumsum(size > 0.0)))
    stops = np.cumsum(np.array(lengths, dtype=np.int64))
    return np.asarray(ends[stops] == ends[stops - np.array(lengths, dtype=np.int64)])


def token_sizes(values: Sequence[Any] | None) -> Array | None:
    """Mean size of the token advantages of each step, shape (M,).

    Args:
        values: For each trajectory, per step, one value per token; a trajectory may be ``None``.
            ``None``: the estimator works by step.
    """
    if values is None:
        return None
    steps = chain.from_iterable(_rows(values))
    return np.array([sum(map(abs, one)) / max(len(one), 1) for one in steps], dtype=np.float64)


def _rows(values: Sequence[Any]) -> Iterable[Any]:
    return (row for row in values if row is not None)


def _flat(values: Sequence[Any]) -> Array:
    return np.array(list(chain.from_iterable(_rows(values))), dtype=np.float64)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0
