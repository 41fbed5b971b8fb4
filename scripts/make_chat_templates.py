"""Writes docs/reference/chat-templates.md: what each family's template does. From the checkout:

    .venv/bin/python scripts/make_chat_templates.py

Every template that the installed trl package carries is put on a small tokenizer with its family's
tokens and tried, as a run tries its model's at the start. A test says when the page is out of date.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentrl.core.errors import ConfigError
from agentrl.renderers.chat import ChatRenderer
from agentrl.renderers.jinja import shipped_templates
from agentrl.renderers.prefix import Finding
from agentrl.testing.chat_families import family_tokenizer, template_files

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "chat-templates.md"
DATE = "2026-01-31"
_CASE = re.compile(r"a (\w+) message follows an answer (with|without) thinking")
HEAD = """<!-- Made by scripts/make_chat_templates.py from the templates; do not edit. -->
# Chat templates

What {count} chat templates (of model families and their revisions) do to a conversation, and how it
is handled. They are read from the installed package trl ({version}) and tried on a small tokenizer
with that family's tokens. `agentrl check renderer chat model=PATH` tries your own model's in the
same way, with its own tokenizer. [What happens to thinking](../explanation/thinking.md) tells what
the words mean.

- **Append-only**: rendering a longer conversation only ever appends to the shorter one. With either
  `history` an episode is one training row. *White space* says what becomes of it around an answer,
  which hardly any template keeps: with `history: template` such an answer begins a new segment.
- **Rewrites**: it changes what was already said, in the cases named. With `history: append` (the
  default) nothing said is rendered again: one row, the tokens as they were sampled. With
  `history: template` a new segment begins in each such case and is counted.
- **Refused**: the renderer `chat` cannot read its answers and says so at the start.
- **Tools**: whether the template tells the model of its tools. Where it does not, a run with tools
  is refused; `agent.renderer.options.template: smollm2` comes with agentrl for models of the ChatML
  kind.

"""


def page() -> str:
    """The whole page."""
    files = template_files()
    own = {name: file for name, file in files.items() if not name.endswith("_training")}
    patched = {name: file for name, file in files.items() if name not in own}
    version = importlib.metadata.version("trl")
    parts = [
        HEAD.format(count=len(own), version=version),
        "## The families' own templates\n\n",
        *_table(own),
        "\n## Templates that come with agentrl\n\n",
        *_table(shipped_templates()),
        "\n## Variants patched for training, as trl carries them\n\n",
        *_table(patched),
    ]
    return "".join(parts)


def _table(files: dict[str, Path]) -> Iterator[str]:
    yield "| template | prefix | tools | what else it does, and what is done |\n|---|---|---|---|\n"
    for name, file in files.items():
        cells = (_cell(one) for one in _row(name, file))
        yield f"| `{name}` | {' | '.join(cells)} |\n"


def _row(name: str, file: Path) -> tuple[str, str, str]:
    try:
        renderer = ChatRenderer(family_tokenizer(name), template=file, date=DATE)
    except ConfigError as error:
        return "refused", "", str(error).replace(str(file), name)
    report = renderer.report
    if report.append_only:
        prefix = f"append-only; white space: {_spaces(report.spaces)}"
    else:
        prefix = f"rewrites: {_breaks(report.breaks)}"
    notes = "; ".join((*report.treatment, *report.notes))
    return prefix, "yes" if report.shows_tools else "no", notes


def _spaces(findings: Iterable[Finding]) -> str:
    kinds = {one.kind for one in findings}
    if not kinds:
        return "kept"
    return "trimmed" if any("trims" in one for one in kinds) else "a first line break is merged"


def _breaks(findings: Iterable[Finding]) -> str:
    """Each kind once, with its cases."""
    ordered = sorted(findings, key=lambda one: one.kind)
    return "; ".join(
        f"{kind} ({', or '.join(_cases(one.when for one in group))})"
        for kind, group in itertools.groupby(ordered, key=lambda one: one.kind)
    )


def _cases(cases: Iterable[str]) -> Iterator[str]:
    """``a user message follows an answer with thinking``, in fewer words, roles together."""
    roles: dict[str, list[str]] = {}
    for case in cases:
        if found := _CASE.fullmatch(case):
            roles.setdefault(found[2], []).append(found[1])
        else:
            yield case
    for thinking, followed in roles.items():
        yield f"an answer {thinking} thinking, then a message of {' or '.join(followed)}"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
    return escaped.replace("[", "&#91;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
