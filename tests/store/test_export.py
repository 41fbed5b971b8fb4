"""What is exported comes back from Parquet and from ``datasets`` equal to the records."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agentrl.core.errors import StoreError
from agentrl.core.message import Message
from agentrl.core.trajectory import CreditResult, Sample
from agentrl.store.export import export
from agentrl.store.export_schema import step_schema, trajectory_schema
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.contracts.store import rich_group
from agentrl.testing.episodes import episode, group

Rows = list[dict[str, Any]]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Everything a record may hold, with credit by token, and a group without credit."""
    rich, plain = rich_group(), group("plain", episode("a", ("x", 1.0)), episode("b", ("y", 0.0)))
    steps = [len(one.steps) for one in rich.trajectories]
    takes_part = [place in (0, 3) for place in range(len(steps))]
    values = [
        tuple(0.1 * k for k in range(count)) if part else None
        for count, part in zip(steps, takes_part, strict=True)
    ]
    tokens = [
        tuple(tuple(-0.0 for _ in step.sample.token_ids) for step in one.steps) if part else None
        for one, part in zip(rich.trajectories, takes_part, strict=True)
    ]
    labels = [tuple(range(len(one))) if one is not None else None for one in values]
    with SqliteStore(tmp_path / "run") as store:
        for one in (rich, plain):
            for trajectory in one.trajectories:
                store.append(trajectory, task=one.task, iteration=2, purpose="train")
        store.add_credit(
            [rich], CreditResult(values, tokens, {"episode": values}, {"anchor": labels})
        )
    return tmp_path / "run"


def read(folder: Path, name: str) -> Rows:
    rows: Rows = pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pylist()
    return rows


