"""All checks, of a run or of a run file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentrl.audit.findings import Audit
from agentrl.audit.learning import check_learning, check_samples, walk
from agentrl.audit.listing import check_listing, list_tasks
from agentrl.audit.panels import check_panel_plan, check_panels
from agentrl.audit.plays import check_plays
from agentrl.audit.record import read_record
from agentrl.audit.splits import by_role, check_splits
from agentrl.audit.versions import check_staleness, check_versions
from agentrl.config import RunConfig
from agentrl.store.sqlite import SqliteStore

__all__ = ["audit_config", "audit_run"]


def audit_config(config: RunConfig, *, name: str) -> Audit:
    """Audit what a run file says of tasks and panels; nothing is played or written.

    Args:
        config: The run.
        name: What to call it.

    Raises:
        ConfigError: the environment lacks a split that it names.
        DataError: a payload is not plain data.
    """
    listing = list_tasks(config)
    findings = (
        check_listing(listing, {}),
        check_splits(listing, ()),
        check_panel_plan(config, listing),
    )
    return Audit(name, "a run file: nothing was played yet", findings)


def audit_run(run_dir: Path, *, on_stage: Callable[[str], None] = lambda _: None) -> Audit:
    """Audit a run from its store, whether it is finished, under way or was killed.

    Args:
        run_dir: Its directory.
        on_stage: Told what is being looked at.

    Raises:
        ConfigError: no run is there.
        StoreError: it has no store, a damaged one, or no episode yet.
        SchemaVersionError: its store is of another schema.
        DataError: a payload is not plain data.
    """
    with SqliteStore(run_dir, read_only=True) as store:
        on_stage("reading the store")
        record = read_record(run_dir, store)
        on_stage("listing the environment's tasks")
        listing = list_tasks(record.config)
        on_stage(f"reading the tokens of {len(record.lines):,} attempts")
        found = walk(record)
        played = {role: [one.task for one in some] for role, some in by_role(record.tasks).items()}
        plays, staleness = check_plays(record), check_staleness(record)
        findings = (
            check_listing(listing, played),
            check_splits(listing, record.tasks),
            check_panels(record, listing),
            *([] if plays is None else [plays]),
            check_samples(found),
            *check_learning(record, found),
            check_versions(record, found),
            *([] if staleness is None else [staleness]),
        )
    state = "finished" if record.finished else "under way or stopped: judged as far as it went"
    return Audit(str(run_dir), state, findings)
