"""Writes run files and skeletons; never over anything that is there."""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from agentrl.core.errors import ConfigError, nearest
from agentrl.core.protocols import Demonstrator
from agentrl.registry import make, resolve
from agentrl.scaffold.run_file import RUN_FILE

__all__ = ["Skeleton", "write_run_file", "write_skeleton"]

# What a skeleton's own text calls the part, and the class that a run file or list names.
OPTIONS = "# the factory's keyword arguments"  # a comment of the run file
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
    maker = resolve("env", env)
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
    options = _small_options(maker)
    try:
        factory = make("env", env, options)
    except ConfigError:
        needed = ", ".join(_needed(maker))
        text = text.replace(OPTIONS, f"{OPTIONS}; it needs: {needed}" if needed else OPTIONS)
        return _with_form(text, _form(maker, options))
    text = _with_form(text, _form(factory, options))
    if options:
        listed = ", ".join(f"{name}: {value}" for name, value in options.items())
        text = text.replace("options: {}              #", f"options: {{{listed}}}  #")
    for key, split in (
        ("demonstrations: 274", "train"),
        ("validation_tasks: 64", "validation"),
        (" tasks: 64", "test"),
    ):
        if split in factory.splits:
            name, _, most = key.rpartition(" ")
            count = max(1, min(int(most), len(factory.tasks(split))))
            text = text.replace(key, f"{name} {count}")
    return text if isinstance(factory, Demonstrator) else _for_a_model(text)


def _small_options(maker: Any) -> dict[str, str]:
    """Options that suit a tiny model, where the environment has them: bare actions, short texts."""
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters
    except (NameError, TypeError, ValueError):
        return {}
    wanted = {"action_format": "bare", "text": "compact"}
    return {
        name: value
        for name, value in wanted.items()
        if name in parameters and value in _literals(parameters[name].annotation)
    }


def _literals(annotation: Any) -> tuple[Any, ...]:
    """The values of a ``Literal``, also where it stands in a union."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(value for one in get_args(annotation) for value in _literals(one))


def _form(factory: Any, options: Mapping[str, str]) -> str:
    """The form of action that an environment reads, by its factory or by what makes it."""
    fixed = getattr(factory, "action_format", None)
    if isinstance(fixed, str):
        return fixed
    if "action_format" in options:
        return options["action_format"]
    return "tools" if getattr(factory, "tools", ()) else "bare"


def _with_form(text: str, form: str) -> str:
    text = text.replace("action_format: bare      #", f"{f'action_format: {form}':25}#")
    if form in ("tools", "chat"):  # a call is longer than a command
        text = text.replace("max_tokens: 8            #", "max_tokens: 32           #")
    return text


def _needed(maker: Any) -> list[str]:
    """Options without which a factory cannot be made."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _for_a_model(text: str) -> str:
    """The run file for a model that exists: without an expert no tiny one can be begun."""
    begin, end = text.index("  # path: "), text.index("  dtype: ")
    path = "  path: Qwen/Qwen2.5-0.5B-Instruct   # a folder, a hub id, or builtin:NAME\n"
    why = "  # create: null         # a tiny one needs an environment with an expert\n"
    text = text[:begin] + path + why + text[end:]
    begin, end = text.index("  - kind: clone"), text.index("  - kind: rl")
    text = text[:begin] + text[end:]
    for old, new in (
        ("renderer: {name: plain}  #", "renderer: {name: chat}   #"),
        ("action_format: bare      #", "action_format: tagged    #"),
        ("action_format: bare", "action_format: tagged"),
        ("text: compact", "text: full"),
        ("max_tokens: 512          #", "max_tokens: 4096         #"),
        ("context_tokens: 512}", "context_tokens: 4096}"),
        ("max_tokens: 8            #", "max_tokens: 256          #"),
        ("max_tokens: 32           #", "max_tokens: 256          #"),
        ("learning_rate: 0.0002", "learning_rate: 0.000001"),
        ("micro_batch_tokens: 2048", "micro_batch_tokens: 16384"),
    ):
        text = text.replace(old, new)
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
