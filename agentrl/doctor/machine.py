"""What there is to compute with. Files are read, nothing is started."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "machine", "read"]

GIB = 1024**3


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


def machine(folder: Path) -> Machine:
    import psutil

    memory = psutil.virtual_memory()
    limit = _number(read(Path("/sys/fs/cgroup/memory.max")))
    total, free = memory.total, memory.available
    if limit is not None and limit < total:
        used = _number(read(Path("/sys/fs/cgroup/memory.current"))) or 0
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
    parts = read(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(parts) != 2 or parts[0] == "max":
        return None
    return int(parts[0]) / int(parts[1])


def _gpu() -> str | None:
    version = read(Path("/proc/driver/nvidia/version")).splitlines()
    if version:
        return f"NVIDIA driver: {version[0]}"
    return "nvidia-smi is installed, but no driver was seen" if shutil.which("nvidia-smi") else None


def read(path: Path) -> str:
    """Content of a file of the kernel; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
