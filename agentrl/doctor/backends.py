"""Engines and ways to isolate commands: whether they would work here, and why not."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from agentrl.core.errors import ConfigError
from agentrl.doctor.machine import read
from agentrl.doctor.packages import DISTRIBUTION, Package, package
from agentrl.engines.vllm.environment import find_environment

__all__ = ["Backend", "engines", "sandboxes"]

# What agentrl's own engines need besides agentrl; foreign ones tell by their requirements.
ENGINE_NEEDS: Mapping[str, tuple[str, ...]] = {"hf": ("torch", "transformers"), "scripted": ()}


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine or a way to isolate commands: whether it would work here, and why not."""

    kind: str
    name: str
    works: bool
    detail: str


def engines(packages: tuple[Package, ...]) -> Iterator[Backend]:
    broken = {one.name for one in packages if not one.ok}
    for entry in sorted(metadata.entry_points(group="agentrl.engine"), key=lambda one: one.name):
        own = entry.dist is not None and entry.dist.name == DISTRIBUTION
        if own:
            missing = [name for name in ENGINE_NEEDS.get(entry.name, ()) if name in broken]
        else:
            required = [package(text) for text in (entry.dist and entry.dist.requires) or ()]
            missing = [one.name for one in required if not one.extra and not one.ok]
        words = f"needs {', '.join(missing)}" if missing else "" if own else entry.value
        if own and entry.name == "vllm" and not missing:
            yield _vllm()
        else:
            yield Backend("engine", entry.name, not missing, words)


def _vllm() -> Backend:
    """The engine needs a server; it may be elsewhere, so none here is no error."""
    try:
        found = find_environment()
    except ConfigError as error:
        return Backend("engine", "vllm", False, f"only with a server started elsewhere; {error}")
    words = f"server {found.version} for the {found.kind.upper()} in {found.folder}"
    return Backend("engine", "vllm", True, words)


def sandboxes() -> Iterator[Backend]:
    """Sandbox plug-ins, and what this machine offers to isolate commands with."""
    installed = sorted(metadata.entry_points(group="agentrl.sandbox"), key=lambda one: one.name)
    for entry in installed:
        required = [package(text) for text in (entry.dist and entry.dist.requires) or ()]
        missing = [one.name for one in required if not one.extra and not one.ok]
        words = f"needs {', '.join(missing)}" if missing else entry.value
        yield Backend("sandbox", entry.name, not missing, words)
    if not installed:
        yield Backend("sandbox", "plug-ins", False, "none is installed")
    spaces = _user_namespaces()
    yield Backend("machine", "user namespaces", not spaces, spaces or "may be made without root")
    for name, hint in (
        ("bwrap", "apt-get install bubblewrap"),
        ("docker", "install Docker, or another daemon with its command line"),
    ):
        path = shutil.which(name)
        problem = "" if path else f"not found; {hint}"
        if path and name == "docker":
            problem = _docker_socket()
        yield Backend("machine", name, not problem, problem or str(path))


def _user_namespaces() -> str:
    """Why a user namespace cannot be made here; empty if nothing speaks against it."""
    if sys.platform != "linux":
        return f"{sys.platform} has none"
    for file, bad in (
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        if read(Path(file)) == bad and not (os.geteuid() == 0 and "unprivileged" in file):
            return f"switched off by {file} = {bad}"
    return "" if Path("/proc/self/ns/user").exists() else "the kernel has none"


def _docker_socket() -> str:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    path = Path(address.removeprefix("unix://"))
    if not address.startswith("unix://") or os.access(path, os.R_OK | os.W_OK):
        return ""
    return f"{path} cannot be used: is the daemon running, and are you in its group?"
