"""What is installed, what is missing and how to get it, and what this machine can do.

Looks at metadata and files only: nothing heavy is imported, nothing is started, nothing is sent.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from agentrl import __version__
from agentrl.registry import KINDS

__all__ = ["Backend", "Diagnosis", "Machine", "Package", "examine"]

DISTRIBUTION = "agentrl-framework"
GIB = 1024**3
ENOUGH_MEMORY_GIB, ENOUGH_DISK_GIB = 4.0, 2.0
# What agentrl's own engines need besides agentrl; foreign ones tell by their requirements.
ENGINE_NEEDS: Mapping[str, tuple[str, ...]] = {"hf": ("torch", "transformers"), "scripted": ()}


@dataclass(frozen=True, slots=True)
class Package:
    """One requirement.

    Attributes:
        extra: The extra that brings it; empty: agentrl itself needs it.
        wanted: Accepted versions, such as ``>=2,<3``; empty: any.
        installed: Version that is there, or ``None``.
        ok: Whether that is an accepted one.
    """

    name: str
    extra: str
    wanted: str
    installed: str | None
    ok: bool


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine or a way to isolate commands: whether it would work here, and why not."""

    kind: str
    name: str
    works: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to compute with. Limits of a container count, where it has any."""

    python: str
    system: str
    cores: int
    cpus: int
    usable_cpus: float
    omp_num_threads: str | None
    memory_gib: float
    free_memory_gib: float
    disk_gib: Mapping[str, float]
    gpu: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that ``agentrl doctor`` found."""

    agentrl: str
    machine: Machine
    packages: tuple[Package, ...]
    backends: tuple[Backend, ...]
    plugins: Mapping[str, Mapping[str, str]]
    warnings: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether all that agentrl itself needs is there; extras may be missing."""
        return all(one.ok for one in self.packages if not one.extra)

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "healthy": self.healthy}

    def show(self, console: Any) -> None:
        """Print it for people."""
        for title, lines in self._sections():
            console.print(title, style="bold", markup=False, highlight=False)
            for line in lines:
                console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
        healthy = "all that agentrl needs is installed"
        verdict = healthy if self.healthy else "something that agentrl needs is missing, see above"
        style = "bold green" if self.healthy else "bold red"
        console.print(verdict, style=style)

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        here = self.machine
        disks = ", ".join(f"{free:.0f} GiB free in {path}" for path, free in here.disk_gib.items())
        yield (
            f"agentrl {self.agentrl}",
            [
                f"python {here.python}, {here.system}",
                f"{here.cores} cores, {here.cpus} logical, {here.usable_cpus:g} usable; "
                f"OMP_NUM_THREADS {here.omp_num_threads or 'not set'}",
                f"memory {here.free_memory_gib:.1f} of {here.memory_gib:.1f} GiB free",
                f"disk {disks}",
                f"GPU: {here.gpu or 'none seen'}",
            ],
        )
        yield "packages", [_package_line(one) for one in self.packages if not one.extra]
        for extra in dict.fromkeys(one.extra for one in self.packages if one.extra):
            own = [one for one in self.packages if one.extra == extra]
            there = all(one.ok for one in own)
            how = "installed" if there else f"to get it: pip install -e '.[{extra}]'"
            yield f"extra [{extra}]: {how}", [] if there else [_package_line(one) for one in own]
        yield (
            "engines and sandboxes",
            [
                f"{'ok      ' if one.works else 'no      '} {one.kind} {one.name}: {one.detail}"
                for one in self.backends
            ],
        )
        if self.warnings:
            yield "worth knowing", list(self.warnings)


def _package_line(one: Package) -> str:
    state = "ok      " if one.ok else "missing " if one.installed is None else "wrong   "
    return f"{state} {one.name} {one.installed or ''}" + (f" (wants {one.wanted})" * (not one.ok))


def examine(working_directory: Path | None = None) -> Diagnosis:
    """Look at this machine and this Python.

    Args:
        working_directory: Where runs would be written; ``None``: the current folder.
    """
    packages = tuple(_packages())
    machine = _machine(working_directory or Path.cwd())
    return Diagnosis(
        agentrl=__version__,
        machine=machine,
        packages=packages,
        backends=(*_engines(packages), *_sandboxes()),
        plugins={kind: _plugins(kind) for kind in KINDS},
        warnings=tuple(_warnings(machine)),
    )


def _packages() -> Iterator[Package]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Package(DISTRIBUTION, "", f"=={__version__}", None, False)
        return
    for text in requirements:
        yield _package(text)


def _package(text: str) -> Package:
    """A requirement such as ``pytest>=8; extra == "dev"`` against what is installed."""
    requirement, _, marker = text.partition(";")
    found = re.match(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*\(?([^)]*)", requirement)
    name, wanted = (found.group(1), found.group(2).replace(" ", "")) if found else (requirement, "")
    extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", marker)
    installed = _version(name)
    ok = installed is not None and _accepts(wanted, installed)
    return Package(name, extra.group(1) if extra else "", wanted, installed, ok)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _accepts(wanted: str, installed: str) -> bool:
    """Whether a version satisfies specifiers of the kind ``>=2.13,<2.15``."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(installed, prereleases=True)


