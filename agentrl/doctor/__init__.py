"""What is installed, what is missing and how to get it, and what this machine can do.

Looks at metadata and files only: nothing heavy is imported, nothing is started, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from agentrl import __version__
from agentrl.doctor.backends import Backend, engines, sandboxes
from agentrl.doctor.machine import Machine, machine
from agentrl.doctor.packages import Package, packages, version
from agentrl.registry import KINDS, unregistered

__all__ = ["Backend", "Diagnosis", "Machine", "Package", "examine"]

ENOUGH_MEMORY_GIB, ENOUGH_DISK_GIB = 4.0, 2.0


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
            how = "installed" if there else f"in the checkout: pip install -e '.[{extra}]'"
            yield f"extra [{extra}]: {how}", [] if there else [_package_line(one) for one in own]
        for title, kinds in (
            ("engines: what samples from the model", ("engine",)),
            ("isolation: only for tools that run commands", ("sandbox", "machine")),
        ):
            found = [one for one in self.backends if one.kind in kinds]
            yield title, [_backend_line(one) for one in found] or ["none is installed"]
        if self.warnings:
            yield "worth knowing", list(self.warnings)


def _package_line(one: Package) -> str:
    state = "ok      " if one.ok else "missing " if one.installed is None else "wrong   "
    return f"{state} {one.name} {one.installed or ''}" + (f" (wants {one.wanted})" * (not one.ok))


def _backend_line(one: Backend) -> str:
    return f"{'ok      ' if one.works else 'no      '} {one.name}" + f": {one.detail}" * bool(
        one.detail
    )


def examine(working_directory: Path | None = None) -> Diagnosis:
    """Look at this machine and this Python.

    Args:
        working_directory: Where runs would be written; ``None``: the current folder.
    """
    found = tuple(packages())
    here = machine(working_directory or Path.cwd())
    return Diagnosis(
        agentrl=__version__,
        machine=here,
        packages=found,
        backends=(*engines(found), *sandboxes()),
        plugins={kind: _plugins(kind) for kind in KINDS},
        warnings=tuple(_warnings(here)),
    )


def _plugins(kind: str) -> dict[str, str]:
    return {one.name: one.value for one in metadata.entry_points(group=f"agentrl.{kind}")}


def _warnings(here: Machine) -> Iterator[str]:
    unknown = [f"{kind} {name}" for kind in KINDS for name in unregistered(kind)]
    if unknown:
        yield (
            f"the checkout has {', '.join(unknown)}, which its older installation does not know; "
            "there: pip install --no-deps -e ."
        )
    torch = version("torch") or ""
    if here.gpu and "+cpu" in torch:
        yield (
            f"there is a GPU, but torch {torch} is the CPU build; for the GPU: "
            f"pip install --force-reinstall torch=={torch.split('+')[0]}"
        )
    if here.free_memory_gib < ENOUGH_MEMORY_GIB:
        yield (
            f"{here.free_memory_gib:.1f} GiB of memory are free; training the small models of "
            f"the examples takes up to {ENOUGH_MEMORY_GIB:g} GiB"
        )
    for path, free in here.disk_gib.items():
        if free < ENOUGH_DISK_GIB:
            yield f"only {free:.1f} GiB are free in {path}"
    if here.usable_cpus < here.cores:
        yield (
            f"threads: 0 in a run file means {here.cores} threads here, but only "
            f"{here.usable_cpus:g} CPUs may be used; set threads: "
            f"{int(here.usable_cpus) or 1}"
        )
