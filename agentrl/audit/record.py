"""What a run has on record, read once for all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrl.config import RunConfig, load_config
from agentrl.core.errors import StoreError
from agentrl.run_directory import CONFIG_FILE, read_manifest
from agentrl.store.evidence import PlayedTask
from agentrl.store.records import RunEvent, TrajectorySummary
from agentrl.store.sqlite import SqliteStore
from agentrl.store.trained import TrainedBatch

__all__ = ["RunRecord", "read_record"]

FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as its store has it.

    Attributes:
        lines: Its trajectories by id, in the order they were recorded.
        tasks: What was played. trained: What its updates learnt from.
        updates: Events ``update``. evaluations: Events ``evaluation``.
        iterations: Events ``iteration``, one for each that is over.
        finished: Whether it came to its end. command: of agentrl that made it.
    """

    config: RunConfig
    store: SqliteStore
    lines: Mapping[str, TrajectorySummary]
    tasks: tuple[PlayedTask, ...]
    trained: tuple[TrainedBatch, ...]
    updates: tuple[RunEvent, ...]
    evaluations: tuple[RunEvent, ...]
    iterations: tuple[RunEvent, ...]
    finished: bool
    command: str

    @property
    def trains(self) -> bool:
        return bool(self.updates)

    @property
    def silent(self) -> str:
        """How many updates do not say what they learnt from, in words; empty if all do."""
        count = len(self.updates) - len(self.trained)
        return f"{count:,} updates have no record of their rows" if count > 0 else ""


def read_record(run_dir: Path, store: SqliteStore) -> RunRecord:
    """Read what the checks need; the whole database is checked for damage first.

    Args:
        run_dir: Directory of the run.
        store: Its store, opened.

    Raises:
        ConfigError: ``run_dir`` is not the directory of a run, or its configuration is not of this
            release.
        StoreError: the store is damaged, or holds no episode.
    """
    manifest = read_manifest(run_dir)
    config = load_config(run_dir / CONFIG_FILE)
    store.verify()
    lines = store.find()
    if not lines:
        raise StoreError(
            f"{store.path} holds no episode yet, so there is nothing to audit; wait until the run "
            "has played, or audit its run file"
        )
    return RunRecord(
        config=config,
        store=store,
        lines={line.id: line for line in lines},
        tasks=tuple(store.played_tasks()),
        trained=tuple(store.trained()),
        updates=tuple(store.events("update")),
        evaluations=tuple(store.events("evaluation")),
        iterations=tuple(store.events("iteration")),
        finished=bool(store.events(FINISHED)) or manifest["command"] != "train",
        command=manifest["command"],
    )
