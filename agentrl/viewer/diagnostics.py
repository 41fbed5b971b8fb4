"""The diagnostics of an iteration's credit, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.store.sqlite import SqliteStore

__all__ = ["credit_metrics", "diagnostics_lines"]


def credit_metrics(
    store: SqliteStore, iteration: int | None = None
) -> tuple[int, Mapping[str, Any]] | None:
    """The newest credit that was recorded: its iteration and its metrics.

    Args:
        store: Store of the run.
        iteration: Only of this iteration.
    """
    events = store.events("credit", iteration=iteration)
    return (events[-1].iteration, events[-1].data) if events else None


def diagnostics_lines(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """``(subject, words)``: groups, steps, parts, then each partition.

    Metrics that an earlier release did not record are left out.
    """
    yield from _groups(metrics)
    if "without_signal_share" in metrics:
        yield (
            "steps",
            f"{metrics['steps']:,.0f}, {metrics['without_signal_share']:.0%} left without signal",
        )
    parts = [
        f"{name} {metrics[f'{name}_share']:.0%} (mean size {metrics[f'{name}_abs_mean']:.3g})"
        for name in _names(metrics, "_abs_mean")
        if f"{name}_share" in metrics
    ]
    if parts:
        yield "parts", ", ".join(parts)
    for name in _names(metrics, "_clusters"):
        if f"{name}_size_mean" in metrics:
            yield (
                name,
                f"{metrics[f'{name}_clusters']:,.0f} clusters of {metrics[f'{name}_size_mean']:.1f}"
                f" steps, at most {metrics[f'{name}_size_max']:,.0f}; "
                f"{metrics[f'{name}_size_1_share']:.0%} of the acts compared with nothing",
            )


def _groups(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "groups_silent" not in metrics:
        return
    least, most = metrics["group_size_min"], metrics["group_size_max"]
    sizes = f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
    words = [f"{metrics['groups']:,.0f} of {sizes} trajectories"]
    for name, said in (
        ("groups_empty", "without any"),
        ("groups_of_one", "of one"),
        ("groups_equal", "with equal scores"),
        ("groups_silent", "without any signal"),
    ):
        if metrics[name]:
            words.append(f"{metrics[name]:,.0f} {said}")
    left_out = metrics["trajectories_failed"], metrics["trajectories_unscored"]
    if any(left_out):
        words.append(
            f"{left_out[0]:,.0f} failed and {left_out[1]:,.0f} unscored trajectories left out"
        )
    yield "groups", ", ".join(words)


def _names(metrics: Mapping[str, Any], ending: str) -> list[str]:
    return [key.removesuffix(ending) for key in metrics if key.endswith(ending)]
