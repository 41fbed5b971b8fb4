"""What the documentation says is so: examples run, commands exist, the reference is current."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from agentrl.cli import app
from agentrl.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MINE = [page for page in PAGES if page.name != "credit.md"]  # its examples have tests of their own
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in MINE for number in range(len(blocks(page, "python")))],
    ids=lambda one: one.stem if isinstance(one, Path) else str(one),
)
def test_every_python_example_runs(page: Path, number: int, tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(blocks(page, "python")[number], encoding="utf-8")
    runpy.run_path(str(file), run_name="example")


def test_every_yaml_example_has_keys_of_the_run_file() -> None:
    found = 0
    for page in MINE:
        for text in blocks(page, "yaml"):
            for key in yaml.safe_load(text):
                assert key in RunConfig.model_fields, f"{page.name}: {key}"
                found += 1
    assert found > 5


def test_every_command_exists_with_its_options() -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    seen = set()
    for page in TEXTS:
        for line in "".join(blocks(page, "console")).splitlines():
            words = line.removeprefix("$ ").partition("#")[0].split()
            if not words or words[0] != "agentrl":
                continue
            name, *rest = words[1:]
            assert name in commands, f"{page.name}: {line}"
            command = commands[name]
            if hasattr(command, "commands"):  # a group: the next word is the command
                command = command.commands[rest[0]]
            known = {option for one in command.params for option in one.opts}
            unknown = [one for one in rest if one.startswith("--") and one not in known]
            assert not unknown, f"{page.name}: {line}"
            seen.add(name)
    assert seen == set(commands)


def test_files_that_are_named_exist() -> None:
    for page in TEXTS:
        for name in re.findall(r"`((?:examples|scripts|agentrl)/[\w./]+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_the_reference_is_current() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_reference.py"), run_name="reference")
    for name, text in made["pages"]().items():
        committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert committed == text, f"run scripts/make_reference.py: {name} is out of date"


def test_the_table_of_chat_templates_is_true() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_chat_templates.py"), run_name="templates")
    committed = (ROOT / "docs" / "reference" / "chat-templates.md").read_text(encoding="utf-8")
    assert committed == made["page"](), "run scripts/make_chat_templates.py: it is out of date"


def test_every_page_is_in_the_navigation() -> None:
    loaded = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = set(re.findall(r"[\w/-]+\.md", str(loaded["nav"])))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES}
