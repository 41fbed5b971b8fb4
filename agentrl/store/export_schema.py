"""Columns of the files that an export writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SUMMARY", "step_schema", "trajectory_schema"]

# Fields of a TrajectorySummary that are columns as they are.
SUMMARY = (
    *("id", "group_id", "task_id", "env", "split", "kind", "purpose", "iteration", "trial"),
    *("attempt", "outcome", "success", "reward", "steps", "sampled_tokens", "oldest_version"),
    *("newest_version", "wall_s", "takes_part", "advantage_low", "advantage_high"),
)


def trajectory_schema() -> pyarrow.Schema:
    """Columns of ``trajectories.parquet``."""
    import pyarrow as pa

    text = pa.string()
    failure = pa.struct(dict.fromkeys(("boundary", "error", "message"), text))
    whole = ("iteration", "trial", "attempt", "steps", "sampled_tokens")
    known = {
        **dict.fromkeys((*whole, "oldest_version", "newest_version"), pa.int64()),
        **dict.fromkeys(("reward", "wall_s", "advantage_low", "advantage_high"), pa.float64()),
        **dict.fromkeys(("success", "takes_part"), pa.bool_()),
    }
    return pa.schema(
        [
            *((name, known.get(name, text)) for name in SUMMARY),
            ("seed", pa.int64()),
            ("stop_reason", text),
            ("failure", failure),
            ("close_failure", failure),
            ("final_shown", pa.list_(_message_type())),
            ("task_payload", text),
        ]
    )


def step_schema() -> pyarrow.Schema:
    """Columns of ``steps.parquet``."""
    import pyarrow as pa

    text, real, flag, ids = pa.string(), pa.float64(), pa.bool_(), pa.list_(pa.int32())
    message = _message_type()
    named = pa.list_(pa.struct({"name": text, "value": real}))
    return pa.schema(
        {
            "trajectory_id": text,
            "position": pa.int64(),
            "index": pa.int64(),
            "kind": text,
            "shown": pa.list_(message),
            "anchor": text,
            "prompt_ids": ids,
            "token_ids": ids,
            "logprobs": pa.list_(real),
            "versions": pa.list_(pa.struct({"start": pa.int64(), "version": pa.int64()})),
            "finish_reason": text,
            "said": message,
            "action": message,
            "action_key": text,
            "parse_status": text,
            "observed": pa.list_(message),
            "observed_anchor": text,
            "admissible": pa.list_(text),
            "reward": real,
            "terminated": flag,
            "truncated": flag,
            "action_valid": flag,
            "success": flag,
            "metrics": named,
            "sample_s": real,
            "env_s": real,
            "tool_s": real,
            "wait_s": real,
            "advantage": real,
            "token_advantages": pa.list_(real),
            "advantage_parts": named,
            "compared": pa.list_(
                pa.struct({"name": text, "label": pa.int64(), "size": pa.int64()})
            ),
        }
    )


def _message_type() -> pyarrow.DataType:
    import pyarrow as pa

    text = pa.string()
    call = pa.struct({"id": text, "name": text, "arguments": text, "problem": text})
    return pa.struct(
        {
            "role": text,
            "content": text,
            "reasoning": text,
            "tool_calls": pa.list_(call),
            "tool_call_id": text,
        }
    )
