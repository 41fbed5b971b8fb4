"""Learning from hindsight skills: the numbers of OPID and SEED.

A skill text is put into the prompt of a step and the *same* sampled tokens are scored again; where
the informed policy likes a token better, the token gets credit. Writing, inserting and scoring
skills is an annotator's work; here are the numbers only.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, floats

__all__ = ["RoutingMode", "SkillMode", "route_skills", "skill_reward", "teacher_term"]

RoutingMode = Literal["step_priority", "additive"]
SkillMode = Literal["episode_step", "step_only", "episode_only"]


def route_skills(
    step_skill: str,
    *,
    mode: RoutingMode = "step_priority",
    episode_enabled: bool = True,
    step_enabled: bool = True,
    skill_mode: SkillMode = "episode_step",
) -> tuple[bool, bool]:
    """Which skills score a step: (episode skill, step skill).

    ::

        step    = step skill not blank and enabled
        episode = enabled and (additive or not step)

    Source: OPID's critical-first routing; ``skill_mode`` is SEED's. "Enabled" means weight > 0.

    Raises:
        DataError: an unknown mode.
    """
    if mode not in ("step_priority", "additive"):
        raise DataError(f"mode must be step_priority or additive, got {mode!r}")
    if skill_mode not in ("episode_step", "step_only", "episode_only"):
        raise DataError(
            f"skill_mode must be episode_step, step_only or episode_only, got {skill_mode!r}"
        )
    step = bool(step_skill.strip()) and step_enabled and skill_mode != "episode_only"
    episode = episode_enabled and skill_mode != "step_only" and (mode == "additive" or not step)
    return episode, step


def teacher_term(
    teacher: npt.ArrayLike,
    old: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    normalise: bool = False,
    clip: float | None = None,
) -> Array:
    """How much better the informed policy likes each token::

        d_k = (teacher_k - old_k) * mask_k                    nats
        normalise: (d - mean) / (std + 1e-6) over the active tokens of the batch, ddof 0
                   (only centred if std <= 1e-6), then clipped to [-clip, clip]

    Source: OPID. Added to the advantage after group normalisation, in nats per token: with weight 1
    it would dominate (published weight: 0.001).

    Args:
        teacher: Log-probabilities under the prompt with the skill; any value where the mask is 0.
        old: Log-probabilities of the policy that sampled, same shape.
        mask: 1 on tokens that are scored, same shape; 0 on rows that were not routed.
        normalise: Standardise over the batch.
        clip: Bound, > 0, or ``None``.

    Returns:
        Same shape; 0 where the mask is 0.

    Raises:
        DataError: shapes differ, or an active value is not finite.
    """
    mask = np.asarray(mask, dtype=np.float64)
    gap = np.asarray(teacher, dtype=np.float64) - np.asarray(old, dtype=np.float64)
    if gap.shape != mask.shape:
        raise DataError(f"log-probabilities {gap.shape} and mask {mask.shape} differ in shape")
    active = mask > 0
    gap = np.where(active, gap, 0.0)
    if not np.isfinite(gap).all():
        raise DataError("a teacher log-probability of an active token is not finite")
    if normalise and active.any():
        x = gap[active]
        spread = x.std()
        gap = (gap - x.mean()) / (spread + 1e-6 if spread > 1e-6 else 1.0)
    if clip is not None:
        gap = np.clip(gap, -clip, clip)
    return np.where(active, gap, 0.0)


def skill_reward(
    gain: npt.ArrayLike,
    succeeded: npt.ArrayLike,
    *,
    coefficient: float = 1.0,
    on_failure: Literal["zero", "negate"] = "zero",
    valid_json: npt.ArrayLike | None = None,
    has_skill: npt.ArrayLike | None = None,
    too_long: npt.ArrayLike | None = None,
    bonus: float = 0.2,
    limit: float = 2.0,
) -> Array:
    """Reward for having written a skill.

    ::

        gain'  = gain, or on failure 0 (``zero``) or -gain (``negate``)
        reward = coefficient * gain' + bonus * ([valid JSON] + [has a skill] - [too long])
        clipped to [-limit, limit]

    Source: SEED (bonuses 0.2, or 0 in its ALFWorld script; too long is more than 1200 characters).

    Args:
        gain: Mean over active tokens of teacher minus student log-probability, shape (n,).
        succeeded: Whether the analysed episode did, bool, shape (n,).
        coefficient: Weight of the gain.
        on_failure: What the gain of a failed episode's skill counts as.
        valid_json: bool, shape (n,); ``None``: no bonus. has_skill, too_long: likewise.
        bonus: Size of each bonus. limit: bound of the reward.

    Returns:
        Shape (n,).

    Raises:
        DataError: shapes differ or a gain is not finite.
    """
    gain = floats("gain", gain)
    won = np.asarray(succeeded, dtype=np.bool_)
    if won.shape != gain.shape:
        raise DataError(f"succeeded must have shape {gain.shape}, got {won.shape}")
    lost = np.zeros(len(gain)) if on_failure == "zero" else -gain
    reward = coefficient * np.where(won, gain, lost)
    for sign, given in ((1.0, valid_json), (1.0, has_skill), (-1.0, too_long)):
        if given is not None:
            reward = reward + sign * bonus * floats("bonus", np.asarray(given, float), like=gain)
    return np.clip(reward, -limit, limit)
