"""What is to be played, and the bounds of the play."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentrl.core.errors import ConfigError
from agentrl.core.task import Task, derive_seed

__all__ = ["GroupRequest", "Limits", "pause_before"]

LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """Play ``size`` episodes of ``task``; trials are numbered from ``first_trial``.

    The seed of an episode is derived from (``seed``, task id, trial).
    """

    id: str
    task: Task
    size: int
    seed: int
    first_trial: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the play. What is played, and with which seeds, depends on none of them.

    Attributes:
        concurrency: Episodes in flight.
        env_concurrency: Of these, how many of one environment (``Task.env``); 0: no limit.
        tokens_in_flight: Prompts and longest answers the engine works on at once; 0: no limit.
        retries: Further attempts after an infra failure, each with a fresh environment.
        backoff_s: Pause before the first of them; it doubles each time, and varies by a half.
        give_up_after: Failed episodes in a row, none finished between, that stop the run. Of one
            task only the attempts at one episode count, so no single bad task stops it.
        quorum: Finished episodes that a group needs to be delivered, once all attempts are spent
            (its size, if that is smaller); 0: groups are delivered whatever finished.
        straggler_s: Seconds that the rest of a group is given once its quorum is reached; then it
            is abandoned. ``None``: every episode is waited for.
        stall_s: Seconds without any call that returned, or episode that ended, that stop the run.
        outages: Further attempts beside ``retries``, each after one that failed because the engine
            was down for others too; what outages take beyond them counts like any failure.

    Raises:
        ConfigError: a bound is out of its range.
    """

    concurrency: int = 128
    retries: int = 2
    give_up_after: int = 16
    env_concurrency: int = 0
    tokens_in_flight: int = 0
    backoff_s: float = 0.0
    quorum: int = 0
    straggler_s: float | None = None
    stall_s: float = math.inf
    outages: int = 20

    def __post_init__(self) -> None:
        for name, least in (
            ("concurrency", 1),
            ("give_up_after", 1),
            ("retries", 0),
            ("outages", 0),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.straggler_s is not None and not self.quorum:
            raise ConfigError(
                f"straggler_s={self.straggler_s:g} cuts what comes after a quorum, and quorum is 0:"
                " set quorum to at least 1, or leave straggler_s out"
            )


def pause_before(attempt: int, seed: int, backoff_s: float) -> float:
    """Seconds before ``attempt``, from 1; the same for the same episode, different for others.

    ``backoff_s * 2**(attempt - 1)``, at most a minute, times a factor in [0.5, 1.5) drawn from the
    episode's ``seed``, so that what failed together does not return together.
    """
    pause = min(backoff_s * 2.0 ** min(attempt - 1, 30), LONGEST_PAUSE_S)
    return pause * (0.5 + derive_seed(seed, "pause", attempt) / 2**63)
