"""What a person sees while a run works: one live line a stage, one line an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from agentrl.core.trajectory import UpdateStats
from agentrl.evaluate.rendering import to_renderable
from agentrl.evaluate.report import CurvePoint, RunReport
from agentrl.stages import Iteration

__all__ = ["Progress", "StageProgress"]


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The live line of one stage."""

    bars: Bars
    task: Any
    console: Console

    def update(self, stats: UpdateStats) -> None:
        """One optimiser step of a cloning stage is done."""
        nll = stats.metrics.get("nll", float("nan"))
        self.bars.update(self.task, advance=1, note=f"loss {nll:.4f}")

    def iteration(self, done: Iteration, point: CurvePoint) -> None:
        """One rollout and its updates are done."""
        success = "-" if done.success is None else f"{done.success:.0%}"
        note = f"success {success}  rollout {done.rollout_s:.1f} s  update {done.update_s:.1f} s"
        self.bars.update(self.task, advance=1, note=note)
        if point.validation is not None:
            shown = point.validation
            self.console.print(
                f"  iteration {point.iteration + 1:>4}  {point.episodes:>7,} episodes  "
                f"{point.wall_s:>6.0f} s  validation success {shown.success:.1%} "
                f"[{shown.low:.1%}, {shown.high:.1%}]"
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run on a console (a quiet console shows nothing)."""

    console: Console

    @contextmanager
    def stage(self, title: str, total: int, done: int = 0) -> Iterator[StageProgress]:
        """The live line of a stage of ``total`` steps, ``done`` of them before a kill."""
        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        with bars:
            yield StageProgress(
                bars, bars.add_task(title, total=total, completed=done, note=""), self.console
            )

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        with self.console.status(text):
            yield

    def note(self, text: str) -> None:
        """One line for the user."""
        self.console.print(text, highlight=False)

    def warn(self, text: str) -> None:
        """Something that will cost the user time unless it is mended."""
        self.console.print(Text.assemble(("warning: ", "bold red"), text))

    def report(self, report: RunReport, run_dir: Path) -> None:
        """The outcome, and where to look."""
        self.console.print(to_renderable(report))
        self.console.print(f"Run directory: {run_dir}", highlight=False)
        self.console.print(f"  open {run_dir / 'report.html'}   agentrl view {run_dir}")
