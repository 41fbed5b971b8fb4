"""``--json``: standard output is one JSON document, for every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Agentrl


def test_list_and_check(agentrl: Agentrl) -> None:
    assert "toy" in agentrl("list", "--json").json()["env"]
    assert agentrl("list", "store", "--json").json() == {"store": ["sqlite"]}
    findings = agentrl("check", "memory", "window", "--json").json()
    assert all(one["ok"] for one in findings)


def test_init_and_new(agentrl: Agentrl, tmp_path: Path) -> None:
    assert agentrl("init", tmp_path / "a.yaml", "--json").json() == {
        "files": [str(tmp_path / "a.yaml")]
    }
    made = agentrl("new", "env", "coin_game", "--in", tmp_path, "--json").json()
    assert made["spec"] == "coin_game:CoinGameFactory"
    assert [Path(one).name for one in made["files"]] == ["coin_game.py", "test_coin_game.py"]


def test_dry_run(agentrl: Agentrl, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    agentrl("init", file)
    planned = agentrl("train", file, "--dry-run", "--json", f"run_dir={tmp_path / 'new'}").json()
    assert planned["tasks"] == {"train": 274, "validation": 84, "test": 82}
    assert planned["episodes"] == 16 * 16 * 8
    checked = agentrl("check", "run", file, f"run_dir={tmp_path / 'new'}", "--json").json()
    assert checked == planned
    assert agentrl("check", "run", file, "env.name=toi").code == 2
    assert not (tmp_path / "new").exists()


def test_view_and_export(agentrl: Agentrl, run_dir: Path, tmp_path: Path) -> None:
    listed = agentrl("view", run_dir, "--json", "--limit", "2").json()
    assert listed["total"] == 4
    assert [one["id"] for one in listed["episodes"]] == ["late/lose", "mixed/crash"]
    shown = agentrl("view", run_dir, "mixed/win", "--json").json()
    assert shown["credit"]["step_advantages"] == [0.75, 0.5]
    assert shown["trajectory"]["steps"][0]["answer"]["reasoning"] == "food is there"
    beside = agentrl("view", run_dir, "--group", "mixed", "--json").json()
    assert [one["summary"]["outcome"] for one in beside["episodes"]] == [
        *("success", "failure", "infra")
    ]
    page = agentrl("view", run_dir, "--page", "--json").json()
    assert Path(page["page"]).is_file()
    written = agentrl("export", run_dir, tmp_path / "out", "--json").json()
    assert (written["trajectories"], written["steps"]) == (4, 6)


def in_a_process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentrl.cli", *(str(one) for one in arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A real run of a few seconds, through the command line, and what it printed."""
    folder = tmp_path_factory.mktemp("cli")
    assert in_a_process("init", folder / "run.yaml").returncode == 0
    ended = in_a_process(
        *("train", folder / "run.yaml", f"run_dir={folder / 'run'}", "--json"),
        *(
            "stages.0.updates=3",
            "stages.0.learner={}",
            "stages.1.iterations=1",
            "stages.1.tasks_per_iteration=8",
        ),
        *("evaluation.tasks=4", "evaluation.validation_tasks=4", "evaluation.every=1"),
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "run", json.loads(ended.stdout)


def test_a_run_prints_its_report(trained: tuple[Path, Any]) -> None:
    run, report = trained
    assert report == json.loads((run / "report.json").read_text())
    assert len(report["curve"]) == 1


def test_a_finished_run_is_evaluated_looked_at_and_its_prompts_read(
    trained: tuple[Path, Any], agentrl: Agentrl
) -> None:
    run, report = trained
    again = agentrl("evaluate", run, "--json", "--greedy", "threads=1").json()
    assert again["success"] == report["after"]["greedy"]["success"]
    first = agentrl("view", run, "--purpose", "train", "--json", "--limit", "1").json()
    shown = agentrl("view", run, first["episodes"][0]["id"], "--prompts")
    assert "Take the key and open the door." in shown.out
    assert "<|turn|>" in shown.out


def test_a_finished_runs_model_plays_into_a_new_directory_beside_it(
    trained: tuple[Path, Any], agentrl: Agentrl
) -> None:
    run, _ = trained
    for name in ("run-rollout", "run-rollout-2"):
        played = agentrl("rollout", run, "threads=1", "--tasks", "2", "--json")
        assert played.code == 0, played.err
        assert (run.with_name(name) / "store.sqlite").is_file()


def test_train_on_a_runs_directory_says_how_to_go_on(
    trained: tuple[Path, Any], agentrl: Agentrl
) -> None:
    ended = agentrl("train", trained[0])
    assert ended.code == 2
    assert f"agentrl train --resume {trained[0]}" in ended.err


def test_doctor_looks_without_loading_anything_heavy() -> None:
    code = (
        "import sys, json; from typer.testing import CliRunner; from agentrl.cli import app;"
        "result = CliRunner().invoke(app, ['doctor', '--json']);"
        "heavy = {'torch', 'transformers', 'trl', 'numpy', 'datasets'} & set(sys.modules);"
        "print(json.dumps([result.exit_code, json.loads(result.stdout), sorted(heavy)]))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, diagnosis, heavy = json.loads(ended.stdout)
    assert heavy == []
    assert exit_code == 0
    assert diagnosis["healthy"]
    works = {one["name"]: one["works"] for one in diagnosis["backends"]}
    assert works["hf"]
    assert works["scripted"]
    assert diagnosis["machine"]["memory_gib"] > 0


def test_the_shell_completes_commands_and_kinds() -> None:
    def complete(words: str) -> list[str]:
        ended = subprocess.run(
            [Path(sys.executable).with_name("agentrl")],
            env={
                **os.environ,
                "_AGENTRL_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split(" ")) - 1),
            },
            capture_output=True,
            text=True,
        )
        return ended.stdout.split()

    assert complete("agentrl ev") == ["evaluate"]
    assert complete("agentrl check cred") == ["credit"]
    assert complete("agentrl check memory win") == ["window"]
