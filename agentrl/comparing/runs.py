"""What a run brings to a comparison, read from its directory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.config import RunConfig, load_config
from agentrl.core.errors import ConfigError, DataError, StoreError
from agentrl.core.task import content_hash
from agentrl.evaluate.report import CurvePoint
from agentrl.evaluate.success import SuccessReport
from agentrl.run_directory import CONFIG_FILE, read_manifest
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore

__all__ = ["ComparedRun", "PanelScore", "read_run"]

SCORES = {"sampled": "after", "greedy": "after/greedy"}


@dataclass(frozen=True, slots=True)
class PanelScore:
    """How the finished policy did on the test panel.

    Attributes:
        by_task: Task id to the success of each scored trial.
        contents: Task id to a hash of what the environment builds it from.
        report: As the run reported it.
    """

    by_task: Mapping[str, tuple[float, ...]]
    contents: Mapping[str, str]
    report: SuccessReport

    @property
    def success(self) -> float:
        return self.report.success


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run, as far as it has come.

    Attributes:
        name: Its directory, as it was given.
        config: As it was made.
        finished: False: it is under way, or was stopped.
        curve: Its iterations.
        scores: Of the finished policy, by how it was played: ``sampled``, ``greedy``.
        validation: Hash of the tasks that its validations were played on; ``None``: there is none.
    """

    name: str
    config: RunConfig
    finished: bool
    curve: tuple[CurvePoint, ...]
    scores: Mapping[str, PanelScore]
    validation: str | None

    @property
    def seed(self) -> int:
        return self.config.seed


def read_run(path: Path) -> ComparedRun:
    """Read a run, finished or not.

    Raises:
        ConfigError: no run that trains is there.
        StoreError: it has no store yet, or a damaged one.
        SchemaVersionError: its store is of another release. DataError: so are its records.
    """
    if not path.is_dir():
        raise ConfigError(f"'{path}' is not a directory; give the directories of runs")
    manifest = read_manifest(path)
    if manifest["command"] != "train":
        raise ConfigError(
            f"'{path}' was made by 'agentrl {manifest['command']}' and learnt nothing; give runs "
            "of 'agentrl train'"
        )
    config = load_config(path / CONFIG_FILE)
    with SqliteStore(path, read_only=True) as store:
        try:
            return _read(str(path), config, store)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{store.path}: what it says of iterations and evaluations is damaged or of "
                f"another release ({error!r}); compare runs that this release can read"
            ) from error


def _read(name: str, config: RunConfig, store: SqliteStore) -> ComparedRun:
    tasks = {
        one.task.id: _content(one.task.env, one.task.kind, one.task.payload)
        for one in store.played_tasks()
    }
    reports = {event.data["purpose"]: event.data for event in store.events("evaluation")}
    return ComparedRun(
        name=name,
        config=config,
        finished=bool(store.events("finished")),
        curve=tuple(CurvePoint.from_data(one.data) for one in store.events("iteration")),
        scores={
            how: _score(store, purpose, tasks, reports[purpose])
            for how, purpose in SCORES.items()
            if purpose in reports
        },
        validation=_validation(store, tasks),
    )


def _score(
    store: SqliteStore, purpose: str, contents: Mapping[str, str], report: Mapping[str, Any]
) -> PanelScore:
    last: dict[tuple[str, int], float | None] = {}
    for line in store.find(TrajectoryFilter(purpose=purpose)):
        if line.purpose == purpose:  # the last attempt counts, and a finished one is the last
            failed = line.outcome == "infra"
            last[line.task_id, line.trial] = None if failed else float(line.success is True)
    if not last:
        raise StoreError(
            f"{store.path}: the evaluation '{purpose}' was reported, and none of its episodes is "
            "on record; look with: agentrl audit"
        )
    by_task: dict[str, list[float]] = defaultdict(list)
    for (task, _), success in sorted(last.items()):
        by_task[task] += [] if success is None else [success]
    told = {name: value for name, value in report.items() if name != "purpose"}
    return PanelScore(
        by_task={task: tuple(some) for task, some in by_task.items()},
        contents={task: contents[task] for task in by_task},
        report=SuccessReport.from_data(told),
    )


def _validation(store: SqliteStore, contents: Mapping[str, str]) -> str | None:
    """Of the tasks of the first validation; all later ones have the same."""
    lines = store.find(TrajectoryFilter(purpose="validation"))
    if not lines:
        return None
    ids = sorted({line.task_id for line in lines if line.purpose == lines[0].purpose})
    return content_hash([[id, contents[id]] for id in ids])


def _content(env: str, kind: str, payload: Mapping[str, Any]) -> str:
    return content_hash([env, kind, repr(sorted(payload.items()))])
