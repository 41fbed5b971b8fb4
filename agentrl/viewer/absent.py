"""What a run does hold, where a filter found nothing in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agentrl.core.errors import nearest
from agentrl.store.records import TrajectoryFilter, TrajectorySummary

__all__ = ["absent_lines"]

MOST_NAMES = 8
WORDS = ("kind", "purpose", "outcome", "stop_reason", "task_id", "group_id")


def absent_lines(
    wanted: TrajectoryFilter, held: Sequence[TrajectorySummary]
) -> Iterator[tuple[str, str]]:
    """``(subject, words)`` for each thing that was asked for: what there is of it.

    Args:
        wanted: The filter that no trajectory matches.
        held: All trajectories of the run.
    """
    for name in WORDS:
        asked = getattr(wanted, name)
        if asked is not None:
            counts = Counter(str(getattr(one, name)) for one in held)
            yield name.removesuffix("_id").replace("_", " "), _counted(str(asked), counts)
    if wanted.iteration is not None:
        numbers = sorted({one.iteration for one in held})
        yield "iteration", f"from {numbers[0]:,} to {numbers[-1]:,}"
    if wanted.reward is not None:
        yield "reward", _span([one.reward for one in held])
    if wanted.advantage is not None:
        yield (
            "advantage",
            _span([end for one in held for end in (one.advantage_low, one.advantage_high)]),
        )


def _counted(asked: str, counts: Counter[str]) -> str:
    names = [f"{name or '(none)'} {count:,}" for name, count in counts.most_common(MOST_NAMES)]
    more = len(counts) - len(names)
    hint = "" if asked in counts else nearest(asked, list(counts)).removeprefix("; ")
    return ", ".join(names) + f", and {more:,} more" * (more > 0) + f" ({hint})" * bool(hint)


def _span(values: Sequence[float | None]) -> str:
    known = [one for one in values if one is not None]
    return f"from {min(known):g} to {max(known):g}" if known else "none was given yet"
