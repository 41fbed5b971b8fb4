"""Where the time of a rollout went, in words; the same while it runs and afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.rollout.load import shares
from agentrl.store.sqlite import SqliteStore

__all__ = ["load_lines", "newest_load"]

MOST_CAUSES = 4


def newest_load(
    store: SqliteStore, iteration: int | None = None
) -> tuple[int, Mapping[str, Any]] | None:
    """The newest record of a rollout: its iteration and its numbers.

    Args:
        store: Store of the run.
        iteration: Only of this iteration.
    """
    events = store.events("rollout", iteration=iteration)
    return (events[-1].iteration, events[-1].data) if events else None


def load_lines(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """``(subject, words)``: episodes, engine, a step's time, failures by cause.

    What an earlier release did not record, and what did not happen, is left out.

    Args:
        data: As ``Load.to_data``.
    """
    words = [f"{data['finished']:,} finished"]
    for name, said in (
        ("recorded", "taken from the store"),
        ("failed", "failed for good"),
        ("retried", "attempts tried again"),
        ("abandoned", "abandoned"),
        ("poisoned", "set aside"),
        ("late", "late results dropped"),
    ):
        if data[name]:
            words.append(f"{data[name]:,} {said}")
    yield "episodes", ", ".join(words)
    if data.get("play_s"):
        yield "engine", ", ".join(_engine(data))
    if data.get("asynchrony"):
        yield "staleness", ", ".join(_asynchrony(data["asynchrony"]))
    spent = shares(data)
    if spent:
        yield "steps", ", ".join(f"{name} {share:.0%}" for name, share in spent.items() if share)
    causes = sorted(data["failures"].items(), key=lambda one: (-one[1], one[0]))
    if causes:
        listed = [f"{cause} {count:,}" for cause, count in causes[:MOST_CAUSES]]
        left = sum(count for _, count in causes[MOST_CAUSES:])
        yield "failures", ", ".join(listed + ([f"others {left:,}"] if left else []))


def _asynchrony(data: Mapping[str, Any]) -> Iterator[str]:
    """Of ``Asynchrony.to_data``: how old the groups were, and how well the time was used."""
    for age, count in sorted(Counter(data["ages"].values()).items()):
        yield f"{count:,} group{'s' * (count != 1)} of age {age}"
    if data["stale"]:
        yield f"{len(data['stale']):,} dropped as too old"
    yield f"the learner waited {data['waited_s']:.1f} s"
    if data["overlap"] is not None:
        yield f"the engine computed in {data['overlap']:.0%} of the updates' time"


def _engine(data: Mapping[str, Any]) -> Iterator[str]:
    if data["engine_utilisation"] is not None:
        yield f"busy {data['engine_utilisation']:.0%}"
    if data["engine_mean_batch"]:
        yield f"{data['engine_mean_batch']:.1f} requests a pass"
    yield f"{data['tokens_per_s']:,.0f} tokens/s"
