"""Checkpoints are whole or not there, few, checked before use, and never lost to a full disk."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentrl.checkpoints import CHECKPOINTS, Checkpoints, RunState
from agentrl.config import CheckpointsConfig
from agentrl.core.errors import DataError, SchemaVersionError, StoreError
from agentrl.core.protocols import Scores
from agentrl.core.trajectory import Batch, Row, UpdateStats


@dataclass(slots=True)
class WritingLearner:
    """Writes one file; or half of it, and then the disk is full."""

    weights: bytes = b"weights"
    disk_full: bool = False

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        raise AssertionError("nothing is trained here")

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        raise AssertionError("nothing is scored here")

    def publish(self) -> int:
        raise AssertionError("nothing is published here")

    def save(self, path: Path) -> None:
        (path / "model").mkdir(parents=True)
        half = self.weights[: len(self.weights) // 2] if self.disk_full else self.weights
        (path / "model" / "weights").write_bytes(half)
        if self.disk_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def load(self, path: Path) -> None:
        raise AssertionError("the run loads it")


def checkpoints(run_dir: Path, keep: int = 2) -> Checkpoints:
    return Checkpoints(run_dir, CheckpointsConfig(keep=keep))


def names(run_dir: Path) -> list[str]:
    return sorted(one.name for one in (run_dir / CHECKPOINTS).iterdir())


def test_a_run_without_checkpoints_begins_at_the_start(tmp_path: Path) -> None:
    assert checkpoints(tmp_path).latest() is None


def test_the_latest_comes_back_as_it_was(tmp_path: Path) -> None:
    state = RunState(1, 2, 3, 4, 5, 6, 0.1, 1 / 3, 9, ["before", "before/greedy"])
    checkpoints(tmp_path).save(RunState(), WritingLearner())
    checkpoints(tmp_path).save(state, WritingLearner())
    found = checkpoints(tmp_path).latest()
    assert found is not None
    assert found.state == state
    assert (found.model / "weights").read_bytes() == b"weights"


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(12):
        checkpoints(tmp_path, keep=3).save(RunState(step=step), WritingLearner())
    assert names(tmp_path) == ["000010", "000011", "000012"]
    latest = checkpoints(tmp_path).latest()
    assert latest is not None
    assert latest.state.step == 11


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    checkpoints(tmp_path).save(RunState(step=1), WritingLearner())
    (tmp_path / CHECKPOINTS / ".new" / "learner").mkdir(parents=True)  # killed while writing
    (tmp_path / CHECKPOINTS / "000002" / "learner").mkdir(parents=True)  # killed while deleting
    latest = checkpoints(tmp_path).latest()
    assert latest is not None
    assert latest.state.step == 1
    checkpoints(tmp_path).save(RunState(step=2), WritingLearner())
    latest = checkpoints(tmp_path).latest()
    assert latest is not None
    assert latest.state.step == 2
    assert latest.path.name == "000003"


def test_a_full_disk_leaves_the_last_good_one_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"No space left on device; there is none yet\. Mend"):
        checkpoints(tmp_path).save(RunState(), WritingLearner(disk_full=True))
    assert names(tmp_path) == []
    checkpoints(tmp_path, keep=1).save(RunState(step=1), WritingLearner())
    with pytest.raises(StoreError, match=r"the last one, '.*000001', is intact.*--resume"):
        checkpoints(tmp_path, keep=1).save(RunState(step=2), WritingLearner(disk_full=True))
    assert names(tmp_path) == ["000001"]
    latest = checkpoints(tmp_path).latest()
    assert latest is not None
    assert latest.state.step == 1


def damage(run_dir: Path, name: str, how: str) -> None:
    file = run_dir / CHECKPOINTS / "000002" / name
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
        return
    if how == "short":
        del content[-2:]
    elif how == "flipped":
        content[2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("learner/model/weights", "missing", "learner/model/weights is missing"),
        ("learner/model/weights", "short", "learner/model/weights was changed"),
        ("learner/model/weights", "flipped", "learner/model/weights was changed"),
        ("run.json", "short", "run.json: JSONDecodeError"),
    ],
)
def test_a_damaged_one_is_named_with_the_way_out(
    tmp_path: Path, name: str, how: str, words: str
) -> None:
    for step in (1, 2):
        checkpoints(tmp_path).save(RunState(step=step), WritingLearner())
    damage(tmp_path, name, how)
    with pytest.raises(DataError) as caught:
        checkpoints(tmp_path).latest()
    text = str(caught.value)
    assert text.startswith(f"the checkpoint '{tmp_path / CHECKPOINTS / '000002'}' is damaged: ")
    assert words in text
    assert f"goes on from '{tmp_path / CHECKPOINTS / '000001'}'" in text


def test_without_an_earlier_one_the_way_out_is_the_start(tmp_path: Path) -> None:
    checkpoints(tmp_path).save(RunState(), WritingLearner())
    (tmp_path / CHECKPOINTS / "000001" / "learner" / "model" / "weights").unlink()
    with pytest.raises(DataError, match="goes on from the start of the run"):
        checkpoints(tmp_path).latest()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = checkpoints(tmp_path).save(RunState(), WritingLearner())
    data = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(data | {"schema_version": 2}))
    with pytest.raises(SchemaVersionError, match="schema version 2, this program reads 1"):
        checkpoints(tmp_path).latest()
