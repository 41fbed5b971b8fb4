"""A client of chat completions that a run can rely on: bounded, counted, clear about what is wrong.

Built on the official ``openai`` library, which retries, waits as long as the endpoint asks it to,
and speaks every dialect of the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentrl.completions.recording import Recording, Replay
from agentrl.completions.usage import Meter, Prices, Usage
from agentrl.completions.wire import answer_from, conversation_data, fitted, tool_data
from agentrl.core.errors import ConfigError, EngineError, MissingDependencyError
from agentrl.core.message import Message, ToolSpec

__all__ = ["Completion", "CompletionClient"]

KEY_VARIABLE = "OPENAI_API_KEY"
UNSUPPORTED = ("unsupported_parameter", "unsupported_value")
SHOWN = 300  # characters of what an endpoint said, in messages


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. ``finish_reason`` is ``stop`` or, where the token limit cut it, ``length``."""

    message: Message
    finish_reason: Literal["stop", "length"]


class CompletionClient:
    """Asks one model behind one endpoint. Safe for many episodes at once.

    Args:
        model: Its name there.
        base_url: The endpoint, ``http://127.0.0.1:8000/v1`` for instance; ``None``: OpenAI's.
        key_variable: The environment variable that holds the key; ``None``: it needs none. A key
            itself is never an argument, so it can be in no run file, log or store.
        timeout_s: Of one try. retries: Further tries after a lost connection, 408, 409, 429 or 5xx;
            pauses grow, and are as long as the endpoint asks for.
        concurrency: Requests under way at once.
        requests_per_minute: No more than so many begin in a minute; ``None``: no limit of ours.
        prices: ``{"prompt": 2.5, "completion": 10}``, of a million tokens.
        most_cost: The run stops when so much has been spent.
        extra: Further fields of every request (``{"reasoning_effort": "low"}``).
        record: A file that every request and answer is written to.
        replay: A file of such; nothing is asked of any endpoint, and no key is needed.

    Raises:
        ConfigError: arguments that cannot be, a missing key, a recording that cannot be read.
        MissingDependencyError: the ``openai`` library is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_variable: str | None = KEY_VARIABLE,
        timeout_s: float = 120.0,
        retries: int = 5,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        prices: Mapping[str, float] | None = None,
        most_cost: float | None = None,
        extra: Mapping[str, Any] | None = None,
        record: str | Path | None = None,
        replay: str | Path | None = None,
    ) -> None:
        if record is not None and replay is not None:
            raise ConfigError("give record or replay, not both")
        if concurrency < 1 or retries < 0 or timeout_s <= 0:
            raise ConfigError(
                f"concurrency={concurrency} must be 1 or more, retries={retries} 0 or more and "
                f"timeout_s={timeout_s:g} above 0"
            )
        if requests_per_minute is not None and requests_per_minute <= 0:
            raise ConfigError(f"requests_per_minute={requests_per_minute} must be above 0")
        self.model = model
        self.base_url = base_url
        self._key_variable = key_variable
        self._timeout_s, self._retries, self._concurrency = timeout_s, retries, concurrency
        self._spacing_s = 60 / requests_per_minute if requests_per_minute else 0.0
        self._extra = dict(extra or {})
        self._meter = Meter(_prices(prices), most_cost)
        self._recording = None if record is None else Recording(Path(record))
        self._replay = None if replay is None else Replay(Path(replay))
        self._key = "" if self._replay else self._find_key()
        self._library: Any = None if self._replay else _openai()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._room = asyncio.Semaphore(concurrency)
        self._next_at = 0.0
        self._unwanted: set[str] = set()  # fields that the model has refused

    @property
    def usage(self) -> Usage:
        """What has been used so far."""
        return self._meter.usage

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        seed: int | None = None,
    ) -> Completion:
        """The model's answer to a conversation.

        Raises:
            EngineError: the endpoint could not answer, or answered what is none.
            ConfigError: it refuses the key or has no such model, or ``most_cost`` is reached: no
                other request would fare better.
        """
        self._meter.check()
        request: dict[str, Any] = {
            "model": self.model,
            "messages": conversation_data(messages),
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_tokens,
            **({} if seed is None else {"seed": seed % 2**31}),
            **({"tools": [tool_data(one) for one in tools]} if tools else {}),
            **self._extra,
        }
        if self._replay is not None:
            body = self._replay.answer(request)
        else:
            body = await self._ask(request)
            if self._recording is not None:
                self._recording.add(request, body)
        return self._read(body)

    async def aclose(self) -> None:
        """Close its connections."""
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            await client.close()

    async def _ask(self, request: dict[str, Any]) -> Mapping[str, Any]:
        library = self._library
        client = self._in_this_loop()
        async with self._room:
            await self._turn()
            try:
                text = await self._create(client, request)
            except library.APIStatusError as error:
                raise self._refused(error) from None
            except library.APIConnectionError as error:
                cause = error.__cause__ or error
                raise EngineError(
                    f"{self._name()} did not answer ({type(error).__name__}: "
                    f"{self._clean(cause)}) in {self._retries + 1} tries of at most "
                    f"{self._timeout_s:g} s"
                ) from None
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise EngineError(
                f"{self._name()} answered what is no JSON object: {self._clean(text)!r}. Is "
                "base_url that of an OpenAI-compatible endpoint? It mostly ends in /v1"
            )
        return body

    async def _create(self, client: Any, request: Mapping[str, Any]) -> str:
        """The body of the answer, the request made to fit what this model takes."""
        while True:
            sent = fitted(request, self._unwanted)
            try:
                # Raw, because an endpoint that is none may answer anything at all.
                answered = await client.chat.completions.with_raw_response.create(**sent)
                return str(answered.http_response.text)
            except self._library.BadRequestError as error:
                if error.code not in UNSUPPORTED or not isinstance(error.param, str):
                    raise
                self._unwanted.add(error.param)
                if fitted(request, self._unwanted) == sent:
                    raise

    def _read(self, body: Mapping[str, Any]) -> Completion:
        try:
            choice = body["choices"][0]
            message = answer_from(choice["message"])
            finish = choice.get("finish_reason")
            usage = body.get("usage") or {}
            self._meter.add(usage.get("prompt_tokens"), usage.get("completion_tokens"))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"{self._name()} answered no chat completion ({type(error).__name__}: {error}): "
                f"{self._clean(body)}"
            ) from None
        return Completion(message, "length" if finish == "length" else "stop")

    async def _turn(self) -> None:
        """Wait until another request may begin."""
        if not self._spacing_s:
            return
        now = asyncio.get_running_loop().time()
        begins, self._next_at = max(now, self._next_at), max(now, self._next_at) + self._spacing_s
        await asyncio.sleep(begins - now)

    def _in_this_loop(self) -> Any:
        """The library's client; connections belong to the event loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            assert self._library is not None
            self._client = self._library.AsyncOpenAI(
                base_url=self.base_url,
                api_key=self._key or "none",
                timeout=self._timeout_s,
                max_retries=self._retries,
                # Not the library's own, which complains where nobody closes it.
                http_client=self._library.DefaultAsyncHttpxClient(timeout=self._timeout_s),
            )
            self._loop, self._room = loop, asyncio.Semaphore(self._concurrency)
            self._next_at = 0.0
        return self._client

    def _refused(self, error: Any) -> Exception:
        """What a status that is no success means."""
        status, said = error.status_code, self._clean(error)
        if status in (401, 403):
            where = f"the key in {self._key_variable}" if self._key else "a request without a key"
            return ConfigError(f"{self._name()} refuses {where} (status {status}): {said}")
        if status == 404:
            return ConfigError(
                f"{self._name()} has no such model or address (status 404): {said}. Is base_url "
                "right? It mostly ends in /v1"
            )
        if getattr(error, "code", None) in UNSUPPORTED:
            return ConfigError(
                f"{self._name()} does not take what is asked of it: {said}. Set it in the run "
                "file's sampling, or with extra ({temperature: 1} for models that reason)"
            )
        if status == 429:
            said = f"{said}. Lower concurrency, or set requests_per_minute"
        return EngineError(f"{self._name()} refused a request (status {status}): {said}")

    def _find_key(self) -> str:
        if self._key_variable is None:
            return ""
        if not self._key_variable.isidentifier():
            raise ConfigError(
                "key_variable must be the name of an environment variable, and what was given is "
                "none. Never write a key into a run file"
            )
        key = os.environ.get(self._key_variable, "").strip()
        if not key:
            raise ConfigError(
                f"the environment variable {self._key_variable} holds no key for {self._name()}: "
                f"export it, name another (key_variable), or set key_variable: null for an "
                "endpoint that needs none"
            )
        return key

    def _name(self) -> str:
        return f"the endpoint {self.base_url or 'of OpenAI'} (model {self.model})"

    def _clean(self, said: object) -> str:
        """What the endpoint said, short, in one line, and without the key."""
        text = " ".join(str(said).split())
        if self._key:
            text = text.replace(self._key, "[key]")
            # Endpoints quote keys in part.
            text = text.replace(self._key[-4:], "[..]") if len(self._key) >= 12 else text
        return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _prices(given: Mapping[str, float] | None) -> Prices:
    try:
        return Prices(**(given or {}))
    except TypeError:
        raise ConfigError(
            f"prices must be {{prompt: ..., completion: ...}} of a million tokens, got {given!r}"
        ) from None


def _openai() -> Any:
    try:
        import openai
    except ImportError:
        purpose = "asking an OpenAI-compatible endpoint"
        raise MissingDependencyError.for_extra("openai", "openai", purpose) from None
    return openai
