"""What an endpoint was asked for, and what that cost."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace

from agentrl.core.errors import ConfigError

__all__ = ["Meter", "Prices", "Usage"]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in whatever currency the endpoint bills."""

    prompt: float = 0.0
    completion: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("prompt", self.prompt), ("completion", self.completion)):
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise ConfigError(f"prices.{name} must be 0 or more, got {value!r}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of what was answered.

    Attributes:
        requests: Answers that came. uncounted: Those whose tokens the endpoint did not state.
        prompt_tokens, completion_tokens: As the endpoint states them.
        cost: By the prices that were given.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    cost: float = 0.0


class Meter:
    """Adds up what is used, from any thread, and refuses to go beyond a cost.

    Args:
        prices: Of the model.
        most_cost: Where to stop; ``None``: nowhere.
    """

    def __init__(self, prices: Prices, most_cost: float | None = None) -> None:
        if most_cost is not None and most_cost <= 0:
            raise ConfigError(f"most_cost must be above 0, got {most_cost!r}")
        self._prices = prices
        self._most_cost = most_cost
        self._lock = threading.Lock()
        self._usage = Usage()

    @property
    def usage(self) -> Usage:
        return self._usage

    def check(self) -> None:
        """Raise ConfigError if the cost has reached its bound: the run is to stop."""
        spent = self._usage.cost
        if self._most_cost is not None and spent >= self._most_cost:
            raise ConfigError(
                f"the endpoint has cost {spent:.4g}, and most_cost={self._most_cost:g} is reached "
                f"after {self._usage.requests:,} answers: raise it to go on"
            )

    def add(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Count one answer; ``None``: the endpoint does not say."""
        known = prompt_tokens is not None and completion_tokens is not None
        prompt, completion = prompt_tokens or 0, completion_tokens or 0
        price = self._prices
        with self._lock:
            before = self._usage
            self._usage = replace(
                before,
                requests=before.requests + 1,
                prompt_tokens=before.prompt_tokens + prompt,
                completion_tokens=before.completion_tokens + completion,
                uncounted=before.uncounted + (not known),
                cost=before.cost + (prompt * price.prompt + completion * price.completion) / 1e6,
            )
