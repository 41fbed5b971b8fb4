"""A learner's checkpoint that was damaged is refused in words, whichever file it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.config import LearnerConfig
from agentrl.core.errors import DataError, StoreError
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.tiny_models import tiny_model


def learner() -> TrlLearner:
    return TrlLearner(tiny_model(vocab_size=32), None, LearnerConfig(), temperature=1.0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("optimiser.pt", r"optimiser\.pt' is damaged"),
        ("learner.json", r"learner\.json' is damaged"),
        ("model/model.safetensors", "cannot read the weights"),
        ("model/config.json", "cannot read the weights"),
    ],
)
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, name: str, words: str) -> None:
    one = learner()
    one.save(tmp_path / "c")
    file = tmp_path / "c" / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError, match=words):
        one.load(tmp_path / "c")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        learner().save(tmp_path / "file" / "c")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
