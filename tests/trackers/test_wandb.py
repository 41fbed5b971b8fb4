"""The real library in offline mode: what is on the disk is what was logged; nothing is asked."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError
from agentrl.trackers.wandb import WeightsAndBiases


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "own"))


BLOCK = 32_768


def blobs(data: bytes) -> Iterator[bytes]:
    """What a ``.wandb`` file holds: LevelDB's log format behind a header of seven bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:  # no header fits into what is left of the block
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield whole
            whole = b""


def records(run_dir: Path) -> list[Mapping[str, Any]]:
    """History of all segments of a run, in order, from the library's own files."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows: list[Mapping[str, Any]] = []
    for path in sorted(run_dir.rglob("run-*.wandb"), key=lambda one: one.stat().st_mtime_ns):
        for blob in blobs(path.read_bytes()):
            record = Record.FromString(blob)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                names = [one.key or "/".join(one.nested_key) for one in items]
                values = [json.loads(one.value_json) for one in items]
                rows.append(dict(zip(names, values, strict=True)))
    return rows


def test_a_resumed_run_goes_on_in_the_same_run(tmp_path: Path) -> None:
    for step in (1, 2):  # a process each
        time.sleep(1.1 * (step - 1))  # the library's folders have names of whole seconds
        tracker = WeightsAndBiases(run_dir=tmp_path, config={"seed": 3}, project="p", tags=["t"])
        tracker.log({"train/success": step / 4}, axis="iteration", step=step)
        tracker.log({"stage0/loss": 2.0}, axis="stage0/update", step=step)
        tracker.close()
    (name,) = {path.name for path in tmp_path.rglob("run-*.wandb")}
    known = (tmp_path / "trackers" / "wandb_id").read_text().strip()
    assert name == f"run-{known}.wandb"
    rows = [{k: v for k, v in row.items() if k[0] != "_"} for row in records(tmp_path)]
    assert rows == [
        {"train/success": 0.25, "iteration": 1},
        {"stage0/loss": 2.0, "stage0/update": 1},
        {"train/success": 0.5, "iteration": 2},
        {"stage0/loss": 2.0, "stage0/update": 2},
    ]


def test_without_a_key_nothing_is_asked_and_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="wandb login"):
        WeightsAndBiases(run_dir=tmp_path, config={}, mode="online")
