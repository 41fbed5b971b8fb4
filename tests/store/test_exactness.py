"""What is read back is what was appended, to the last bit, and prompts are not written twice."""

from __future__ import annotations

import math
import sqlite3
import struct
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl.core.errors import StoreError
from agentrl.core.message import Message, ToolCall
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    Failure,
    Observation,
    Sample,
    Step,
    StepResult,
    StopReason,
    Timings,
    Trajectory,
)
from agentrl.store.codec import plain, restored, shared_prefix
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import episode, group

# Any code point, lone surrogates and NUL included.
text = st.text(st.characters(exclude_categories=()), max_size=12)
floats = st.floats(allow_nan=False)
json_like: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(text | st.just("$tuple"), inner, max_size=3)
    ),
    max_leaves=6,
)
message = st.builds(
    Message,
    role=st.sampled_from(("system", "user", "assistant", "tool")),
    content=text,
    reasoning=st.none() | text,
    tool_calls=st.lists(
        st.builds(
            ToolCall, text, text, st.dictionaries(text, json_like, max_size=2), st.none() | text
        ),
        max_size=2,
    ).map(tuple),
    tool_call_id=st.none() | text,
)
messages = st.lists(message, max_size=2).map(tuple)
results = st.builds(
    StepResult,
    observation=st.builds(
        Observation,
        messages=messages,
        anchor=json_like,
        admissible=st.none() | st.lists(text, max_size=2).map(tuple),
        fresh=st.booleans(),
    ),
    reward=st.none() | floats,
    terminated=st.booleans(),
    truncated=st.booleans(),
    action_valid=st.booleans(),
    success=st.none() | st.booleans(),
    metrics=st.dictionaries(text, floats, max_size=2),
)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(tuple)
samples = ids.flatmap(
    lambda tokens: st.builds(
        Sample,
        token_ids=st.just(tokens),
        logprobs=st.lists(floats, min_size=len(tokens), max_size=len(tokens)).map(tuple),
        versions=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2).map(tuple),
        finish_reason=st.sampled_from(("stop", "length")),
    )
)
steps = st.builds(
    Step,
    index=st.integers(0, 99),
    shown=messages,
    anchor=json_like,
    prompt_ids=ids,
    sample=samples,
    action=message,
    action_key=text,
    parse_status=st.sampled_from(("ok", "no_action", "truncated")),
    result=st.none() | results,
    kind=st.sampled_from(("act", "summary", "skill")),
    timings=st.builds(Timings, floats, floats, floats, floats),
    answer=st.none() | message,
)
failures = st.none() | st.builds(Failure, text, text, text, st.integers(0, 9))
trajectories = st.builds(
    Trajectory,
    id=st.just("g/0/0"),
    group_id=st.just("g"),
    task_id=st.just("task"),
    trial=st.integers(0, 99),
    attempt=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    steps=st.lists(steps, max_size=3).map(tuple),
    stop_reason=st.sampled_from(StopReason),
    failure=failures,
    close_failure=failures,
    success=st.none() | st.booleans(),
    final_shown=messages,
    wall_s=floats,
)

TASK = Task("task", "toy", "train", {"n": (1, 2.5)}, "kind")


def round_trip(trajectory: Trajectory) -> Trajectory:
    with tempfile.TemporaryDirectory() as directory, SqliteStore(directory) as store:
        store.append(trajectory, task=TASK, iteration=0, purpose="train")
        return store.trajectory(trajectory.id).trajectory


def one_step(**changes: Any) -> Trajectory:
    whole = episode("g/0/0", ("x", 0.0))
    step = replace(whole.steps[0], **changes)
    return replace(whole, group_id="g", task_id=TASK.id, steps=(step,))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trajectories)
def test_every_record_comes_back_equal(trajectory: Trajectory) -> None:
    back = round_trip(trajectory)
    assert back == trajectory
    # repr tells 1 from 1.0 and True, and -0.0 from 0.0, where == does not.
    assert repr(back) == repr(trajectory)


@given(json_like)
def test_tuples_lists_and_odd_keys_are_told_apart(value: Any) -> None:
    assert repr(restored(plain(value))) == repr(value)


@pytest.mark.parametrize("number", [-0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, math.inf])
def test_floats_come_back_bit_for_bit(number: float) -> None:
    sample = Sample((1,), (number,), ((0, 0),), "stop")
    result = StepResult(Observation(()), number, terminated=True, metrics={"m": number})
    back = round_trip(one_step(sample=sample, result=result)).steps[0]
    assert back.result is not None
    for got in (back.sample.logprobs[0], back.result.reward, back.result.metrics["m"]):
        assert got is not None
        assert struct.pack("<d", got) == struct.pack("<d", number)


def test_nan_is_not_turned_into_unscored() -> None:
    result = StepResult(Observation(()), math.nan, terminated=True)
    back = round_trip(one_step(result=result)).steps[0].reward
    assert back is not None
    assert math.isnan(back)


