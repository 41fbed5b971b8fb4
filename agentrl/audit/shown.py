"""An audit for people: a line a check, then who offends."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl.audit.findings import Audit, Finding, Status
from agentrl.audit.lesson import Lesson

__all__ = ["NAMED", "show_audit", "show_lesson"]

NAMED = 5  # offenders of a check that are printed; --json has all of them
STYLES: dict[Status, str] = {
    "holds": "green",
    "violated": "bold red",
    "not checked": "yellow",
}


def show_audit(audit: Audit, console: Console) -> None:
    """Print every check with what was found, then the offenders and the outcome."""
    console.print(f"{audit.subject} ({audit.state})", highlight=False, markup=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in audit.findings:
        words = Text(one.claim)
        words.append(f"\n{one.found}", style="dim")
        table.add_row(Text(one.status, style=STYLES[one.status]), one.check, words)
    console.print(table)
    for one in audit.violated:
        for line in _offenders(one):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(_outcome(audit), highlight=False, markup=False, soft_wrap=True)


def _offenders(finding: Finding) -> Iterator[str]:
    yield f"{finding.check}:"
    for one in finding.offenders[:NAMED]:
        yield f"  - {one}"
    rest = len(finding.offenders) - NAMED
    if rest > 0:
        yield f"  - and {rest:,} more (--json names all)"


def _outcome(audit: Audit) -> str:
    holding = len(audit.findings) - len(audit.violated) - len(audit.unchecked)
    words = f"{holding} of {len(audit.findings)} checks hold"
    for what, some in (("violated", audit.violated), ("not checked", audit.unchecked)):
        if some:
            words += f"; {what}: {', '.join(one.check for one in some)}"
    return words + "."


def show_lesson(told: Lesson, console: Console) -> None:
    """Print what both ways of sharing out came to."""
    console.print(
        f"{told.goals:,} goals, {told.trainers} workers that train, {told.testers} that test.",
        highlight=False,
    )
    both = (told.by_index, told.by_content)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("problems")
    for one in both:
        table.add_column(one.way, justify="right")
    for subject, numbers in (
        ("trained on by some worker", [f"{one.trained:,}" for one in both]),
        ("tested on by some worker", [f"{one.tested:,}" for one in both]),
        ("in both", [f"{one.both:,} ({one.leak:.0%})" for one in both]),
        ("in both under one id", [f"{one.by_id:,}" for one in both]),
        ("in both in one worker", [f"{one.in_one_worker:,}" for one in both]),
        ("different test splits", [f"{one.test_splits:,}" for one in both]),
    ):
        table.add_row(subject, *numbers)
    console.print(table)
    leaky = told.by_index
    console.print(
        f"Every worker's own split is disjoint ({leaky.in_one_worker} in both), and ids that are "
        f"places in a list show {leaky.by_id} tasks in both. By their content {leaky.leak:.0%} of "
        "the problems that are tested are trained on by some worker. A split that follows from the "
        "content is the same in all of them.",
        highlight=False,
    )
