"""Values to text and bytes and back, exactly: floats bit for bit, tuples as tuples, any unicode."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any, NamedTuple

from agentrl.core.errors import StoreError
from agentrl.core.message import Message, ToolCall
from agentrl.core.trajectory import Observation, Sample, Step, StepResult, Timings

_TUPLE = "$tuple"  # an object with this one key stands for a Python tuple
_ESCAPE = "$"  # put before keys of mappings that begin with it themselves
_ATOMS = frozenset({str, int, float, bool, type(None)})


def to_text(value: Any) -> str:
    """JSON of plain data; NaN and infinity as Python's json writes them.

    Raises:
        StoreError: the data is not JSON-like.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:  # lone surrogates: UTF-8 cannot hold them, escapes can
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot be stored as JSON: {error}") from None
    return text


def plain(value: Any) -> Any:
    """JSON-like data with tuples told from lists; undone by ``restored``."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, tuple):
        return {_TUPLE: [plain(one) for one in value]}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {_key(key): plain(one) for key, one in value.items()}
    return value  # left to json: subclasses of str, int and float pass, the rest is refused


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise StoreError(
            f"cannot be stored: key {key!r} of a mapping is {type(key).__name__}, expected a string"
        )
    return _ESCAPE + key if key.startswith(_ESCAPE) else key


def restored(value: Any) -> Any:
    """What ``plain`` was given."""
    if isinstance(value, list):
        return [restored(one) for one in value]
    if isinstance(value, dict):
        if len(value) == 1 and _TUPLE in value:
            return tuple(restored(one) for one in value[_TUPLE])
        return {key.removeprefix(_ESCAPE): restored(one) for key, one in value.items()}
    return value


def pack_ints(values: Iterable[int]) -> bytes:
    """Token ids as little-endian int32."""
    try:
        return _little_endian(array("i", values)).tobytes()
    except (OverflowError, TypeError) as error:
        raise StoreError(f"token ids must be whole numbers that fit 32 bits: {error}") from None


def pack_floats(values: Iterable[float]) -> bytes:
    """Numbers as little-endian float64."""
    try:
        return _little_endian(array("d", values)).tobytes()
    except TypeError as error:
        raise StoreError(f"log-probabilities and advantages must be numbers: {error}") from None


def unpack_ints(data: bytes) -> tuple[int, ...]:
    return tuple(_little_endian(array("i", data)))


def unpack_floats(data: bytes) -> tuple[float, ...]:
    return tuple(_little_endian(array("d", data)))


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def message_data(message: Message) -> dict[str, Any]:
    """A message as plain data; fields at their default are left out."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        data["reasoning"] = message.reasoning
    if message.tool_calls:
        data["tool_calls"] = [
            [
                *(call.id, call.name, plain(call.arguments)),
                *([] if call.problem is None else [call.problem]),
            ]
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def message_from(data: dict[str, Any]) -> Message:
    return Message(
        role=data["role"],
        content=data["content"],
        reasoning=data.get("reasoning"),
        tool_calls=tuple(
            ToolCall(id, name, restored(arguments), *problem)
            for id, name, arguments, *problem in data.get("tool_calls", ())
        ),
        tool_call_id=data.get("tool_call_id"),
    )


def messages_from(data: Iterable[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(message_from(one) for one in data)


def same_messages(one: tuple[Message, ...], other: tuple[Message, ...]) -> bool:
    """Equal to the last bit (``==`` on arguments would take 1 for True)."""
    return len(one) == len(other) and all(
        a is b or (a == b and not a.tool_calls) for a, b in zip(one, other, strict=True)
    )


class StepColumns(NamedTuple):
    """The columns of table ``steps`` after ``trajectory`` and ``position``."""

    kind: str
    parse_status: str
    reward: float | None
    valid: bool | None
    prompt_kept: int
    prompt_added: bytes
    token_ids: bytes
    logprobs: bytes
    record: str


def encode_step(step: Step, held: tuple[int, ...], before: StepResult | None) -> StepColumns:
    """Columns of a step.

    Args:
        step: What to write.
        held: Prompt and sampled ids of the step before; the ids its prompt shares with them are
            not written again.
        before: The answer to the step before; messages and anchor that come from it likewise.
    """
    record: dict[str, Any] = {"index": step.index}
    said = before.observation if before is not None else None
    if said is None or not same_messages(said.messages, step.shown):
        record["shown"] = [message_data(one) for one in step.shown]
    if said is None or not _same_anchor(said.anchor, step.anchor):
        record["anchor"] = plain(step.anchor)
    record |= {
        "action": message_data(step.action),
        "answer": None if step.answer is None else message_data(step.answer),
        "action_key": step.action_key,
        "versions": step.sample.versions,
        "finish": step.sample.finish_reason,
        "timings": list(astuple(step.timings)),
    }
    if step.result is not None:
        record["result"] = _result_data(step.result)
    kept = shared_prefix(held, step.prompt_ids)
    return StepColumns(
        kind=step.kind,
        parse_status=step.parse_status,
        reward=step.reward,
        valid=None if step.result is None else step.result.action_valid,
        prompt_kept=kept,
        prompt_added=pack_ints(step.prompt_ids[kept:]),
        token_ids=pack_ints(step.sample.token_ids),
        logprobs=pack_floats(step.sample.logprobs),
        record=to_text(record),
    )


def decode_step(columns: StepColumns, held: tuple[int, ...], before: StepResult | None) -> Step:
    """What ``encode_step`` was given, from its columns and the same two arguments."""
    record = json.loads(columns.record)
    said = before.observation if before is not None else Observation(())
    result = record.get("result")
    return Step(
        index=record["index"],
        shown=messages_from(record["shown"]) if "shown" in record else said.messages,
        anchor=restored(record["anchor"]) if "anchor" in record else said.anchor,
        prompt_ids=held[: columns.prompt_kept] + unpack_ints(columns.prompt_added),
        sample=Sample(
            token_ids=unpack_ints(columns.token_ids),
            logprobs=unpack_floats(columns.logprobs),
            versions=tuple((start, version) for start, version in record["versions"]),
            finish_reason=record["finish"],
        ),
        action=message_from(record["action"]),
        answer=None if record["answer"] is None else message_from(record["answer"]),
        action_key=record["action_key"],
        parse_status=columns.parse_status,
        result=None if result is None else _result_from(result),
        kind=columns.kind,  # type: ignore[arg-type]  # checked when it was written
        timings=Timings(*record["timings"]),
    )


def shared_prefix(held: tuple[int, ...], prompt: tuple[int, ...]) -> int:
    """Number of leading ids that two sequences have in common."""
    low, high = 0, min(len(held), len(prompt))
    if held[:high] == prompt[:high]:
        return high
    while low + 1 < high:  # halving keeps the comparisons in C; prompts run to thousands of ids
        middle = (low + high) // 2
        low, high = (middle, high) if held[low:middle] == prompt[low:middle] else (low, middle)
    return low


def _same_anchor(one: Any, other: Any) -> bool:
    return one is other or (type(one) is str and type(other) is str and one == other)


def _result_data(result: StepResult) -> dict[str, Any]:
    observation = result.observation
    data: dict[str, Any] = {
        "messages": [message_data(one) for one in observation.messages],
        "anchor": plain(observation.anchor),
        "reward": result.reward,
        "ends": [result.terminated, result.truncated],
        "valid": result.action_valid,
        "success": result.success,
    }
    if observation.admissible is not None:
        data["admissible"] = observation.admissible
    if observation.fresh:
        data["fresh"] = True
    if result.metrics:
        data["metrics"] = plain(result.metrics)
    return data


def _result_from(data: dict[str, Any]) -> StepResult:
    admissible = data.get("admissible")
    return StepResult(
        observation=Observation(
            messages=messages_from(data["messages"]),
            anchor=restored(data["anchor"]),
            admissible=None if admissible is None else tuple(admissible),
            fresh=data.get("fresh", False),
        ),
        reward=data["reward"],
        terminated=data["ends"][0],
        truncated=data["ends"][1],
        action_valid=data["valid"],
        success=data["success"],
        metrics=restored(data.get("metrics", {})),
    )
