"""A chat template as it is: Jinja text, rendered by transformers, its errors in words."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, nearest

__all__ = ["JinjaTemplate", "shipped_templates"]

_ASKED = {"role": "user", "content": "."}
_SHIPPED = Path(__file__).with_name("templates")


def shipped_templates() -> dict[str, Path]:
    """Name to file of the templates that come with agentrl."""
    return {file.stem: file for file in sorted(_SHIPPED.glob("*.jinja"))}


class JinjaTemplate:
    """The template of a tokenizer, one that comes with agentrl, or one from a file.

    Args:
        tokenizer: A fast tokenizer of transformers.
        template: ``None``: its own. Else the name of one of several that it has, a name of
            ``shipped_templates``, or a file.
        options: Variables of the template.
        date: What a template that writes today's date gets. ``None``: the day it first asks, and
            then always that one, so that midnight changes no prompt.
        today: Clock of that day.

    Attributes:
        name: How messages call the template: the file, or the model's name.
        source: The Jinja text.
        date: The day that was written, ``None`` as long as the template has not asked for one.

    Raises:
        ConfigError: there is none, or its file cannot be read.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        template: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        date: str | datetime.date | None = None,
        today: Callable[[], datetime.date] = datetime.date.today,
    ) -> None:
        self._tokenizer = tokenizer
        self._fixed = None if date is None else _day(date)
        self._today = today
        self.date: datetime.date | None = None
        self.name, self.source = _find(tokenizer, template)
        self._options = {"strftime_now": self._strftime, **(options or {})}

    def render(
        self, messages: list[dict[str, Any]], tools: list[Any] | None = None, *, opening: bool
    ) -> str:
        """The text of a conversation; ``opening``: with the assistant's turn opened at its end.

        Raises:
            ConfigError: the template raises, or breaks on what it was given.
        """
        try:
            return self._apply(messages, tools, opening)
        except _template_errors() as error:
            self._blame_a_tool(tools or [])
            roles = ", ".join(one["role"] for one in messages)
            raise ConfigError(
                f"the chat template of '{self.name}' cannot render messages with the roles "
                f"({roles}): {error}; give agent.renderer.options.template a file with one that can"
            ) from error

    def attempt(
        self, messages: list[dict[str, Any]], tools: list[Any] | None = None, *, opening: bool
    ) -> str | None:
        """As ``render``; ``None`` where it raises."""
        try:
            return self._apply(messages, tools, opening)
        except _template_errors():
            return None

    def special(self, kind: str) -> str | None:
        """The text of the tokenizer's ``bos`` or ``eos`` token."""
        token = getattr(self._tokenizer, f"{kind}_token", None)
        return None if token is None else str(token)

    def _apply(self, messages: list[dict[str, Any]], tools: list[Any] | None, opening: bool) -> str:
        rendered: str = self._tokenizer.apply_chat_template(
            messages,
            tools=tools or None,
            chat_template=self.source,
            tokenize=False,
            add_generation_prompt=opening,
            **self._options,
        )
        return rendered

    def _blame_a_tool(self, tools: Sequence[Any]) -> None:
        """Name the tool that the template cannot render even alone.

        Raises:
            ConfigError: there is one.
        """
        for tool in tools:
            try:
                self._apply([_ASKED], [tool], True)
            except _template_errors() as error:
                raise ConfigError(
                    f"the chat template of '{self.name}' cannot render the tool "
                    f"'{tool['function']['name']}': {error}; make its parameters simpler (str, "
                    "int, float, bool, Literal, lists of these), or give "
                    "agent.renderer.options.template a file with one that can"
                ) from error

    def _strftime(self, form: str) -> str:
        if self.date is None:
            self.date = self._fixed or self._today()
        return self.date.strftime(form)


def _template_errors() -> tuple[type[Exception], ...]:
    """What a template raises, and what its expressions do on values that they do not expect."""
    from jinja2 import TemplateError

    return (TemplateError, TypeError, ValueError, KeyError, AttributeError, RecursionError)


def _day(date: str | datetime.date) -> datetime.date:
    if isinstance(date, datetime.date):
        return date
    try:
        return datetime.date.fromisoformat(date)
    except (TypeError, ValueError):
        raise ConfigError(
            f"agent.renderer.options.date={date!r} is no day; expected one such as 2026-01-31"
        ) from None


def _find(tokenizer: Any, template: str | Path | None) -> tuple[str, str]:
    name = str(getattr(tokenizer, "name_or_path", "") or "this tokenizer")
    own = getattr(tokenizer, "chat_template", None)
    named: Mapping[str, str] = own if isinstance(own, Mapping) else {}
    if template is not None and str(template) in named:
        return f"{name}: {template}", named[str(template)]
    if template is not None:
        return str(template), _read(template, named)
    if named and "default" not in named:
        raise ConfigError(
            f"'{name}' has several chat templates ({', '.join(named)}) and none that is called "
            "'default': name one in agent.renderer.options.template"
        )
    try:
        return name, str(tokenizer.get_chat_template())
    except (AttributeError, ValueError) as error:
        raise ConfigError(
            f"'{name}' has no chat template of its own; give agent.renderer.options.template a "
            f"Jinja file or a template that comes with agentrl ({', '.join(shipped_templates())}), "
            "or use renderer 'plain' with a tiny model"
        ) from error


def _read(template: str | Path, named: Mapping[str, str]) -> str:
    shipped = shipped_templates()
    try:
        return shipped.get(str(template), Path(template)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        own = f"; the tokenizer has: {', '.join(named)}" if named else ""
        raise ConfigError(
            f"cannot read the chat template '{template}': {error}"
            f"{nearest(str(template), [*shipped, *named])}; with agentrl come: "
            f"{', '.join(shipped)}{own}"
        ) from error
