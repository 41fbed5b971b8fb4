"""The run directory: what a run was made of, written once, never over another run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import yaml

from agentrl.config import RunConfig
from agentrl.core.errors import ConfigError

CONFIG_FILE = "config.yaml"
MANIFEST_FILE = "manifest.json"
PACKAGES = ("torch", "transformers", "trl", "accelerate", "tokenizers", "numpy", "pydantic")


def create_run_directory(config: RunConfig) -> Path:
    """Make ``config.run_dir`` and write the resolved configuration and versions into it.

    Raises:
        ConfigError: the directory holds anything already, or cannot be written.
    """
    path = config.run_dir
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        holds = "a run" if (path / CONFIG_FILE).exists() else "files that are not a run's"
        raise ConfigError(
            f"run_dir '{path}' already holds {holds}; nothing was overwritten. "
            f"Choose another: run_dir={path}-2"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
        (path / CONFIG_FILE).write_text(text, encoding="utf-8")
        (path / MANIFEST_FILE).write_text(json.dumps(_manifest(), indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write run_dir '{path}': {error.strerror}") from None
    return path


def open_run_directory(path: Path) -> RunConfig:
    """The configuration of the run in ``path``.

    Raises:
        ConfigError: no run is there.
    """
    from agentrl.config import load_config

    if not (path / CONFIG_FILE).is_file():
        raise ConfigError(f"'{path}' is not a run directory: it has no {CONFIG_FILE}")
    return load_config(path / CONFIG_FILE)


def _manifest() -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    from agentrl import __version__

    return {
        "agentrl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": versions,
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    """Commit of the checkout that agentrl runs from; ``None`` outside one."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
