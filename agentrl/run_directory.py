"""The run directory: what a run was made of, written once, never over another run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentrl.config import RunConfig, load_config
from agentrl.core.errors import AgentRLError, ConfigError, DataError, SchemaVersionError
from agentrl.store.connection import DATABASE, LOCK

__all__ = [
    "CONFIG_FILE",
    "MANIFEST_FILE",
    "create_run_directory",
    "discard_run_directory",
    "open_run_directory",
    "read_manifest",
    "refuse_taken",
]

CONFIG_FILE = "config.yaml"
MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1
PACKAGES = ("torch", "transformers", "trl", "accelerate", "tokenizers", "numpy", "pydantic")


def create_run_directory(config: RunConfig, *, command: str = "train") -> Path:
    """Make ``config.run_dir`` and write the resolved configuration and versions into it.

    Args:
        config: The run.
        command: What the directory is for: ``train`` or ``rollout``.

    Raises:
        ConfigError: the directory holds anything already, or cannot be written.
    """
    path = config.run_dir
    try:
        refuse_taken(path)
        path.mkdir(parents=True, exist_ok=True)
        resolved = config.model_dump(mode="json")
        manifest = json.dumps(_manifest(command) | {"config": resolved}, indent=2) + "\n"
        # "x": of two runs that begin in one directory at once, one is refused.
        with (path / MANIFEST_FILE).open("x", encoding="utf-8") as file:
            file.write(manifest)
        text = yaml.safe_dump(resolved, sort_keys=False)
        new = path / f".{CONFIG_FILE}.new"
        new.write_text(text, encoding="utf-8")
        new.rename(path / CONFIG_FILE)
    except FileExistsError:
        raise ConfigError(_taken(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot write run_dir '{path}': {error.strerror}") from None
    return path


def refuse_taken(path: Path) -> None:
    """Refuse a place where a new run cannot be written.

    Raises:
        ConfigError: it holds anything already, or it cannot be written.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(_taken(path))
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "may not be written" if there.is_dir() else "is a file"
        raise ConfigError(f"cannot write run_dir '{path}': '{there}' {why}")


def open_run_directory(path: Path, *, command: str = "train") -> RunConfig:
    """The configuration that the run in ``path`` began with.

    That of the manifest: ``config.yaml`` is there to be read, and people change what they read. A
    run of a release that did not keep it there has ``config.yaml`` alone.

    Raises:
        ConfigError: no run of that command is there.
        DataError: its manifest is damaged.
        SchemaVersionError: another release of agentrl wrote it, in another form.
    """
    manifest = read_manifest(path)
    if manifest["command"] != command:
        raise ConfigError(
            f"'{path}' was made by 'agentrl {manifest['command']}', not by 'agentrl {command}'; "
            "there is nothing to resume in it"
        )
    if "config" not in manifest:
        return load_config(path / CONFIG_FILE)
    try:
        return load_config(manifest["config"])
    except (ConfigError, TypeError, ValueError) as error:
        raise DataError(
            f"the configuration in '{path / MANIFEST_FILE}' is damaged or of another release "
            f"({error}); resume the run with the release that wrote it"
        ) from None


def read_manifest(path: Path) -> Mapping[str, Any]:
    """What ``create_run_directory`` wrote about the run in ``path``; errors as there."""
    if not (path / CONFIG_FILE).is_file():
        begun = (path / MANIFEST_FILE).exists()
        why = (
            f"its {CONFIG_FILE} is missing, for it was killed before it began: remove it and "
            "start the run again"
            if begun
            else f"it has no {CONFIG_FILE}; give the directory of a run (run_dir of its run file)"
        )
        raise ConfigError(f"'{path}' is not the directory of a run: {why}")
    try:
        manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
        version = manifest["schema_version"]
        manifest = {"command": manifest["command"], **manifest}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"'{path / MANIFEST_FILE}' is damaged or of another release ({error!r}); start a new "
            "run in another directory"
        ) from None
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the run in '{path}' has schema version {version} (written by agentrl "
            f"{manifest.get('agentrl', 'unknown')}), and this agentrl reads version "
            f"{SCHEMA_VERSION}. Resume it with the release that wrote it"
        )
    return manifest


def discard_run_directory(path: Path) -> None:
    """Remove a run directory in which nothing has happened yet; other files are left alone."""
    database = [DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOCK]
    for name in (CONFIG_FILE, MANIFEST_FILE, *database):
        (path / name).unlink(missing_ok=True)
    if not any(path.iterdir()):
        path.rmdir()


def _taken(path: Path) -> str:
    if (path / MANIFEST_FILE).exists() or (path / CONFIG_FILE).exists():
        try:
            trains = read_manifest(path)["command"] == "train"
        except AgentRLError:
            trains = False
        go_on = f", or go on with that run: agentrl train --resume {path}" if trains else ""
        return (
            f"run_dir '{path}' already holds a run; nothing was overwritten. Choose another "
            f"(run_dir={path}-2){go_on}"
        )
    return (
        f"run_dir '{path}' already holds files that are not a run's; nothing was overwritten. "
        f"Choose another: run_dir={path}-2"
    )


def _manifest(command: str) -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    from agentrl import __version__

    return {
        "what": "a run of agentrl",
        "schema_version": SCHEMA_VERSION,
        "command": command,
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
