"""What ``init`` and ``new`` write works as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agentrl.config import RunConfig, Section, load_config
from agentrl.scaffold.run_file import RUN_FILE
from tests.cli.conftest import Agentrl


def test_the_run_file_is_valid_and_names_every_key_of_its_sections() -> None:
    config = load_config(yaml.safe_load(RUN_FILE))
    mentioned = set(re.findall(r"(\w+):", RUN_FILE))
    sections: list[Section] = [config, *config.stages]
    while sections:
        section = sections.pop()
        for name in type(section).model_fields:
            value = getattr(section, name)
            assert name in mentioned or name in ("kind", "imitate_noise"), name
            sections += [value] if isinstance(value, Section) else []
    assert isinstance(config, RunConfig)


def test_commented_values_are_the_defaults() -> None:
    uncommented = re.sub(r"^( *)# (\w+: [^#\n]+)(#.*)?$", r"\1\2", RUN_FILE, flags=re.MULTILINE)
    data = yaml.safe_load(uncommented.replace("path: Qwen/Qwen2.5-1.5B-Instruct", ""))
    plain = load_config(yaml.safe_load(RUN_FILE)).model_dump(exclude={"model", "stages", "env"})
    shown = load_config(data).model_dump(exclude={"model", "stages", "env"})
    shown["evaluation"]["early_stop_success"] = None  # has no default to show
    assert shown == plain


def test_a_new_environment_passes_its_contract_and_its_own_test(
    agentrl: Agentrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    agentrl("new", "env", "odd_game", "--in", tmp_path)
    checked = agentrl("check", "env", "odd_game:OddGameFactory")
    assert checked.code == 0, checked.out
    assert agentrl("init", tmp_path / "run.yaml", "--env", "odd_game:OddGameFactory").code == 0
    planned = agentrl(
        *("train", tmp_path / "run.yaml", "--dry-run", f"run_dir={tmp_path / 'run'}"),
    )
    assert planned.code == 0, planned.err
    written = (tmp_path / "odd_game.py").read_text() + (tmp_path / "test_odd_game.py").read_text()
    assert "keleton" not in written
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_odd_game.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout


def test_a_run_file_is_as_large_as_its_environment(
    agentrl: Agentrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    agentrl("new", "env", "small_game", "--in", tmp_path)
    module = tmp_path / "small_game.py"
    module.write_text(module.read_text().replace("NUMBERS = 20", "NUMBERS = 6"))
    path = tmp_path / "run.yaml"
    assert agentrl("init", path, "--env", "small_game:SmallGameFactory").code == 0
    planned = agentrl("train", path, "--dry-run", f"run_dir={tmp_path / 'run'}")
    assert planned.code == 0, planned.err
    config = load_config(path)
    assert config.evaluation.tasks < 30
    assert getattr(config.stages[0], "imitate_noise", False)


TOOL_ENVS = """
from agentrl.core.message import ToolCall
from agentrl.envs.tools import ToolEnvFactory

def problems():
    return [{"question": f"What is {n} * {n}?", "answer": str(n * n)} for n in range(100)]

def expert(task, rng):
    yield task.payload["answer"]

def cloned():
    return ToolEnvFactory(problems(), tools=["calculator"], expert=expert)

def alone():
    return ToolEnvFactory(problems(), tools=["calculator"])
"""


@pytest.mark.parametrize(
    ("env", "form", "options"),
    [
        ("init_envs:cloned", "tools", {}),
        ("init_envs:alone", "tools", {}),
        ("alfworld", "bare", {"action_format": "bare", "text": "compact"}),
        ("tools", "tools", {}),
    ],
)
def test_a_run_file_reads_actions_as_its_environment_wants_them(
    agentrl: Agentrl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    env: str,
    form: str,
    options: dict[str, str],
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "init_envs.py").write_text(TOOL_ENVS)
    path = tmp_path / "run.yaml"
    assert agentrl("init", path, "--env", env).code == 0
    config = load_config(path)
    assert config.agent.action_format == form
    assert config.env.options == options
    planned = agentrl("train", path, "--dry-run", f"run_dir={tmp_path / 'run'}")
    if env == "tools":
        assert "# the factory's keyword arguments; it needs: tasks, tools" in path.read_text()
        assert "needs the option 'tasks', 'tools'" in planned.err
    else:
        assert planned.code == 0, planned.err
    if env == "init_envs:alone":  # nobody to clone from, and to learn a language from
        assert config.model.path is not None
        assert [stage.kind for stage in config.stages] == ["rl"]
        assert config.agent.renderer.name == "chat"


def test_a_new_tool_passes_its_contract_and_its_own_test(
    agentrl: Agentrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    made = agentrl("new", "tool", "odd_tool", "--in", tmp_path)
    assert "agentrl check tool odd_tool:OddTool" in made.out
    assert "agentrl init" not in made.out
    checked = agentrl("check", "tool", "odd_tool:OddTool")
    assert checked.code == 0, checked.out
    written = (tmp_path / "odd_tool.py").read_text() + (tmp_path / "test_odd_tool.py").read_text()
    assert "keleton" not in written
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_odd_tool.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout


def test_a_kind_without_a_skeleton_is_refused(agentrl: Agentrl, tmp_path: Path) -> None:
    ended = agentrl("new", "toll", "odd", "--in", tmp_path)
    assert ended.code == 2
    assert "no skeleton of the kind 'toll'; did you mean 'tool'?" in ended.err


def test_nothing_is_overwritten(agentrl: Agentrl, tmp_path: Path) -> None:
    (tmp_path / "test_coin_game.py").write_text("mine")
    ended = agentrl("new", "env", "coin_game", "--in", tmp_path)
    assert ended.code == 2
    assert "test_coin_game.py exists; nothing was written" in ended.err
    assert [one.name for one in tmp_path.iterdir()] == ["test_coin_game.py"]
    (tmp_path / "run.yaml").write_text("mine")
    assert agentrl("init", tmp_path / "run.yaml").code == 2
    assert (tmp_path / "run.yaml").read_text() == "mine"
