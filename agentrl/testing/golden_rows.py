"""The row batches of golden files: given in full, or drawn by the files' seeded generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.core.errors import DataError
from agentrl.credit.columns import Columns
from agentrl.credit.functional import Array, episode_scores, number
from agentrl.testing.episodes import act

__all__ = ["Generator", "RowBatch", "long_texts", "row_batch", "token_mask"]


class Generator:
    """The 64-bit linear congruential generator of the golden files."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def uniform(self) -> float:
        """A float in [0, 1)."""
        self._state = (6364136223846793005 * self._state + 1442695040888963407) % 2**64
        return (self._state >> 11) / 2**53

    def below(self, limit: int) -> int:
        """An integer in [0, limit)."""
        return int(self.uniform() * limit)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows as columns, and the token mask, shape (n, W)."""

    columns: Columns
    mask: Array


def row_batch(inputs: Mapping[str, Any], anchors: Sequence[Any] | None = None) -> RowBatch:
    """The rows of a case, in file order; ``anchors`` replaces what the file does not hold.

    Raises:
        DataError: the file's own checks (``check_*``, ``episode_reward``) do not hold.
    """
    if "params" in inputs:
        return _generated(inputs)
    given = inputs["anchor_obs"]
    columns = _columns(
        inputs["group"],
        inputs["traj"],
        anchors if anchors is not None else given,
        inputs.get("env_step_reward", [0.0] * len(inputs["group"])),
        inputs.get("is_action_valid", [True] * len(inputs["group"])),
        inputs.get("action_key"),
    )
    score = inputs.get("episode_reward")
    duplicated = "duplicated_source_rows" in inputs
    if score is not None and not duplicated:
        ours = episode_scores(columns.reward, columns.trajectory)
        if not np.allclose(ours, score, rtol=1e-6, atol=1e-6):
            raise DataError("episode_reward is not the sum of env_step_reward")
    return RowBatch(columns, token_mask(inputs["response_len"], inputs["response_width"]))


def token_mask(lengths: Sequence[int], width: int) -> Array:
    """1 on the first ``lengths[r]`` tokens of each row, shape (n, width)."""
    return (np.arange(width) < np.asarray(lengths)[:, None]).astype(np.float64)


def long_texts(inputs: Mapping[str, Any]) -> list[str]:
    """The four long observations of the similarity case."""
    draw = Generator(2024)
    text = "".join("abcdefghijklmnopqrstuvwxyz "[draw.below(27)] for _ in range(4000))
    if not text.startswith(inputs["check_prefix"]):
        raise DataError("the drawn text does not begin with check_prefix")
    return ["alpha " + text, "other " + text, "alpha " + text, "alpha " + text[:1000]]


def _generated(inputs: Mapping[str, Any]) -> RowBatch:
    p = inputs["params"]
    draw = Generator(p["seed"])
    rows: list[tuple[str, str, str, int, bool, float]] = []
    for g in range(p["nG"]):
        for t in range(p["nT"]):
            length = 1 + draw.below(p["maxT"])
            for s in range(length):
                anchor = f"g{g}_o{draw.below(p['K'])}"
                tokens = 1 + draw.below(p["Lmax"])
                valid = draw.uniform() >= p["pinv"]
                won = s == length - 1 and draw.uniform() < p["pr"]
                rows.append((f"g{g}", f"g{g}_t{t}", anchor, tokens, valid, 10.0 * won))
    group, trajectory, anchors, tokens_, valid_, reward = (
        list(one) for one in zip(*rows, strict=True)
    )
    for key, value in (
        ("check_rows", len(rows)),
        ("check_reward_sum", sum(reward)),
        ("check_valid_count", sum(valid_)),
        ("check_len_sum", sum(tokens_)),
    ):
        if key in inputs and inputs[key] != value:
            raise DataError(f"{key} is {inputs[key]}, but the drawn batch has {value}")
    columns = _columns(group, trajectory, anchors, reward, valid_, None)
    return RowBatch(columns, token_mask(tokens_, p["Lmax"]))


def _columns(
    group: Sequence[str],
    trajectory: Sequence[str],
    anchors: Sequence[Any],
    reward: Sequence[float],
    valid: Sequence[bool],
    action_key: Sequence[str] | None,
) -> Columns:
    seen: dict[str, int] = {}
    index = []
    for one in trajectory:
        index.append(seen.get(one, 0))
        seen[one] = index[-1] + 1
    groups = number(group)
    keys = action_key or [""] * len(group)
    return Columns(
        group=groups,
        trajectory=number(trajectory),
        index=np.array(index, dtype=np.int64),
        act=np.ones(len(group), dtype=np.bool_),
        reward=np.array(reward, dtype=np.float64),
        valid=np.array(valid, dtype=np.bool_),
        steps=tuple(
            act(anchor, index=k, action=key, tokens=1)
            for anchor, k, key in zip(anchors, index, keys, strict=True)
        ),
        groups=int(groups.max()) + 1,
    )