def _plugins(kind: str) -> dict[str, str]:
    return {one.name: one.value for one in metadata.entry_points(group=f"agentrl.{kind}")}


def _engines(packages: tuple[Package, ...]) -> Iterator[Backend]:
    broken = {one.name for one in packages if not one.ok}
    for entry in sorted(metadata.entry_points(group="agentrl.engine"), key=lambda one: one.name):
        own = entry.dist is not None and entry.dist.name == DISTRIBUTION
        if own:
            missing = [name for name in ENGINE_NEEDS.get(entry.name, ()) if name in broken]
        else:
            required = [_package(text) for text in (entry.dist and entry.dist.requires) or ()]
            missing = [one.name for one in required if not one.extra and not one.ok]
        words = f"needs {', '.join(missing)}" if missing else entry.value
        yield Backend("engine", entry.name, not missing, words)


def _sandboxes() -> Iterator[Backend]:
    """Sandbox plug-ins, and what this machine offers to isolate commands with."""
    installed = sorted(metadata.entry_points(group="agentrl.sandbox"), key=lambda one: one.name)
    for entry in installed:
        required = [_package(text) for text in (entry.dist and entry.dist.requires) or ()]
        missing = [one.name for one in required if not one.extra and not one.ok]
        words = f"needs {', '.join(missing)}" if missing else entry.value
        yield Backend("sandbox", entry.name, not missing, words)
    if not installed:
        yield Backend("sandbox", "-", False, "no sandbox plug-in is installed")
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
        if _read(Path(file)) == bad and not (os.geteuid() == 0 and "unprivileged" in file):
            return f"switched off by {file} = {bad}"
    return "" if Path("/proc/self/ns/user").exists() else "the kernel has none"


def _docker_socket() -> str:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    path = Path(address.removeprefix("unix://"))
    if not address.startswith("unix://") or os.access(path, os.R_OK | os.W_OK):
        return ""
    return f"{path} cannot be used: is the daemon running, and are you in its group?"


def _machine(folder: Path) -> Machine:
    import psutil

    memory = psutil.virtual_memory()
    limit = _number(_read(Path("/sys/fs/cgroup/memory.max")))
    total, free = memory.total, memory.available
    if limit is not None and limit < total:
        used = _number(_read(Path("/sys/fs/cgroup/memory.current"))) or 0
        total, free = limit, min(free, max(0, limit - used))
    cpus = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpus
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=psutil.cpu_count(logical=False) or cpus,
        cpus=cpus,
        usable_cpus=min(float(usable), _cpu_quota() or float(usable)),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        memory_gib=round(total / GIB, 2),
        free_memory_gib=round(free / GIB, 2),
        disk_gib={
            str(path): round(shutil.disk_usage(path).free / GIB, 2)
            for path in dict.fromkeys((folder, Path(tempfile.gettempdir())))
        },
        gpu=_gpu(),
    )


def _cpu_quota() -> float | None:
    """CPUs that the container's quota allows, or ``None``."""
    parts = _read(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(parts) != 2 or parts[0] == "max":
        return None
    return int(parts[0]) / int(parts[1])


def _gpu() -> str | None:
    version = _read(Path("/proc/driver/nvidia/version")).splitlines()
    if version:
        return f"NVIDIA driver: {version[0]}"
    return "nvidia-smi is installed, but no driver was seen" if shutil.which("nvidia-smi") else None


def _warnings(machine: Machine) -> Iterator[str]:
    torch = _version("torch") or ""
    if machine.gpu and "+cpu" in torch:
        yield (
            f"there is a GPU, but torch {torch} is the CPU build; for the GPU: "
            f"pip install --force-reinstall torch=={torch.split('+')[0]}"
        )
    if machine.free_memory_gib < ENOUGH_MEMORY_GIB:
        yield (
            f"{machine.free_memory_gib:.1f} GiB of memory are free; training the small models of "
            f"the examples takes up to {ENOUGH_MEMORY_GIB:g} GiB"
        )
    for path, free in machine.disk_gib.items():
        if free < ENOUGH_DISK_GIB:
            yield f"only {free:.1f} GiB are free in {path}"
    if machine.usable_cpus < machine.cores:
        yield (
            f"threads: 0 in a run file means {machine.cores} threads here, but only "
            f"{machine.usable_cpus:g} CPUs may be used; set threads: "
            f"{int(machine.usable_cpus) or 1}"
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
