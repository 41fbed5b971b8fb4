"""The learning rate over updates. Pure."""

from __future__ import annotations

import math
from typing import Literal

from agentrl.core.errors import ConfigError

__all__ = ["Schedule", "check_schedule", "learning_rate_factor"]

Schedule = Literal["constant", "linear", "cosine"]


def check_schedule(schedule: Schedule, warmup_updates: int, total_updates: int | None) -> None:
    """Refuse a schedule that cannot be followed.

    Raises:
        ConfigError: a schedule that falls has no end, or warm-up lasts until the end.
    """
    if schedule == "constant":
        return
    if total_updates is None:
        raise ConfigError(
            f"learner.schedule={schedule} falls towards the last update and needs total_updates; "
            "give it, or use schedule=constant"
        )
    if warmup_updates >= total_updates:
        raise ConfigError(
            f"learner.warmup_updates={warmup_updates} must be below the {total_updates} updates of "
            f"the stage when learner.schedule={schedule}"
        )


def learning_rate_factor(
    update: int, *, schedule: Schedule, warmup_updates: int, total_updates: int | None
) -> float:
    """Factor of the learning rate at ``update``, counted from 0.

    Computes, with W warm-up updates and T in all::

        u < W:  (u + 1) / W              so that the first update does move the weights
        u >= W: p = (u - W) / (T - W);   constant 1, linear 1 - p, cosine (1 + cos(pi p)) / 2

    Past T the factor of a falling schedule is 0.
    """
    if update < warmup_updates:
        return (update + 1) / warmup_updates
    if schedule == "constant" or total_updates is None:
        return 1.0
    progress = min(1.0, (update - warmup_updates) / (total_updates - warmup_updates))
    return 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