def told(message: Message) -> dict[str, Any]:
    """A message as an exported row shows it."""
    return {
        "role": message.role,
        "content": message.content.replace("\ud800", "\\ud800"),
        "reasoning": message.reasoning,
        "tool_calls": [
            {
                "id": one.id,
                "name": one.name,
                "arguments": json.dumps(one.arguments),
                "problem": one.problem,
            }
            for one in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id,
    }


def test_steps_come_back_equal(run_dir: Path, tmp_path: Path) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        written = export(store, tmp_path / "out")
        stored = [store.trajectory(line.id) for line in store.find()]
    rows = read(tmp_path / "out", "steps")
    assert written.steps == len(rows) == sum(len(one.trajectory.steps) for one in stored)
    recorded = [
        (one, position, step)
        for one in stored
        for position, step in enumerate(one.trajectory.steps)
    ]
    for row, (one, position, step) in zip(rows, recorded, strict=True):
        assert (row["trajectory_id"], row["position"]) == (one.trajectory.id, position)
        assert tuple(row["prompt_ids"]) == step.prompt_ids
        assert tuple(row["token_ids"]) == step.sample.token_ids
        assert [one.hex() for one in row["logprobs"]] == [x.hex() for x in step.sample.logprobs]
        assert [(v["start"], v["version"]) for v in row["versions"]] == list(step.sample.versions)
        assert row["shown"] == [told(message) for message in step.shown]
        assert row["said"] == told(step.said)
        assert row["action"] == told(step.action)
        assert (row["kind"], row["finish_reason"]) == (step.kind, step.sample.finish_reason)
        assert row["parse_status"] == step.parse_status
        spent = ("sample_s", "env_s", "tool_s", "wait_s")
        assert [row[name] for name in spent] == [getattr(step.timings, name) for name in spent]
        assert row["anchor"] == json.dumps(step.anchor, ensure_ascii=False)
        if step.result is None:
            assert row["reward"] is row["terminated"] is row["observed"] is None
        else:
            assert row["reward"] == step.result.reward
            assert row["truncated"] == step.result.truncated
            assert row["action_valid"] == step.result.action_valid
            assert {x["name"]: x["value"] for x in row["metrics"]} == step.result.metrics
            assert row["observed"] == [told(x) for x in step.result.observation.messages]
        credit = one.credit
        if credit is None or credit.step_advantages is None:
            assert row["advantage"] is row["token_advantages"] is row["advantage_parts"] is None
            continue
        assert row["advantage"] == credit.step_advantages[position]
        assert credit.token_advantages is not None
        assert tuple(row["token_advantages"]) == credit.token_advantages[position]
        assert row["advantage_parts"] == [
            {"name": "episode", "value": credit.parts["episode"][position]}
        ]
        assert row["compared"][0]["label"] == credit.groups["anchor"][position]
        assert row["compared"][0]["size"] == credit.group_sizes["anchor"][position]


def test_trajectories_come_back_equal(run_dir: Path, tmp_path: Path) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        export(store, tmp_path / "out")
        stored = [store.trajectory(line.id) for line in store.find()]
    rows = read(tmp_path / "out", "trajectories")
    for row, one in zip(rows, stored, strict=True):
        line, trajectory = one.summary, one.trajectory
        for name in ("id", "group_id", "task_id", "purpose", "iteration", "outcome", "reward"):
            assert row[name] == getattr(line, name)
        assert (row["success"], row["takes_part"]) == (line.success, line.takes_part)
        assert (row["seed"], row["wall_s"]) == (trajectory.seed, trajectory.wall_s)
        assert row["stop_reason"] == trajectory.stop_reason
        assert json.loads(row["task_payload"]) == one.task.payload
        failure = trajectory.failure
        assert row["failure"] == (
            None
            if failure is None
            else {"boundary": failure.boundary, "error": failure.error, "message": failure.message}
        )
        assert row["final_shown"] == [told(message) for message in trajectory.final_shown]


def test_the_datasets_library_reads_it(run_dir: Path, tmp_path: Path) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        export(store, tmp_path / "out")
    # In a process of its own: the library keeps caches and settings of its own.
    code = (
        "import datasets, json, sys\n"
        "rows = {name: datasets.load_dataset(sys.argv[1], name, split='train')"
        " for name in ('trajectories', 'steps')}\n"
        "print(json.dumps([rows['trajectories']['id'][:], rows['steps'][0]['token_ids'],"
        " rows['steps'].num_rows]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    ids, first, count = json.loads(ended.stdout.splitlines()[-1])
    assert ids == [row["id"] for row in read(tmp_path / "out", "trajectories")]
    assert first == [7, 8, 9]
    assert count == len(read(tmp_path / "out", "steps"))


def test_numbers_that_are_not_finite_stay_what_they_are(tmp_path: Path) -> None:
    whole = group("g", episode("a", ("x", 1.0)))
    step = whole.trajectories[0].steps[0]
    odd = replace(step, sample=Sample((1, 2), (-math.inf, math.nan), ((0, 0),), "stop"))
    with SqliteStore(tmp_path / "run") as store:
        trajectory = replace(whole.trajectories[0], steps=(odd,))
        store.append(trajectory, task=whole.task, iteration=0, purpose="train")
        export(store, tmp_path / "out")
    (row,) = read(tmp_path / "out", "steps")
    assert row["logprobs"][0] == -math.inf
    assert math.isnan(row["logprobs"][1])


def test_it_streams_and_filters(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    with SqliteStore(tmp_path / "run") as store:
        for number in range(8):
            one = group(f"g{number}", episode("a", ("x", number / 8)))
            store.append(one.trajectories[0], task=one.task, iteration=number, purpose="train")
        wanted = TrajectoryFilter(reward=(0.1, None))
        track: Any = lambda *at: progress.append(at)  # noqa: E731
        export(store, tmp_path / "out", wanted, chunk=3, on_progress=track)
    assert progress == [(3, 7), (6, 7), (7, 7)]
    assert pyarrow.parquet.ParquetFile(tmp_path / "out" / "steps.parquet").num_row_groups == 3
    assert [row["iteration"] for row in read(tmp_path / "out", "trajectories")] == [*range(1, 8)]


def test_nothing_is_overwritten_and_nothing_half_is_left(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").touch()
    with SqliteStore(run_dir, read_only=True) as store:
        with pytest.raises(StoreError, match="is not overwritten"):
            export(store, tmp_path / "mine")
        with pytest.raises(StoreError, match="cannot export into"):
            export(store, tmp_path / "file" / "out")

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            export(store, tmp_path / "out", on_progress=interrupt)
    assert {one.name for one in tmp_path.iterdir()} == {"run", "mine", "file"}


def test_a_run_without_episodes_has_empty_tables(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "run") as store:
        written = export(store, tmp_path / "out")
    assert (written.trajectories, written.steps) == (0, 0)
    schemas = {"trajectories": trajectory_schema(), "steps": step_schema()}
    for name, schema in schemas.items():
        assert pyarrow.parquet.read_schema(tmp_path / "out" / f"{name}.parquet").equals(schema)


def test_the_reference_has_every_column_and_no_other() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "export.md"
    _, *parts = page.read_text(encoding="utf-8").split("\n## ")
    for part, schema in zip(parts, (trajectory_schema(), step_schema()), strict=True):
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(schema.names)
