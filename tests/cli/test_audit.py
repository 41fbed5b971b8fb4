"""``agentrl audit``: exit codes, JSON, offenders by name."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import yaml

from agentrl.testing.tiny_runs import tiny_run_data
from tests.cli.conftest import Agentrl


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_run_data(tmp_path / "run")))
    return path


def leaky(run_file: Path) -> Path:
    data = yaml.safe_load(run_file.read_text())
    data["env"] = {"name": "tests.audit.factories:Leaky", "options": data["env"]["options"]}
    run_file.write_text(yaml.safe_dump(data))
    return run_file


def test_a_sound_run_file_exits_with_0(agentrl: Agentrl, run_file: Path) -> None:
    ended = agentrl("audit", run_file)
    assert ended.code == 0
    assert "3 of 3 checks hold." in ended.out
    assert ended.out.startswith(f"{run_file} (a run file")


def test_a_violation_exits_with_1_and_names_the_offenders(agentrl: Agentrl, run_file: Path) -> None:
    ended = agentrl("audit", leaky(run_file))
    assert ended.code == 1
    assert "2 of 3 checks hold; violated: splits." in ended.out
    assert "the test task 'test-0' is the train task" in ended.out


def test_json_has_every_finding_and_offender(agentrl: Agentrl, run_file: Path) -> None:
    ended = agentrl("audit", leaky(run_file), "--json")
    assert ended.code == 1
    data = ended.json()
    assert (data["violated"], data["not_checked"]) == (["splits"], [])
    (splits,) = (one for one in data["findings"] if one["check"] == "splits")
    assert splits["status"] == "violated"
    assert len(splits["offenders"]) == splits["counts"]["shared"] == 4


def test_strict_fails_where_something_was_not_checked(agentrl: Agentrl, run_file: Path) -> None:
    data = yaml.safe_load(run_file.read_text())
    data["env"] = {"name": "tests.audit.factories:Unmade"}
    run_file.write_text(yaml.safe_dump(data))
    ended = agentrl("audit", run_file)
    assert ended.code == 0
    assert "not checked: listing, splits, panels" in ended.out
    assert agentrl("audit", run_file, "--strict").code == 1


def test_a_run_that_is_none(agentrl: Agentrl, run_dir: Path) -> None:
    ended = agentrl("audit", run_dir)
    assert ended.code == 2
    assert "is not the directory of a run" in ended.err


def test_an_older_schema(agentrl: Agentrl, run_dir: Path) -> None:
    with sqlite3.connect(run_dir / "store.sqlite") as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    ended = agentrl("audit", run_dir)
    assert ended.code == 1
    assert "has schema version 0; this agentrl reads version 1" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name what to audit"),
        (("nowhere.yaml",), "no run file at 'nowhere.yaml'"),
        (("nowhere.yaml", "--lesson"), "--lesson audits nothing"),
    ],
)
def test_misuse_exits_with_2(agentrl: Agentrl, arguments: tuple[str, ...], words: str) -> None:
    ended = agentrl("audit", *arguments)
    assert ended.code == 2
    assert words in ended.err


def test_overrides_of_a_run_are_refused(agentrl: Agentrl, run_dir: Path) -> None:
    ended = agentrl("audit", run_dir, "seed=3")
    assert ended.code == 2
    assert "overrides (seed=3) go with a run file" in ended.err


def test_the_lesson_is_told(agentrl: Agentrl) -> None:
    ended = agentrl("audit", "--lesson")
    assert ended.code == 0
    assert "2,000 (100%)" in ended.out
    told = agentrl("audit", "--lesson", "--json").json()
    assert told["by_index"]["both"] == 2000
    assert told["by_content"]["both"] == 0
    json.dumps(told)
