"""Every example runs, in a short form."""

from __future__ import annotations

import json
import runpy
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.config import load_config
from agentrl.models.loading import save_policy
from agentrl.models.tiny import tiny_policy
from agentrl.scaffold.run_file import RUN_FILE
from agentrl.testing.checking import check_plugin
from agentrl.testing.tiny_tokenizers import tiny_tokenizer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GAMES_PER_SPLIT = 6


Script = Callable[..., str]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Runs an example as ``python examples/FILE ARGUMENTS``; returns what it printed."""

    def run(name: str, *arguments: object) -> str:
        path = EXAMPLES / name
        monkeypatch.setattr(sys, "argv", [str(path), *(str(one) for one in arguments)])
        monkeypatch.syspath_prepend(EXAMPLES)
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run


def agentrl(*arguments: object) -> Any:
    """What a command prints with ``--json``."""
    result = CliRunner().invoke(app, [*(str(one) for one in arguments), "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def games(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a few real games of every split that the examples play."""
    folder = tmp_path_factory.mktemp("games")
    left = dict.fromkeys(("train", "valid_seen", "valid_unseen"), GAMES_PER_SPLIT)
    with tarfile.open(shared / "data" / "alfworld_games.tar.xz") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            split = name.split("/")[1] if name.endswith("/game.tw-pddl") else ""
            if left.get(split, 0):
                left[split] -= 1
                content = archive.extractfile(member)
                assert content is not None
                (folder / name).parent.mkdir(parents=True)
                (folder / name).write_bytes(content.read())
            if not any(left.values()):
                break
    return folder


