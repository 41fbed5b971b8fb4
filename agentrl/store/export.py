"""A run's trajectories and steps as Parquet, one row group at a time.

The folder that ``export`` writes is a data set as the ``datasets`` library reads it::

    datasets.load_dataset("FOLDER", "steps", split="train")
    pandas.read_parquet("FOLDER/trajectories.parquet")

Whatever has no fixed shape (task payloads, anchors, arguments of tool calls) is JSON text. Numbers
come back bit for bit; lone surrogates, which Parquet's text cannot hold, are spelt as escapes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from agentrl.core.errors import StoreError
from agentrl.core.message import Message
from agentrl.core.trajectory import Failure, Step
from agentrl.store.export_schema import SUMMARY, step_schema, trajectory_schema
from agentrl.store.records import StoredTrajectory, TrajectoryCredit, TrajectoryFilter
from agentrl.store.sqlite import SqliteStore

__all__ = ["Exported", "export", "step_rows", "trajectory_row"]

CHUNK = 64  # trajectories held in memory at once
CARD = """---
configs:
- config_name: trajectories
  data_files: trajectories.parquet
- config_name: steps
  data_files: steps.parquet
---
# Episodes of an agent

Written by `agentrl export`: one row per episode in `trajectories.parquet`, one per call of the
policy in `steps.parquet` (`trajectory_id` and `position` lead from one to the other). Token ids are
those that were sampled, `logprobs` their log-probabilities; `advantage` is empty for what took no
part in credit.
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """What ``export`` wrote."""

    path: Path
    trajectories: int
    steps: int


def export(
    store: SqliteStore,
    folder: Path,
    wanted: TrajectoryFilter | None = None,
    *,
    chunk: int = CHUNK,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write ``trajectories.parquet``, ``steps.parquet`` and a data card into a new folder.

    Only ``chunk`` trajectories are in memory at a time, however many there are. The run may go on
    meanwhile; what is appended after the call began is left out. The folder appears when it is
    complete.

    Args:
        store: Store of the run.
        folder: Folder to make.
        wanted: Which trajectories; ``None``: all.
        chunk: Trajectories in memory at once, and in one row group.
        on_progress: Called with trajectories written and trajectories in all.

    Raises:
        StoreError: ``folder`` exists, or cannot be written.
    """
    if folder.exists():
        raise StoreError(f"'{folder}' exists and is not overwritten; export into another folder")
    ids = [line.id for line in store.find(wanted)]
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # what a killed export left
    try:
        part.mkdir(parents=True)
        steps = _write(store, part, ids, chunk, on_progress)
        (part / "README.md").write_text(CARD, encoding="utf-8")
        part.rename(folder)
    except OSError as error:
        raise StoreError(f"cannot export into '{folder}': {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(folder, len(ids), steps)


def _write(
    store: SqliteStore,
    part: Path,
    ids: Sequence[str],
    chunk: int,
    on_progress: Callable[[int, int], None],
) -> int:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schemas = trajectory_schema(), step_schema()
    done = written = 0
    with (
        ParquetWriter(part / "trajectories.parquet", schemas[0], compression="zstd") as episodes,
        ParquetWriter(part / "steps.parquet", schemas[1], compression="zstd") as steps,
    ):
        for start in range(0, len(ids), chunk):
            stored = [store.trajectory(one) for one in ids[start : start + chunk]]
            rows = [trajectory_row(one) for one in stored]
            episodes.write_table(pyarrow.Table.from_pylist(rows, schemas[0]))
            rows = list(chain.from_iterable(step_rows(one) for one in stored))
            steps.write_table(pyarrow.Table.from_pylist(rows, schemas[1]))
            done, written = done + len(stored), written + len(rows)
            on_progress(done, len(ids))
    return written


def trajectory_row(stored: StoredTrajectory) -> dict[str, Any]:
    """The row of one episode in ``trajectories.parquet``."""
    line, trajectory = stored.summary, stored.trajectory
    row = {name: getattr(line, name) for name in SUMMARY}
    row = {name: _text(one) if isinstance(one, str) else one for name, one in row.items()}
    return row | {
        "seed": trajectory.seed,
        "stop_reason": trajectory.stop_reason.value,
        "failure": _failure(trajectory.failure),
        "close_failure": _failure(trajectory.close_failure),
        "final_shown": [_message(one) for one in trajectory.final_shown],
        "task_payload": _json(stored.task.payload),
    }


def step_rows(stored: StoredTrajectory) -> Iterator[dict[str, Any]]:
    """The rows of one episode in ``steps.parquet``."""
    for position, step in enumerate(stored.trajectory.steps):
        yield (
            {"trajectory_id": _text(stored.trajectory.id), "position": position}
            | _step(step)
            | _credit(stored.credit, position)
        )


def _step(step: Step) -> dict[str, Any]:
    sample, result = step.sample, step.result
    row = {
        "index": step.index,
        "kind": step.kind,
        "shown": [_message(one) for one in step.shown],
        "anchor": _json(step.anchor),
        "prompt_ids": step.prompt_ids,
        "token_ids": sample.token_ids,
        "logprobs": sample.logprobs,
        "versions": [{"start": start, "version": version} for start, version in sample.versions],
        "finish_reason": sample.finish_reason,
        "said": _message(step.said),
        "action": _message(step.action),
        "action_key": _text(step.action_key),
        "parse_status": _text(step.parse_status),
        "sample_s": step.timings.sample_s,
        "env_s": step.timings.env_s,
        "tool_s": step.timings.tool_s,
        "wait_s": step.timings.wait_s,
    }
    if result is None:
        return row
    admissible = result.observation.admissible
    return row | {
        "observed": [_message(one) for one in result.observation.messages],
        "observed_anchor": _json(result.observation.anchor),
        "admissible": None if admissible is None else [_text(one) for one in admissible],
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "action_valid": result.action_valid,
        "success": result.success,
        "metrics": _numbers(result.metrics),
    }


def _credit(credit: TrajectoryCredit | None, position: int) -> dict[str, Any]:
    if credit is None or credit.step_advantages is None:
        return {}
    tokens = credit.token_advantages
    return {
        "advantage": credit.step_advantages[position],
        "token_advantages": None if tokens is None else tokens[position],
        "advantage_parts": _numbers({name: one[position] for name, one in credit.parts.items()}),
        "compared": [
            {
                "name": _text(name),
                "label": one[position],
                "size": credit.group_sizes[name][position],
            }
            for name, one in credit.groups.items()
        ],
    }


def _message(message: Message) -> dict[str, Any]:
    calls = [
        {
            "id": _text(one.id),
            "name": _text(one.name),
            "arguments": _json(one.arguments),
            "problem": None if one.problem is None else _text(one.problem),
        }
        for one in message.tool_calls
    ]
    return {
        "role": message.role,
        "content": _text(message.content),
        "reasoning": None if message.reasoning is None else _text(message.reasoning),
        "tool_calls": calls,
        "tool_call_id": None if message.tool_call_id is None else _text(message.tool_call_id),
    }


def _failure(failure: Failure | None) -> dict[str, str] | None:
    if failure is None:
        return None
    fields = ("boundary", "error", "message")
    return {name: _text(getattr(failure, name)) for name in fields}


def _numbers(named: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": _text(name), "value": value} for name, value in named.items()]


def _json(value: Any) -> str:
    """JSON text; tuples are lists in it, and what is no ASCII stands as itself."""
    plain = dict(value) if isinstance(value, Mapping) else value
    return _text(json.dumps(plain, ensure_ascii=False, default=dict))


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
