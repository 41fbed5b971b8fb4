"""What may be resumed, with what changes, and what is refused before anything is touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rich.console import Console

from agentrl.checkpoints import CHECKPOINTS
from agentrl.core.errors import AgentRLError, ConfigError, DataError, SchemaVersionError, StoreError
from agentrl.evaluate.report import read_report
from agentrl.resuming import config_to_resume
from agentrl.run_directory import create_run_directory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import resume, train

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def begun(run_dir: Path, overrides: Sequence[str] = (), *, command: str = "train") -> Path:
    """The directory of a run that was killed before it had played anything."""
    create_run_directory(tiny_run(run_dir, overrides), command=command)
    return run_dir


def files(run_dir: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in run_dir.rglob("*") if one.is_file()}


def refusal(run_dir: Path, *overrides: str, kind: type[AgentRLError] = ConfigError) -> str:
    before = files(run_dir) if run_dir.is_dir() else {}
    with pytest.raises(kind) as caught:
        resume(run_dir, overrides, console=QUIET)
    after = files(run_dir) if run_dir.is_dir() else {}
    assert {one: after.get(one) for one in before} == before
    return str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "rollout.concurrency=3",
        "rollout.retries=0",
        "rollout={poison_after: 0, step_timeout_s: 5, backoff_s: 9}",
        "store.synchronous=full",
        "checkpoints={every: 1, keep: 7}",
        "stages.1.max_seconds=60",
        "threads=4",
        "learner.micro_batch_tokens=64",
        "engine.options={slots: 4}",
        "model.device=cuda",
        "trackers=[{name: wandb, options: {project: p, tags: [a]}}]",
    ],
)
def test_what_changes_no_result_may_be_changed(tmp_path: Path, override: str) -> None:
    begun(tmp_path / "run")
    assert config_to_resume(tmp_path / "run", [override])[0] != tiny_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed=2", "seed (1 -> 2)"),
        ("sampling.temperature=0.5", "sampling.temperature (1.0 -> 0.5)"),
        ("stages.1.iterations=9", "stages.1.iterations (2 -> 9)"),
        ("stages=[]", "stages.0.kind ('clone' -> None)"),
        ("learner.learning_rate=1", "learner.learning_rate (0.003 -> 1.0)"),
        ("env.options.max_rooms=4", "env.options.max_rooms (3 -> 4)"),
        ("env.options.new=1", "env.options.new (None -> 1)"),
        ("evaluation.tasks=3", "evaluation.tasks (4 -> 3)"),
        ("rollout.quorum=2", "rollout.quorum (0 -> 2)"),
    ],
)
def test_what_makes_another_run_is_refused_by_name(
    tmp_path: Path, override: str, words: str
) -> None:
    text = refusal(begun(tmp_path / "run"), override)
    assert f"cannot be resumed with {words}" in text or words in text
    assert "it would be another run" in text


def test_a_deterministic_run_keeps_what_changes_bits(tmp_path: Path) -> None:
    run_dir = begun(tmp_path / "run", ["deterministic=true"])
    assert config_to_resume(run_dir, ["rollout.concurrency=3"])[0].rollout.concurrency == 3
    assert "learner.micro_batch_tokens" in refusal(run_dir, "learner.micro_batch_tokens=64")


def edit(run_dir: Path, old: str, new: str) -> None:
    """Change ``config.yaml`` as a user would."""
    file = run_dir / "config.yaml"
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))


def test_what_was_changed_in_the_file_is_heeded_where_it_may_change(tmp_path: Path) -> None:
    run_dir = begun(tmp_path / "run")
    assert config_to_resume(run_dir, [])[1] == ""
    edit(run_dir, "concurrency: 128", "concurrency: 3")
    config, edits = config_to_resume(run_dir, ["rollout.retries=5"])
    assert (config.rollout.concurrency, config.rollout.retries) == (3, 5)
    assert edits == "rollout.concurrency (128 -> 3)"
    assert config_to_resume(run_dir, ["rollout.concurrency=4"])[0].rollout.concurrency == 4


def test_what_was_changed_in_the_file_is_refused_where_it_may_not(tmp_path: Path) -> None:
    run_dir = begun(tmp_path / "run")
    edit(run_dir, "learning_rate: 0.003", "learning_rate: 0.1")
    text = refusal(run_dir)
    assert "cannot be resumed with learner.learning_rate (0.003 -> 0.1): it would be" in text
    assert f"(learner.learning_rate was changed in '{run_dir}/config.yaml': change it back)" in text
    text = refusal(run_dir, "learner.learning_rate=0.003", "seed=4")
    assert "cannot be resumed with seed (1 -> 4)" in text
    assert "change it back" not in text
    edit(run_dir, "learning_rate: 0.1", "learnig_rate: 0.1")
    assert "unknown key 'learner.learnig_rate'" in refusal(run_dir)


def test_a_run_of_a_release_without_the_record_has_its_file(tmp_path: Path) -> None:
    manifest = begun(tmp_path / "run") / "manifest.json"
    data = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**data, "config": {"model": "?"}}))
    assert "is damaged or of another release" in refusal(tmp_path / "run", kind=DataError)
    del data["config"]
    manifest.write_text(json.dumps(data))
    assert config_to_resume(tmp_path / "run", ["store.synchronous=full"])[1] == ""
    assert "seed (1 -> 2)" in refusal(tmp_path / "run", "seed=2")


def test_a_run_directory_may_be_moved(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    moved = tmp_path / "elsewhere"
    (tmp_path / "run").rename(moved)
    assert config_to_resume(moved, [])[0].run_dir == moved


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "is not the directory of a run" in refusal(tmp_path / "nothing")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("precious")
    assert "it has no config.yaml" in refusal(tmp_path / "notes")
    rolled_out = begun(tmp_path / "play", command="rollout")
    assert "was made by 'agentrl rollout', not by 'agentrl train'" in refusal(rolled_out)
    early = begun(tmp_path / "early")
    (early / "config.yaml").unlink()
    assert "killed before it began: remove it and start the run again" in refusal(early)


def test_a_damaged_or_newer_run_is_refused(tmp_path: Path) -> None:
    manifest = begun(tmp_path / "run") / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole[:40])
    assert "manifest.json' is damaged" in refusal(tmp_path / "run", kind=DataError)
    manifest.write_text(json.dumps(json.loads(whole) | {"schema_version": 2, "agentrl": "9.0"}))
    text = refusal(tmp_path / "run", kind=SchemaVersionError)
    assert "schema version 2 (written by agentrl 9.0), and this agentrl reads version 1" in text
    manifest.write_text(whole)
    (tmp_path / "run" / "store.sqlite").write_bytes(b"not a database" * 100)
    assert "the file is no database" in refusal(tmp_path / "run", kind=StoreError)


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    run_dir = begun(tmp_path / "run")
    with (
        SqliteStore(run_dir),
        pytest.raises(StoreError, match="another process or store object is writing to this run"),
    ):
        resume(run_dir, console=QUIET)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    train(tiny_run(run_dir, ["evaluation={tasks: 1, every: 0, greedy: false}"]), console=QUIET)
    return run_dir


def test_a_finished_run_is_only_reported_again(finished: Path) -> None:
    before = {one: one.stat().st_mtime_ns for one in finished.rglob("*") if "store" not in one.name}
    program = (
        "import sys\nfrom agentrl.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "train", "--resume", str(finished), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == read_report(finished).to_data()
    after = {one: one.stat().st_mtime_ns for one in finished.rglob("*") if "store" not in one.name}
    assert after == before


def test_a_measured_evaluation_is_never_played_by_another_policy(
    finished: Path, tmp_path: Path
) -> None:
    # Somebody deleted an episode of the panel "before": it cannot be played with today's weights.
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    with SqliteStore(run_dir) as store:
        connection = store._connection
        for table, column in (("steps", "trajectory"), ("trajectories", "key")):
            connection.execute(
                f"DELETE FROM {table} WHERE {column} IN (SELECT t.key FROM trajectories t"
                " JOIN groups ON groups.key = t.group_key WHERE purpose = 'before')"
            )
        connection.execute("DELETE FROM events WHERE kind = 'finished'")
    text = refusal_of_resume(run_dir)
    assert "the evaluation 'before' was finished, and the store lacks its episode" in text


def refusal_of_resume(run_dir: Path) -> str:
    with pytest.raises(DataError) as caught:
        resume(run_dir, console=QUIET)
    return str(caught.value)


def test_the_directory_of_a_run_has_no_leftovers(finished: Path) -> None:
    assert not list(finished.rglob(".*"))
    assert len(list((finished / CHECKPOINTS).iterdir())) == 2
