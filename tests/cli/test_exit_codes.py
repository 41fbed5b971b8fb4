"""0 done, 1 failed, 2 misuse; whatever is misspelt gets the nearest name."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from agentrl import __version__
from agentrl.cli.app import ORDER
from tests.cli.conftest import Agentrl

BAD_FACTORIES = """
import signal
from agentrl.core.errors import DataError
class Damaged:
    def __init__(self): raise DataError("the games are damaged")
class Buggy:
    def __init__(self): raise ZeroDivisionError("a bug")
class Stopped:
    def __init__(self): raise KeyboardInterrupt
class Killed:
    def __init__(self): signal.raise_signal(signal.SIGTERM)
class Halting:
    splits = ("train",)
    def tasks(self, split): return []
    async def make(self, task, *, seed): ...
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module with environments that fail when they are made."""
    (tmp_path / "bad_factories.py").write_text(BAD_FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_factories", raising=False)
    return "bad_factories"


def test_help_lists_every_command(agentrl: Agentrl) -> None:
    shown = agentrl("--help")
    assert shown.code == 0
    places = [shown.out.index(f"│ {name} ") for name in ORDER]
    assert places == sorted(places)
    assert agentrl("--version").out == f"agentrl {__version__}\n"


@pytest.mark.parametrize("command", [(), ("train",), ("view",), ("credit", "explain")])
def test_help_says_no_type_of_a_switch(agentrl: Agentrl, command: tuple[str, ...]) -> None:
    shown = agentrl(*command, "--help").out
    assert "bool" not in shown
    assert " --help " in shown


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("trian",), "Did you mean 'train'?"),
        (("view",), "Missing argument"),
        (("list", "--jsn"), "--json"),
        (("list", "evn"), "did you mean 'env'?"),
        (("check", "envs", "toy"), "did you mean 'env'?"),
        (("check", "env", "toi"), "did you mean 'toy'?"),
        (("check", "env", "toy", "max_room=5"), "did you mean 'max_rooms'?"),
        (("check", "env", "toy", "max_rooms"), "must look like key=value"),
        (("check", "env", "no_such_module:Factory"), "No module named 'no_such_module'"),
        (("new", "evn", "coin_game"), "did you mean 'env'?"),
        (("new", "memory", "coin_game"), "no skeleton of the kind 'memory'"),
        (("new", "env", "2 coins"), "cannot be the name of a Python module"),
        (("new", "env", "random"), "cannot be the name of a Python module"),
        (("init", "x.yaml", "--env", "toi"), "did you mean 'toy'?"),
        (("train", "nowhere.yaml"), "no run file at 'nowhere.yaml'"),
        (("evaluate", "."), "not the directory of a finished run"),
    ],
)
def test_misuse_is_2_and_says_what_to_do(
    agentrl: Agentrl,
    arguments: tuple[str, ...],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = agentrl(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert hint in " ".join(ended.err.split())


def test_failure_is_1(agentrl: Agentrl, tmp_path: Path, factories: str) -> None:
    ended = agentrl("view", tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("agentrl: no store at")
    ended = agentrl("check", "env", f"{factories}:Damaged", "--json")
    assert ended.code == 1
    assert "the games are damaged" in ended.out


def test_a_bug_keeps_its_traceback(agentrl: Agentrl, factories: str, tmp_path: Path) -> None:
    agentrl("init", tmp_path / "run.yaml")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        agentrl("train", tmp_path / "run.yaml", f"env.name={factories}:Buggy", "--dry-run")


def test_being_stopped_has_a_code_and_a_word(
    agentrl: Agentrl, factories: str, tmp_path: Path
) -> None:
    agentrl("init", tmp_path / "run.yaml")
    ended = agentrl("train", tmp_path / "run.yaml", f"env.name={factories}:Stopped", "--dry-run")
    assert ended.code == 130
    assert ended.err == "agentrl: stopped; what was finished is kept\n"


def test_sigterm_ends_a_command_as_ctrl_c_does(
    agentrl: Agentrl, factories: str, tmp_path: Path
) -> None:
    agentrl("init", tmp_path / "run.yaml")
    before = signal.getsignal(signal.SIGTERM)
    ended = agentrl("train", tmp_path / "run.yaml", f"env.name={factories}:Killed", "--dry-run")
    assert ended.code == 143
    assert ended.err == "agentrl: stopped by SIGTERM; what was finished is kept\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_broken_contract_is_1_and_in_words(agentrl: Agentrl, factories: str) -> None:
    ended = agentrl("check", "env", f"{factories}:Halting")
    assert ended.code == 1
    assert "FAIL An unknown split is refused" in ended.out
    assert "raise ConfigError naming the splits" in ended.out


def test_a_dry_run_finds_every_problem_at_once(
    agentrl: Agentrl, factories: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    agentrl("init", file)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "something").touch()
    ended = agentrl(
        *("train", file, "--dry-run", f"run_dir={tmp_path / 'taken'}", "env.test_split=tset"),
        *("engine.name=hff", "agent.renderer.name=plane", "agent.memory.name=windo"),
        *("stages.1.credit.name=gigp", "evaluation.validation_tasks=1000"),
    )
    assert ended.code == 2
    for words in (
        "already holds files that are not a run's",
        "did you mean 'test'?",
        "has 84 tasks, and 1000 are wanted",
        "did you mean 'hf'?",
        "did you mean 'plain'?",
        "did you mean 'window'?",
        "did you mean 'gigpo'?",
    ):
        assert words in ended.err
