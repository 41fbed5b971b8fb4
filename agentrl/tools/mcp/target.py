"""What a session is held with: a command to start, or an address; and its secrets, by name only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, Any
from urllib.parse import urlsplit

from agentrl.core.errors import ConfigError

__all__ = ["Target", "target_of"]

_SECRET = re.compile(
    r"token|secret|passw|credential|api_?key|private_?key|auth(?!or)", re.IGNORECASE
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECT_S = 30.0


@dataclass(frozen=True, slots=True, repr=False)  # a repr would show the secrets
class Target:
    """A server. ``command`` is empty where there is a ``url``.

    Attributes:
        label: How messages name it.
        command: Program and arguments. cwd: its working folder. env: what it is given besides
            what every program needs (PATH, HOME, ...).
        url: Address of a server over streamable HTTP. headers: sent with each request.
        secrets: Values that no message may show.
    """

    label: str
    command: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]

    def transport(self, errors: IO[bytes]) -> AbstractAsyncContextManager[Any]:
        """The two streams of a session, as the library wants them; ``errors`` gets stderr."""
        if self.url:
            return self._over_http()
        from mcp.client.stdio import StdioServerParameters, stdio_client

        parameters = StdioServerParameters(
            command=self.command[0], args=list(self.command[1:]), env=dict(self.env), cwd=self.cwd
        )
        return stdio_client(parameters, errlog=errors)  # type: ignore[arg-type]  # needs a fileno

    @asynccontextmanager
    async def _over_http(self) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # Reading has no timeout of its own: the deadline of the call is the one that counts. A
        # proxy cannot reach this machine's loopback.
        client = httpx2.AsyncClient(
            headers=dict(self.headers),
            timeout=httpx2.Timeout(CONNECT_S, read=None),
            trust_env=urlsplit(self.url).hostname not in _LOOPBACK,
        )
        async with client, streamable_http_client(self.url, http_client=client) as streams:
            yield streams

    def without_secrets(self, text: str) -> str:
        for one in self.secrets:
            text = text.replace(one, "***")
        return text


def target_of(
    command: Sequence[str] | None,
    url: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    env_from: Mapping[str, str] | Sequence[str] | None,
    headers_from: Mapping[str, str] | None,
) -> Target:
    """Check the options of a server.

    Raises:
        ConfigError: not one of ``command`` and ``url``; a command that is not found; a secret
            written out; an environment variable that is not set.
    """
    if (command is None) == (url is None):
        raise ConfigError(
            "an MCP server is given by either command (a list: the program and its arguments) or "
            f"url, got {'both' if command is not None else 'neither'}"
        )
    if url is not None:
        return _at_address(url, cwd, env, env_from, headers_from)
    assert command is not None
    words = [command] if isinstance(command, str) else list(command)
    if isinstance(command, str) or not words or any(type(one) is not str for one in words):
        raise ConfigError(
            f"command of an MCP server must be a list of strings, got {command!r}: write "
            '["python", "server.py"]'
        )
    label = f"the MCP server '{_short(words)}'"
    if headers_from:
        raise ConfigError(f"{label} is a command and has no headers: use env_from")
    literal = {name: _literal(name, value, label) for name, value in (env or {}).items()}
    by_name = env_from or {}
    if not isinstance(by_name, Mapping):
        by_name = {one: one for one in by_name}
    secret = {name: _looked_up(variable, label) for name, variable in by_name.items()}
    given = {**literal, **secret}
    where = given.get("PATH", os.environ.get("PATH"))
    program = words[0] if cwd is None or os.sep not in words[0] else os.path.join(cwd, words[0])
    if shutil.which(program, path=where) is None:
        raise ConfigError(
            f"{label}: the program '{words[0]}' is not found, or is not executable; install it, "
            "or write its whole path"
        )
    if cwd is not None and not os.path.isdir(cwd):
        raise ConfigError(f"{label}: cwd '{cwd}' is no folder")
    return Target(label, tuple(words), cwd, given, "", {}, _worth_hiding(secret))


def _at_address(
    url: str,
    cwd: str | None,
    env: Mapping[str, str] | None,
    env_from: Mapping[str, str] | Sequence[str] | None,
    headers_from: Mapping[str, str] | None,
) -> Target:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        right = False
    if not right:
        raise ConfigError(f"url of an MCP server must look like http://host:port/mcp, got {url!r}")
    if parts.username or parts.password:
        raise ConfigError(
            "url of an MCP server holds a user name or password; name an environment variable "
            "instead: headers_from: {Authorization: MY_VARIABLE}"
        )
    label = f"the MCP server '{url.partition('?')[0]}'"  # a query may hold a key
    if cwd or env or env_from:
        raise ConfigError(f"{label} runs elsewhere: cwd, env and env_from are for a command")
    headers = {name: _looked_up(variable, label) for name, variable in (headers_from or {}).items()}
    return Target(label, (), None, {}, url, headers, _worth_hiding(headers))


def _literal(name: str, value: Any, label: str) -> str:
    if _SECRET.search(name):
        raise ConfigError(
            f"{label}: env.{name} looks like a secret, and run files are kept and shared; name "
            f"an environment variable instead: env_from: {{{name}: {name}}}"
        )
    if type(value) is not str:
        raise ConfigError(f"{label}: env.{name} must be a string, got {value!r}; put it in quotes")
    return value


def _looked_up(variable: str, label: str) -> str:
    value = os.environ.get(variable) if isinstance(variable, str) else None
    if not value:
        raise ConfigError(
            f"{label} needs the environment variable {variable!r}, which is not set (env_from and "
            "headers_from hold names of variables, not values)"
        )
    return value


def _worth_hiding(values: Mapping[str, str]) -> tuple[str, ...]:
    """A header's secret is also hidden without its scheme (``Bearer ...``)."""
    found = {part for value in values.values() for part in (value, value.rpartition(" ")[2])}
    return tuple(sorted((one for one in found if len(one) >= 4), key=len, reverse=True))


def _short(words: Sequence[str]) -> str:
    """A command in at most 80 characters: the program without its folder, and the end of the rest.

    What tells two servers apart is mostly their last argument.
    """
    text = " ".join([PurePath(words[0]).name, *words[1:]])
    return text if len(text) <= 80 else f"{text[:25]} ... {text[-50:]}"
