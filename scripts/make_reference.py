"""Writes docs/reference/: every key of the run file, every command. From the checkout:

    .venv/bin/python scripts/make_reference.py

The pages are made from the code and are not edited by hand; a test says when they are out of date.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer.main
from pydantic_core import PydanticUndefined

from agentrl import config
from agentrl.cli import app
from agentrl.config import RunConfig, Section

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "<!-- Made by scripts/make_reference.py from the code; do not edit. -->\n"


def pages() -> dict[str, str]:
    """File name to content of every page."""
    return {"run-file.md": run_file_page(), "command-line.md": command_line_page()}


def run_file_page() -> str:
    """Every key of the run file, section by section."""
    parts = [
        f"{MADE}# Run file\n",
        "One YAML file is one run. Unknown keys are refused with the nearest known one. Every key "
        "can be overridden on the command line (`sampling.temperature=0.7`, `stages.0.updates=50`, "
        "`env.options={difficulty: small}`; the values are YAML). `agentrl init` writes a "
        "commented file to begin with.\n",
    ]
    for place, section in _sections(RunConfig, ""):
        title = f"`{place}`" if place else "The top level"
        parts += [f"## {title}\n", f"{_first_line(section)}\n", *_table(section), ""]
    parts += [
        "## Plug-ins by name\n",
        "Where a key is called `name`, it is a name that `agentrl list KIND` shows, or "
        "`module:attribute`. The latter **runs the code of that module**: read a run file before "
        "you use one that is not yours. `options` are the keyword arguments of the part.\n",
    ]
    return "\n".join(parts)


def _sections(section: type[Section], place: str) -> Iterator[tuple[str, type[Section]]]:
    yield place, section
    for name, field in section.model_fields.items():
        inner = f"{place}.{name}" if place else name
        for part in _parts(field.annotation):
            if part is config.CloneStage or part is config.ReinforceStage:
                kind = get_args(part.model_fields["kind"].annotation)[0]
                yield from _sections(part, f"{inner}[kind: {kind}]")
            elif isinstance(part, type) and issubclass(part, Section) and _is_own(part):
                yield from _sections(part, inner)


def _is_own(part: type[Section]) -> bool:
    return part is not config.PluginConfig  # name and options: said once, at the end


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    if get_origin(annotation) in (Union, types.UnionType, tuple, Annotated):
        for one in get_args(annotation):
            yield from _parts(one)
    else:
        yield annotation


def _table(section: type[Section]) -> Iterator[str]:
    yield "| key | value | default | |"
    yield "|---|---|---|---|"
    for name, field in section.model_fields.items():
        cells = (
            f"`{name}`",
            _values(field.annotation, field.metadata),
            _default(field),
            field.description or "",
        )
        yield "| " + " | ".join(_cell(one) for one in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text


def _values(annotation: Any, metadata: list[Any]) -> str:
    words = " or ".join(dict.fromkeys(_words(annotation)))
    limits = []
    for sign, name in ((">=", "ge"), (">", "gt"), ("<=", "le"), ("<", "lt")):
        found = [getattr(one, name, None) for one in metadata]
        limits += [f"{sign} {value:g}" for value in found if value is not None]
    return words + (f", {', '.join(limits)}" if limits else "")


def _words(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if annotation is type(None):
        yield "null"
    elif origin is Literal:
        yield ", ".join(f"`{one}`" for one in get_args(annotation))
    elif origin is dict:
        yield "mapping"
    elif origin is tuple:
        own = config.PluginConfig in get_args(annotation)
        yield "list of `{name, options}`" if own else "list of stages"
    elif origin in (Union, types.UnionType, Annotated):
        for one in get_args(annotation):
            yield from _words(one)
    elif annotation is config.PluginConfig:
        yield "`{name, options}`"
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        yield "section"
    else:
        yield names.get(annotation, "path" if annotation is Path else str(annotation))


def _default(field: Any) -> str:
    value = field.default
    if field.default_factory is not None:
        value = field.default_factory()
    if value is PydanticUndefined:
        return "**required**"
    if isinstance(value, config.PluginConfig):
        return f"`{value.name}`"
    if isinstance(value, Section) or value in ((), {}, ""):
        return ""
    if value is None:
        return "null"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0]


def command_line_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        f"{MADE}# Command line\n",
        "Exit codes: 0 done, 1 failed, 2 misuse, 130 stopped by Ctrl-C, 143 by SIGTERM (both with "
        "a word on how to go on). With `--json` standard output holds one JSON document and "
        "nothing else. `agentrl --install-completion` teaches your shell the commands "
        "and the names of plug-ins.\n",
    ]
    commands: Any = typer.main.get_command(app)
    for name, command in _commands(commands, ""):
        usage = " ".join(_usage(one) for one in command.params if one.param_type_name == "argument")
        text = " ".join((command.help or "").split())
        parts += [f"## agentrl {name}\n", f"```text\nagentrl {name} {usage}\n```\n", f"{text}\n"]
        parts += [*_options(command), ""]
    return "\n".join(parts)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every command by its whole name; a group of commands stands for those inside it."""
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or argument.metavar else f"[{name}]"


def _options(command: Any) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for one in command.params:
        if one.name == "help":
            continue
        name = _usage(one) if one.param_type_name == "argument" else ", ".join(one.opts)
        default = one.default
        shown = "" if default in (None, "", False, []) or callable(default) else f" ({default})"
        yield f"| `{name}` | {one.help or ''}{shown} |"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
        print(f"wrote {FOLDER / file}")
