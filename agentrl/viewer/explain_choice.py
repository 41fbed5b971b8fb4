"""Which group to explain, and which estimator gave its credit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.config import ReinforceStage, load_config
from agentrl.core.errors import AgentRLError, ConfigError, DataError, nearest
from agentrl.core.protocols import CreditEstimator
from agentrl.registry import make
from agentrl.run_directory import CONFIG_FILE
from agentrl.store.records import TrajectoryFilter, TrajectorySummary
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.wording import signed

__all__ = ["Used", "find_group", "instructive_group", "run_estimator"]

NEAREST_OF = 2_000  # names that a misspelt one is compared with: more would take seconds


@dataclass(frozen=True, slots=True)
class Used:
    """The estimator of a run. ``unknown`` says why there is none."""

    estimator: CreditEstimator | None = None
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unknown: str = ""


def run_estimator(run_dir: Path, group_id: str) -> Used:
    """The estimator that gave a group its credit, by the run's configuration.

    A ``module:attr`` in it runs that module's code, as the run itself did.
    """
    try:
        stages = load_config(run_dir / CONFIG_FILE).stages
    except AgentRLError as error:
        return Used(unknown=f"the run's configuration cannot be read ({_first_line(error)})")
    learning = [one for one in stages if isinstance(one, ReinforceStage)]
    named = re.match(r"stage(\d+)-", group_id)  # groups of a run begin with the name of their stage
    number = int(named[1]) if named else -1
    stage = stages[number] if 0 <= number < len(stages) else None
    if stage is None and len(learning) == 1:
        stage = learning[0]
    if not isinstance(stage, ReinforceStage):
        return Used(unknown=f"no rl stage of the run's configuration fits the group '{group_id}'")
    name, options = stage.credit.name, stage.credit.options
    try:
        return Used(make("credit", name, options), name, options)
    except AgentRLError as error:
        return Used(None, name, options, f"it cannot be made here ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def find_group(store: SqliteStore, given: str) -> str:
    """The id of the group that ``given`` is, or begins.

    Raises:
        ConfigError: there is none, or several.
    """
    if store.count(TrajectoryFilter(group_id=given)):
        return given
    known = list(dict.fromkeys(line.group_id for line in store.find()))
    found = [one for one in known if one.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(f"'{one}'" for one in found[:5])
        raise ConfigError(
            f"'{given}' begins the names of {len(found):,} groups: {shown}"
            f"{', ...' if len(found) > 5 else ''}; give more of the name"
        )
    raise ConfigError(
        f"no group '{given}' in this run{nearest(given, known[-NEAREST_OF:]) or '.'} It holds "
        f"{len(known):,} groups; 'agentrl view RUN --purpose train' lists the newest episodes, "
        "whose ids begin with their group's"
    )


def instructive_group(store: SqliteStore) -> tuple[str, str]:
    """The group of the newest credit that shows most, and why it was chosen.

    Raises:
        DataError: no credit was recorded yet.
    """
    lines = _newest_credited(store)
    by_group: dict[str, list[TrajectorySummary]] = {}
    for line in lines:
        by_group.setdefault(line.group_id, []).append(line)
    group_id, members = max(by_group.items(), key=lambda pair: _contrast(pair[1]))
    low, high = _range(members)
    which = f"of the {len(by_group)} groups of iteration {lines[0].iteration}, the newest with"
    if low == high == 0.0:
        return group_id, f"{which} credit, the first: none got any signal"
    return (
        group_id,
        f"{which} signal, the one with the most different advantages "
        f"({signed(low)} .. {signed(high)})",
    )


def _newest_credited(store: SqliteStore) -> list[TrajectorySummary]:
    credited = store.events("credit")
    heard = [one for one in credited if one.data.get("without_signal_share", 0.0) < 1.0]
    for one in (heard or credited)[-1:]:
        wanted = TrajectoryFilter(iteration=one.iteration)
        lines = [line for line in store.find(wanted) if line.takes_part is not None]
        if lines:
            return lines
    lines = [line for line in store.find() if line.takes_part is not None]
    if not lines:
        raise DataError(
            f"{store.path}: no credit was recorded yet; it is given at the end of the first rl "
            "iteration's rollout"
        )
    return [line for line in lines if line.iteration == lines[-1].iteration]


def _contrast(members: Sequence[TrajectorySummary]) -> float:
    """How differently steps were treated, inside a trajectory and over the group."""
    inside = sum((one.advantage_high or 0.0) - (one.advantage_low or 0.0) for one in members)
    low, high = _range(members)
    return inside / len(members) + high - low


def _range(members: Sequence[TrajectorySummary]) -> tuple[float, float]:
    ends = [
        end for one in members for end in (one.advantage_low, one.advantage_high) if end is not None
    ]
    return min(ends, default=0.0), max(ends, default=0.0)
