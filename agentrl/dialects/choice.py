"""Which dialect a model speaks: named in the run file, or found once in its chat template."""

from __future__ import annotations

from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.dialects.reading import Dialect
from agentrl.registry import make, names, resolve

__all__ = ["AUTO", "choose_dialect", "detect", "find_dialect"]

AUTO = "auto"
# The first whose marks all stand in a template is its dialect; the narrower ones come first.
_MARKS = (
    ("glm", ("<arg_key>", "<arg_value>")),
    ("xml", ("<function=", "<parameter=")),
    ("mistral_args", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("llama3", ("<|start_header_id|>", '"parameters": ')),
    ("hermes", ("<tool_call>", '"arguments": ')),
)


def detect(template: str) -> tuple[str, str] | None:
    """The dialect that a chat template writes calls in and the mark that shows it, or ``None``."""
    plain = template.replace('\\"', '"')
    for name, marks in _MARKS:
        if all(mark in plain for mark in marks):
            return name, marks[0]
    return None


def find_dialect(spec: Any, *, tokenizer: Any = None) -> Dialect:
    """The dialect of a registered name, ``module:attr``, or the object itself.

    Raises:
        UnknownPluginError, ConfigError: there is none, or it is no dialect.
    """
    found = resolve("dialect", spec)
    if not isinstance(found, Dialect) and callable(found):
        found = make("dialect", spec, {}, tokenizer=tokenizer)
    if not isinstance(found, Dialect):
        raise ConfigError(
            f"dialect '{spec}' must be an agentrl.dialects.reading.Dialect or a function "
            f"(tokenizer) that makes one, got {type(found).__name__}"
        )
    return found


def choose_dialect(
    asked: Any, *, tokenizer: Any, template: str | None, written: Dialect | None = None
) -> tuple[Dialect, str]:
    """The dialect of a run, chosen once, and in words why.

    Args:
        asked: ``agent.tool_dialect``: ``auto`` or what ``find_dialect`` takes.
        tokenizer: The model's. template: The Jinja text of its chat template, if it has one.
        written: What the renderer itself writes calls in, if it does (the plain one); then a
            policy has to be read in it.

    Raises:
        ConfigError: ``auto`` finds nothing, or ``asked`` is not what the renderer writes.
    """
    if asked != AUTO:
        found = find_dialect(asked, tokenizer=tokenizer)
        if written is not None and written.name != found.name:
            raise ConfigError(
                f"agent.tool_dialect={found.name} reads another dialect than the renderer writes "
                f"({written.name}): set agent.renderer.options.dialect to {found.name} as well"
            )
        return found, "as the run file says"
    if written is not None:
        return written, "the one that the renderer writes"
    seen = detect(template or "")
    if seen is not None:
        name, mark = seen
        return find_dialect(name), f"the chat template writes calls with {mark}"
    if getattr(tokenizer, "response_template", None) is not None:
        return find_dialect("response", tokenizer=tokenizer), "the tokenizer's response_template"
    raise ConfigError(
        "agent.tool_dialect=auto finds no dialect in the model's chat template "
        f"({'it has none' if template is None else 'it shows no known mark of a call'}); name one: "
        f"{', '.join(names('dialect'))}. A system prompt must then teach it to a model that was "
        "not trained on it"
    )
