"""``import agentrl`` is light, its public names are found, and heavy packages load on use."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentrl
from agentrl.core import errors, message, protocols, task, trajectory

PACKAGE = Path(agentrl.__file__).parent
HEAVY = ("torch", "trl", "transformers", "datasets", "accelerate")
# Modules whose purpose is torch itself: they may import it at the top.
MAY_BE_HEAVY = (
    "agentrl.learn",
    "agentrl.engines.hf",
    "agentrl.models",
    "agentrl.testing.copied_engine",
    "agentrl.testing.gradients",
)


def loaded_after(code: str) -> list[str]:
    """Names of the modules that are loaded after ``code`` in a fresh interpreter."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    modules: list[str] = json.loads(result.stdout.splitlines()[-1])
    return modules


def test_import_agentrl_loads_none_of_the_dependencies() -> None:
    modules = loaded_after("import agentrl; agentrl.Trajectory; agentrl.ConfigError; dir(agentrl)")
    assert not {"numpy", "pydantic", "yaml", *HEAVY} & set(modules)
    assert "agentrl.core.trajectory" in modules
    assert "agentrl.core" not in loaded_after("import agentrl")


def test_the_registry_loads_nothing_but_core() -> None:
    modules = loaded_after("import agentrl.registry as r; r.names('env'); r.resolve('env', 'toy')")
    assert not {"numpy", "pydantic", *HEAVY} & set(modules)
    assert "agentrl.envs.alfworld" not in modules


def test_only_what_is_made_of_torch_imports_it_at_the_top() -> None:
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] != "__main__" and not name.startswith(MAY_BE_HEAVY):
            names.append(name)
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    assert not set(HEAVY) & set(loaded_after(code))


def test_public_names_are_those_of_core() -> None:
    public = set(agentrl.__all__)
    for name in public - {"__version__"}:
        found = getattr(agentrl, name)
        assert found.__module__.startswith("agentrl.core."), name
    assert public >= set(errors.__all__) - {"nearest"}
    for module in (message, protocols, task, trajectory):
        defined = {
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        }
        assert public >= defined, module.__name__
    assert dir(agentrl) == sorted(public)


def test_what_type_checkers_see_is_what_is_found() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*seen, "__version__"} == set(agentrl.__all__)
    for name, module in seen.items():
        assert module is not None
        assert getattr(agentrl, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'agentrl' has no attribute 'Trajectry'"):
        agentrl.Trajectry  # noqa: B018


def test_every_folder_of_code_is_a_package() -> None:
    # Without __init__.py a folder works in a checkout and is missing from what is built.
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
