"""Which rows share a forward pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.errors import ConfigError

__all__ = ["padded_tokens", "plan_micro_batches"]


def plan_micro_batches(
    lengths: Sequence[int], *, budget_tokens: int
) -> tuple[tuple[int, ...], ...]:
    """Cut rows into micro-batches of similar length.

    Rows are sorted by length, longest first (so that memory runs out in the first pass or never),
    and a micro-batch takes rows as long as ``rows * longest <= budget_tokens``. A row longer than
    the budget gets a pass of its own: it cannot be cut. The loss does not depend on the plan.

    Args:
        lengths: Tokens of each row.
        budget_tokens: Padded tokens of one forward pass.

    Returns:
        Positions in ``lengths``, every one exactly once. Equal for equal arguments.

    Raises:
        ConfigError: ``budget_tokens`` is below 1.
    """
    if budget_tokens < 1:
        raise ConfigError(f"micro_batch_tokens={budget_tokens} must be at least 1")
    plan: list[tuple[int, ...]] = []
    current: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if current and (len(current) + 1) * lengths[current[0]] > budget_tokens:
            plan.append(tuple(current))
            current = []
        current.append(position)
    if current:
        plan.append(tuple(current))
    return tuple(plan)


def padded_tokens(lengths: Sequence[int], plan: Sequence[Sequence[int]]) -> int:
    """Tokens computed under ``plan``, pads included."""
    return sum(len(one) * max(lengths[position] for position in one) for one in plan)
