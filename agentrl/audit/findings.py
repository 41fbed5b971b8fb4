"""What a check came to, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["HOLDS", "NOT_CHECKED", "VIOLATED", "Audit", "Finding", "judged", "unchecked"]

Status = Literal["holds", "violated", "not checked"]
HOLDS: Status = "holds"
VIOLATED: Status = "violated"
NOT_CHECKED: Status = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check.

    Attributes:
        check: Its name. claim: what it is to prove.
        status: ``not checked``: something that it needs is missing, ``found`` says what. Nothing is
            proven then, and nothing speaks against it.
        found: What was looked at, with counts, and what came of it.
        counts: The same for machines.
        offenders: Each thing that breaks the claim, in words; empty unless ``violated``.
    """

    check: str
    claim: str
    status: Status
    found: str
    counts: Mapping[str, int] = field(default_factory=dict)
    offenders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks of a subject.

    Attributes:
        subject: The run's directory, or the run file.
        state: In words: finished, under way or stopped, not begun.
    """

    subject: str
    state: str
    findings: tuple[Finding, ...]

    @property
    def violated(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.status == VIOLATED)

    @property
    def unchecked(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.status == NOT_CHECKED)

    def to_data(self) -> dict[str, Any]:
        """Plain data: the findings, with the names of those that are violated and not checked."""
        return {
            "subject": self.subject,
            "state": self.state,
            "violated": [one.check for one in self.violated],
            "not_checked": [one.check for one in self.unchecked],
            "findings": list(self.findings),
        }


def judged(
    check: str,
    claim: str,
    found: str,
    offenders: Sequence[str],
    counts: Mapping[str, int],
    *,
    missing: str = "",
) -> Finding:
    """A finding: violated if anything offends, else not checked if something was missing.

    Args:
        check: Its name. claim: what it is to prove.
        found: What was looked at.
        offenders: What breaks the claim.
        counts: Numbers.
        missing: Why the claim is not proven although nothing offends.
    """
    status = VIOLATED if offenders else NOT_CHECKED if missing else HOLDS
    words = f"{found}; {missing}" if missing and found else found or missing
    return Finding(check, claim, status, words, dict(counts), tuple(offenders))


def unchecked(check: str, claim: str, why: str) -> Finding:
    """A finding about which nothing is known."""
    return Finding(check, claim, NOT_CHECKED, why)
