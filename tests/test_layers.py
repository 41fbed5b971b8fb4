"""The layer contracts hold on the tree, and each goes red on a planted violation."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = "Parts import downwards only"
PROMPTS = "Tools, memory, engines and users know nothing of renderers"
CORE = "Core stands on the standard library alone"
TRL = "Only learn touches TRL"
TORCH = "Torch stays in learn, models, the hf engine and test doubles"
TRANSFORMERS = "Transformers stays where torch is, and in renderers"
SERVER = "The vLLM server is another process"
SANDBOXES = "Sandboxes stay outside"

PLANTED = [
    (LAYERS, "core/task.py", "agentrl.registry"),
    (LAYERS, "registry.py", "agentrl.config"),
    (LAYERS, "config/run.py", "agentrl.store"),
    (LAYERS, "renderers/plain.py", "agentrl.memory.window"),
    (LAYERS, "dialects/hermes.py", "agentrl.renderers.plain"),
    (LAYERS, "memory/window.py", "agentrl.agents.loop"),
    (LAYERS, "memory/window.py", "agentrl.engines.scripted"),
    (LAYERS, "envs/toy.py", "agentrl.credit"),
    (LAYERS, "credit/gigpo.py", "agentrl.envs.toy"),
    (LAYERS, "agents/loop.py", "agentrl.learn"),
    (LAYERS, "learn/rows.py", "agentrl.rollout.runner"),
    (LAYERS, "rollout/runner.py", "agentrl.evaluate"),
    (LAYERS, "train.py", "agentrl.testing.contract"),
    (LAYERS, "testing/contract.py", "agentrl.cli"),
    (PROMPTS, "engines/scripted.py", "agentrl.renderers.plain"),
    (PROMPTS, "memory/window.py", "agentrl.renderers.plain"),
    (PROMPTS, "tools/text.py", "agentrl.renderers.encoding"),
    (LAYERS, "tools/search.py", "agentrl.envs.tools"),
    (CORE, "core/errors.py", "numpy"),
    (CORE, "registry.py", "pydantic"),
    (CORE, "envs/process/worker.py", "numpy"),
    (TRL, "models/tiny.py", "trl"),
    (TRL, "rollout/runner.py", "trl.trainer"),
    (TORCH, "envs/toy.py", "torch"),
    (TORCH, "engines/scripted.py", "torch.nn"),
    (TRANSFORMERS, "agents/loop.py", "transformers"),
    (TRANSFORMERS, "dialects/response.py", "transformers"),
    (SERVER, "engines/scripted.py", "vllm"),
    (SANDBOXES, "envs/toy.py", "sandboxes.docker"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [tool, ".importlinter", "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package and its contracts."""
    ignored = shutil.ignore_patterns("__pycache__", "*.json", "*.safetensors")
    shutil.copytree(ROOT / "agentrl", tmp_path / "agentrl", ignore=ignored)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_the_tree_keeps_every_contract(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout
    named = (LAYERS, PROMPTS, CORE, TRL, TORCH, TRANSFORMERS, SERVER, SANDBOXES)
    for name in named:
        assert f"{name} KEPT" in result.stdout
    assert f"Contracts: {len(named)} kept, 0 broken." in result.stdout


@pytest.mark.parametrize(("contract", "file", "module"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    tree: Path, contract: str, file: str, module: str
) -> None:
    with (tree / "agentrl" / file).open("a", encoding="utf-8") as source:
        # Inside a function: a lazy import is an import.
        source.write(f"\n\ndef planted() -> None:\n    import {module}\n")
    result = lint(tree)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout
    importer = ".".join(Path(file).with_suffix("").parts)
    assert f"agentrl.{importer} -> {module.split('.')[0]}" in result.stdout


def test_every_contract_is_planted_against() -> None:
    named = {contract for contract, _, _ in PLANTED}
    lines = (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    assert named == {line.removeprefix("name = ") for line in lines if line.startswith("name = ")}


def test_a_package_without_a_layer_is_refused(tree: Path) -> None:
    (tree / "agentrl" / "utils").mkdir()
    (tree / "agentrl" / "utils" / "__init__.py").touch()
    result = lint(tree)
    assert result.returncode == 1
    assert f"{LAYERS} BROKEN" in result.stdout
    assert "agentrl.utils" in result.stdout


def test_core_and_registry_import_the_standard_library_and_core() -> None:
    # The contract names the known dependencies; this refuses any other package too.
    for path in [*(ROOT / "agentrl" / "core").glob("*.py"), ROOT / "agentrl" / "registry.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or "."]
            else:
                continue
            for module in modules:
                allowed = module.split(".")[0] in sys.stdlib_module_names
                assert allowed or module.startswith("agentrl.core"), f"{path.name}: {module}"