def test_the_custom_environment_is_learned(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    # The whole example, not a short form: it takes a quarter of a minute.
    monkeypatch.syspath_prepend(EXAMPLES)
    assert [one for one in check_plugin("env", "custom_env:CupsFactory") if not one.ok] == []
    words = script("custom_env.py").splitlines()[-1].split()
    before, after = (int(word.rstrip("%")) / 100 for word in words if word.endswith("%"))
    assert 0.4 < before < 0.7  # the clone is as clumsy as its expert
    assert after > 0.85


def test_the_custom_tool_is_learned(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The whole example too: half a minute of one core.
    monkeypatch.syspath_prepend(EXAMPLES)
    assert [one for one in check_plugin("env", "custom_tool:cards") if not one.ok] == []
    with pytest.raises(SystemExit) as ended:
        script("custom_tool.py", f"run_dir={tmp_path / 'run'}")
    assert ended.value.code == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["before"]["infra_failures"] == report["after"]["infra_failures"] == 0
    assert 0.3 < report["before"]["success"] < 0.75  # the clone hardly listens, as its expert
    assert report["after"]["success"] > report["before"]["success"] + 0.1
    assert len((EXAMPLES / "custom_tool.py").read_text().splitlines()) < 60


def test_an_agent_of_somebody_elses_is_trained(script: Script, tmp_path: Path) -> None:
    # A short form; the whole takes a minute and a half of one core.
    with pytest.raises(SystemExit) as ended:
        script(
            *("blackbox_agent.py", f"run_dir={tmp_path / 'run'}", "stages.0.updates=2"),
            *("stages.0.learner={}", "stages.0.episodes_per_update=4", "evaluation.trials=1"),
            *("stages.1.iterations=1", "stages.1.tasks_per_iteration=4", "evaluation.tasks=8"),
            "stages.1.updates_per_iteration=1",
        )
    assert ended.value.code == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["before"]["infra_failures"] == report["after"]["infra_failures"] == 0
    assert report["curve"][0]["episodes"] == 32


def test_real_games_are_trained_on(games: Path, tmp_path: Path) -> None:
    report = agentrl(
        *("train", EXAMPLES / "alfworld_real.yaml"),
        *(f"env.options.source={games}", f"run_dir={tmp_path / 'run'}"),
        *("stages.0.updates=2", "stages.0.learner={}", "stages.0.episodes_per_update=4"),
        *("stages.1.iterations=1", "stages.1.tasks_per_iteration=2", "stages.1.group_size=2"),
        *("stages.1.updates_per_iteration=1", "evaluation.every=0", "evaluation.greedy=false"),
        *(f"evaluation.tasks={GAMES_PER_SPLIT}", "env.options.max_steps=4", "agent.max_steps=4"),
    )
    assert report["after"]["tasks"] == GAMES_PER_SPLIT
    assert report["curve"][0]["episodes"] == 4


def test_the_published_setting_is_valid_as_far_as_can_be_seen_without_its_weights(
    games: Path, tmp_path: Path
) -> None:
    planned = agentrl(
        *("train", EXAMPLES / "alfworld_qwen.yaml", "--dry-run"),
        *(f"env.options.source={games}", f"run_dir={tmp_path / 'run'}"),
        *(f"evaluation.tasks={GAMES_PER_SPLIT}", f"evaluation.validation_tasks={GAMES_PER_SPLIT}"),
    )
    assert planned["model"].startswith("Qwen/Qwen2.5-1.5B-Instruct")
    assert planned["episodes"] == 150 * 16 * 8


def test_the_pretrained_model_on_a_cpu_is_valid_as_far_as_can_be_seen_without_a_server(
    games: Path, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer()  # which knows the control tokens of the real one
    save_policy(tmp_path / "model", tiny_policy(tokenizer, context=1024), tokenizer)
    planned = agentrl(
        *("train", EXAMPLES / "alfworld_smollm2_cpu.yaml", "--dry-run"),
        *(f"env.options.source={games}", f"run_dir={tmp_path / 'run'}"),
        *(f"model.path={tmp_path / 'model'}", "stages.0.demonstrations=6"),
    )
    assert planned["episodes"] == 2 * 2 * 4


def test_the_published_values_are_those_cited() -> None:
    config = load_config(EXAMPLES / "alfworld_qwen.yaml")
    (stage,) = config.stages
    credit: dict[str, Any] = stage.credit.options  # type: ignore[union-attr]
    assert (stage.group_size, stage.tasks_per_iteration) == (8, 16)  # type: ignore[union-attr]
    assert (config.learner.learning_rate, config.learner.kl_coefficient) == (1e-6, 0.01)
    assert (config.env.options["max_steps"], config.env.options["reward_success"]) == (50, 10)
    assert (credit["discount"], credit["normaliser"]) == (0.95, "mean_std")
    assert (credit["step_weight"], credit["invalid_action_penalty"]) == (1.0, 0.1)
    assert (config.sampling.max_tokens, config.agent.max_tokens) == (512, 512 + 2048)


def test_estimators_are_compared_from_one_start_on_the_same_tasks(
    script: Script, tmp_path: Path
) -> None:
    short = yaml.safe_load(RUN_FILE)
    short["stages"][0] |= {"updates": 3, "episodes_per_update": 4, "learner": {}}
    short["stages"][1] |= {"iterations": 1, "tasks_per_iteration": 2, "group_size": 2}
    short["stages"][1] |= {"updates_per_iteration": 1}
    short["evaluation"] |= {"tasks": 8, "every": 0, "greedy": False}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(short))
    out = tmp_path / "out"
    printed = script(
        *("compare_estimators.py", tmp_path / "run.yaml", "grpo", "gigpo={normaliser: mean_std}"),
        *("--seeds", "2", "--out", out),
    )
    assert "against the first" in printed
    results = json.loads((out / "comparison.json").read_text())
    assert [one["estimator"] for one in results] == ["grpo", "gigpo={normaliser: mean_std}"]
    assert results[0]["before"] == results[1]["before"]  # one start, and the very same episodes
    assert results[0]["difference"] is None
    assert results[1]["difference"]["tasks"] == 8
    assert len(results[1]["by_seed"]) == 2
