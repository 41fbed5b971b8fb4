"""Writes run files and skeletons; never over anything that is there."""

from __future__ import annotations

import keyword
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from agentrl.core.errors import ConfigError, nearest
from agentrl.scaffold.run_file import RUN_FILE

__all__ = ["Skeleton", "write_run_file", "write_skeleton"]

# What a skeleton's own text calls the part, and the class that a run file or list names.
SKELETONS = {"env": ("environment", "Factory"), "tool": ("tool", "")}


@dataclass(frozen=True, slots=True)
class Skeleton:
    """What was written, and how a run file names it."""

    files: tuple[Path, ...]
    spec: str


def write_run_file(path: Path, env: str) -> Path:
    """Write a commented run file that plays the environment ``env``.

    Raises:
        ConfigError: ``path`` exists or cannot be written, or there is no such environment.
    """
    text = RUN_FILE.replace("run_dir: runs/run", f"run_dir: runs/{path.stem}")
    if env != "toy":
        text = _for_env(text.replace("name: toy", f"name: {env}"), env)
    _write({path: text})
    return path


def _for_env(text: str, env: str) -> str:
    """The run file for another environment than it was written for: as large as its splits allow.

    An environment that cannot be made without options keeps the sizes as they are.
    """
    from agentrl.registry import make, resolve

    resolve("env", env)
    # How fast it is cloned is unknown: a clumsy expert leaves reinforcement something to learn.
    old, new = (
        "noise: 0.3             # share of random commands: they are seen, not imitated",
        (
            "noise: 0.6             # share of random commands\n"
            "    imitate_noise: true    # the clone is as clumsy: that leaves rl something to learn"
        ),
    )
    text = text.replace(old, new).replace("updates: 400", "updates: 600")
    text = text.replace("    iterations: 16", "    iterations: 40")
    try:
        factory = make("env", env, {})
    except ConfigError:
        return text
    for key, split in (
        ("demonstrations: 274", "train"),
        ("validation_tasks: 64", "validation"),
        (" tasks: 64", "test"),
    ):
        if split in factory.splits:
            name, _, most = key.rpartition(" ")
            count = max(1, min(int(most), len(factory.tasks(split))))
            text = text.replace(key, f"{name} {count}")
    return text


def write_skeleton(kind: str, name: str, folder: Path) -> Skeleton:
    """Write a part that works, and its test.

    Args:
        kind: What to write: ``env`` or ``tool``.
        name: Name of its module.
        folder: Where; made if it is missing.

    Raises:
        ConfigError: a kind without a skeleton, a name that is none for a module, or a file that
            exists.
    """
    if kind not in SKELETONS:
        raise ConfigError(
            f"there is no skeleton of the kind '{kind}'{nearest(kind, SKELETONS) or '.'} "
            f"There is one of: {', '.join(SKELETONS)}."
        )
    what, ending = SKELETONS[kind]
    skeleton = f"{kind}_skeleton"
    if not name.isidentifier() or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise ConfigError(
            f"'{name}' cannot be the name of a Python module of yours; use letters, digits and _, "
            "such as coin_game"
        )
    title = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    words = {
        f"agentrl.scaffold.{skeleton}": name,
        '"""SUMMARY': f'"""The {what} {name}: say here what it is for.',
        "MODULE": name,
        "Skeleton": title,
        '"skeleton"': f'"{name}"',
    }
    files = {
        folder / f"{name}.py": _template(skeleton, words),
        folder / f"test_{name}.py": _sorted_imports(_template(f"{skeleton}_test", words), name),
    }
    _write(files)
    return Skeleton(tuple(files), f"{name}:{title}{ending}")


def _template(module: str, words: dict[str, str]) -> str:
    text = resources.files("agentrl.scaffold").joinpath(f"{module}.py").read_text(encoding="utf-8")
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _sorted_imports(text: str, name: str) -> str:
    """The import of one's own module stands apart, after those of agentrl."""
    lines = text.splitlines()
    own = next(line for line in lines if line.startswith(f"from {name} import"))
    lines.remove(own)
    last = max(place for place, line in enumerate(lines) if line.startswith("from agentrl"))
    lines[last + 1 : last + 1] = ["", own]
    return "\n".join(lines) + "\n"


def _write(files: dict[Path, str]) -> None:
    there = [str(path) for path in files if path.exists()]
    if there:
        raise ConfigError(f"{', '.join(there)} exists; nothing was written. Choose another name")
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}") from None