def test_a_none_reward_stays_none() -> None:
    result = StepResult(Observation(()), None, terminated=True)
    assert round_trip(one_step(result=result)).steps[0].reward is None


def test_no_field_of_a_record_is_forgotten() -> None:
    """A new field in core must be taught to the codec: then extend this list and the strategies."""
    known = {
        Task: "id env split payload kind",
        Message: "role content reasoning tool_calls tool_call_id",
        ToolCall: "id name arguments problem",
        Sample: "token_ids logprobs versions finish_reason",
        Observation: "messages anchor admissible fresh",
        StepResult: "observation reward terminated truncated action_valid success metrics",
        Timings: "sample_s env_s tool_s wait_s",
        Step: "index shown anchor prompt_ids sample action action_key parse_status result kind"
        " timings answer",
        Failure: "boundary error message outages",
        Trajectory: "id group_id task_id trial attempt seed steps stop_reason failure"
        " close_failure success final_shown wall_s",
    }
    for record, names in known.items():
        assert {field.name for field in fields(record)} == set(names.split()), record


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"anchor": {1: "x"}}, "step 0.*key 1"),
        ({"anchor": {"x"}}, "step 0.*set is not JSON"),
        ({"prompt_ids": (2**31,)}, "step 0.*32 bits"),
        ({"prompt_ids": (0.5,)}, "step 0.*whole numbers"),
        ({"sample": Sample((1,), (None,), (), "stop")}, "step 0.*must be numbers"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_stored_exactly_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        round_trip(one_step(**changes))


def test_a_prompt_is_written_without_what_the_step_before_held(tmp_path: Path) -> None:
    # Four steps; each prompt = all before + 1 id, each answer 2 ids.
    whole = group("g", episode("a", *[("x", 0.0)] * 4))
    with SqliteStore(tmp_path) as store:
        store.append(whole.trajectories[0], task=whole.task, iteration=0, purpose="train")
    with sqlite3.connect(tmp_path / "store.sqlite") as database:
        rows = database.execute("SELECT prompt_kept, length(prompt_added) / 4 FROM steps")
        assert rows.fetchall() == [(0, 1), (3, 1), (6, 1), (9, 1)]
    database.close()


def test_a_fork_keeps_what_it_shares_and_stays_a_fork(tmp_path: Path) -> None:
    first, second = episode("a", ("x", 0.0), ("x", 0.0)).steps
    held = first.prompt_ids + first.sample.token_ids
    forked = replace(second, prompt_ids=(*held[:2], 77, 78))
    trajectory = replace(one_step(), steps=(first, forked))
    back = round_trip(trajectory)
    assert back == trajectory
    assert len(back.segments()) == 2


@given(st.lists(st.integers(0, 2)).map(tuple), st.lists(st.integers(0, 2)).map(tuple))
def test_the_shared_prefix_is_the_longest(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    slow = 0
    while slow < min(len(one), len(other)) and one[slow] == other[slow]:
        slow += 1
    assert shared_prefix(one, other) == slow


def test_messages_of_an_answer_are_not_written_again_as_shown(tmp_path: Path) -> None:
    seen = (Message("user", "y" * 10_000),)
    result = StepResult(Observation(seen, "hall"), 0.0, terminated=False)
    first, second = episode("a", ("x", 0.0), ("x", 0.0)).steps
    steps = (replace(first, result=result), replace(second, shown=seen, anchor="hall"))
    trajectory = replace(one_step(), steps=steps)
    with SqliteStore(tmp_path) as store:
        store.append(trajectory, task=TASK, iteration=0, purpose="train")
        assert store.trajectory(trajectory.id).trajectory == trajectory
    with sqlite3.connect(tmp_path / "store.sqlite") as database:
        (size,) = database.execute("SELECT sum(length(record)) FROM steps").fetchone()
        assert 10_000 < size < 11_500
    database.close()


def test_a_task_comes_back_equal_and_may_be_listed_in_two_splits(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        for name, split in (("a", "train"), ("b", "validation")):
            trajectory = replace(one_step(), id=f"{name}/0/0", group_id=name)
            store.append(trajectory, task=replace(TASK, split=split), iteration=0, purpose=split)
        assert [one.task for one in store.groups()] == [TASK, replace(TASK, split="validation")]


def test_what_is_only_equal_to_the_answer_before_is_written_itself(tmp_path: Path) -> None:
    # 1 == True == 1.0: a store that took equality for sameness would give one back for the other.
    def calling(number: Any) -> tuple[Message, ...]:
        return (Message("assistant", "", tool_calls=(ToolCall("1", "f", {"n": number}),)),)

    result = StepResult(Observation(calling(1), 1), 0.0, terminated=False)
    first, second = episode("a", ("x", 0.0), ("x", 0.0)).steps
    steps = (replace(first, result=result), replace(second, shown=calling(True), anchor=True))
    trajectory = replace(one_step(), steps=steps)
    assert repr(round_trip(trajectory)) == repr(trajectory)
