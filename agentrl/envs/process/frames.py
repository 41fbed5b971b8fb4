"""The protocol between a trainer and a worker: JSON messages, each behind its length.

A frame is 4 bytes of length (big-endian) and as many bytes of JSON in ASCII. The worker speaks
first: ``{"hello": PROTOCOL, "agentrl": ..., "python": ..., "pid": ...}``. Then the trainer asks,
``{"id": 7, "call": "step", "episode": 3, ...}``, and the worker answers each with the same id:
``{"id": 7, "value": ...}``, with ``tools`` if the environment's tools have changed, or
``{"id": 7, "error": {"kind", "name", "text", "trace"}}``. Answers come in any order.

| call | carries | value |
|---|---|---|
| ``open`` | ``name``, ``target``, ``options``, ``path`` | ``splits``, ``demonstrates``, ``tools`` |
| ``tasks`` | ``split``, ``start`` | ``count``, ``tasks``: a page of them |
| ``make`` | ``episode``, ``task``, ``seed`` | ``replays`` |
| ``reset``, ``step``, ``replay``, ``close`` | ``episode``, ``given`` | what it returned |
| ``demonstrate`` | ``episode``, ``task``, ``seed``, ``noise`` | nothing |
| ``next`` | ``episode`` | ``steps``: a few of them; ``done`` |
| ``drop`` | ``episode`` | ``abandoned``: it would not end in time |
| ``running`` | | ``name`` of the call that runs now, and ``stack``, where it is |
| ``bye`` | | no answer: the worker closes what is open and ends |

``running`` is answered by a thread of its own, also while an environment blocks the others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from agentrl.core.errors import DataError

__all__ = ["HEADER", "LIMIT_BYTES", "PROTOCOL", "frame_length", "packed", "unpacked"]

PROTOCOL = 1
LIMIT_BYTES = 256 * 2**20
HEADER = struct.Struct(">I")


def packed(message: Mapping[str, Any]) -> bytes:
    """The frame of a message.

    Raises:
        DataError: it is not JSON, or larger than ``LIMIT_BYTES``.
    """
    try:
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be sent as JSON: {error}") from None
    if len(body) > LIMIT_BYTES:
        raise DataError(
            f"a message of {len(body):,} bytes is more than the {LIMIT_BYTES:,} that a worker "
            "process and its trainer send at once: show the policy less of it"
        )
    return HEADER.pack(len(body)) + body


def frame_length(header: bytes | bytearray) -> int:
    """Bytes of JSON that follow a header.

    Raises:
        DataError: more than any message has: the other end does not speak this protocol.
    """
    length: int = HEADER.unpack(header)[0]
    if length > LIMIT_BYTES:
        raise DataError(f"got {bytes(header)!r} where the length of a message is expected")
    return length


def unpacked(body: bytes | bytearray) -> dict[str, Any]:
    """The message in a frame's body.

    Raises:
        DataError: it is not a JSON object.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"got a message that is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise DataError(f"got a message that is {type(message).__name__}, expected a JSON object")
    return message
