"""How a contract suite is written and run.

A suite is a tuple of checks; a check is a function of one subject (a plug-in, or what makes one).
The first line of its docstring is the rule in words; it raises ``ContractViolation`` saying what
was seen and what to do. ``agentrl check`` prints the findings; tests assert that all are ok.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

DEADLINE_S = 60.0


class ContractViolation(Exception):
    """The part under test breaks a rule of its seam."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check. ``detail`` is empty when ``ok``.

    ``note``: no check at all but something to know about the part, in ``rule``.
    """

    rule: str
    ok: bool
    detail: str
    note: bool = False


def require(condition: bool, message: str) -> None:
    """Raise ``ContractViolation(message)`` unless ``condition``."""
    if not condition:
        raise ContractViolation(message)


async def run_checks(checks: Sequence[Callable[[Any], Any]], subject: Any) -> list[Finding]:
    """Run every check on ``subject``; a check that raises anything or hangs is a failed finding."""
    findings = []
    for check in checks:
        rule = (inspect.getdoc(check) or check.__name__).splitlines()[0]
        try:
            outcome = check(subject)
            if inspect.isawaitable(outcome):
                await asyncio.wait_for(outcome, DEADLINE_S)
        except ContractViolation as violation:
            findings.append(Finding(rule, False, str(violation)))
        except TimeoutError:
            findings.append(Finding(rule, False, f"did not finish within {DEADLINE_S:g} s"))
        except Exception as error:
            findings.append(Finding(rule, False, f"raised {type(error).__name__}: {error}"))
        else:
            findings.append(Finding(rule, True, ""))
    return findings


def assert_contract(checks: Sequence[Callable[[Any], Any]], subject: Any) -> None:
    """For tests: run the suite and fail with every broken rule in words."""
    broken = [one for one in asyncio.run(run_checks(checks, subject)) if not one.ok]
    if broken:
        raise AssertionError("\n".join(f"{one.rule}: {one.detail}" for one in broken))
