"""What an environment says arrives exactly, or is refused with the reason."""

from __future__ import annotations

import math
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import DataError, EnvError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.process import frames
from agentrl.envs.process.codec import plain, restored, sendable_observation, sendable_result
from agentrl.envs.process.frames import HEADER, frame_length, packed, unpacked
from agentrl.testing.broken import ANSWERS

RIGHT = StepResult(Observation((Message("user", "hello"),), "s", ("go",)), 1.0, terminated=True)


def there_and_back(value: Any) -> Any:
    frame = packed({"value": plain(value)})
    assert frame_length(frame[: HEADER.size]) == len(frame) - HEADER.size
    return restored(unpacked(frame[HEADER.size :])["value"])


ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
KEYS = st.text(st.characters()) | st.integers() | st.tuples(st.integers(), st.text())
DATA = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(st.sampled_from(["$", "$$", "$tuple", "$pairs", "$Message"]), inner)
    ),
    max_leaves=12,
)


@given(DATA)
def test_json_like_data_comes_back_as_it_was(value: Any) -> None:
    # repr tells 1 from 1.0 and True, -0.0 from 0.0, and a tuple from a list; nan equals itself.
    assert repr(there_and_back(value)) == repr(value)


def test_records_come_back_equal_with_every_field() -> None:
    call = ToolCall("1", "search", {"q": ("a", 1), "$tuple": None}, problem="broken JSON")
    message = Message("assistant", "\ud800\x00", "because", (call,), "7")
    observation = Observation((message,), {"state": (1, [2])}, ("a", "b"))
    result = StepResult(observation, math.inf, False, True, False, None, {"cost": -0.0})
    for record in (
        message,
        observation,
        result,
        ToolSpec("search", "Find.", {"type": "object"}, read_only=True),
        Task("id", "toy", "train", {"n": [1, (2,)]}, "kind"),
        Demonstration(observation, message, trainable=False),
    ):
        assert there_and_back(record) == record
        assert repr(there_and_back(record)) == repr(record)


def test_subclasses_of_plain_types_become_what_they_are_of() -> None:
    class Colour(StrEnum):
        RED = "red"

    back = there_and_back([Colour.RED, np.float64(0.1), MappingProxyType({"a": 1})])
    assert repr(back) == "['red', 0.1, {'a': 1}]"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"grid": [0, np.zeros(2)]}, r"^\['grid'\]\[1\] is a numpy.ndarray; .*\.tolist\(\)"),
        (Observation((), anchor=np.int64(3)), r"^anchor is a numpy.int64;"),
        ({1, 2}, r"^the value is a set; .*sorted"),
        ([object()], r"^\[0\] is a object;"),
        ([b"x"], r"^\[0\] is a bytes;"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        plain(value)


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataError, match="holds itself"):
        plain(endless)


def test_a_frame_has_a_limit_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LIMIT_BYTES", 1000)
    with pytest.raises(DataError, match="a message of 1,012 bytes is more than the 1,000 that"):
        packed({"value": "x" * 1000})
    with pytest.raises(DataError, match="where the length of a message is expected"):
        frame_length(b"HTTP")
    with pytest.raises(DataError, match="not JSON"):
        unpacked(b"{")
    with pytest.raises(DataError, match="expected a JSON object"):
        unpacked(b"[]")
    with pytest.raises(DataError, match="cannot be sent as JSON"):
        packed({"value": 10**5000})


def test_an_unknown_record_is_refused() -> None:
    with pytest.raises(DataError, match="no such record"):
        restored({"$Nobody": [1]})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "step returned None, expected a StepResult"),
        ("text", "step returned 'a result', expected a StepResult"),
        ("observation", r"step returned Observation\(.*expected a StepResult"),
        ("text_reward", "reward='1' of type builtins.str, expected a number"),
        ("number_terminated", "terminated=0 of type builtins.int, expected True or False"),
        ("text_success", "success='yes' of type builtins.str, expected True, False or None"),
        ("text_metrics", r"metrics\['a'\]='b' of type builtins.str"),
        ("no_observation", "step returned None, expected an Observation"),
        ("bare_message", "observation.messages='hello' .*expected a tuple of Message"),
        ("number_content", r"messages\[0\].content=3 of type builtins.int, expected text"),
        ("own_class", "subclass of StepResult whose own fields would be lost"),
        ("array", r"anchor\['grid'\]\[0\] is a agentrl.testing.broken.Array; .*tolist"),
        ("set", "observation.anchor is a set"),
        ("object", "observation.anchor is a object"),
        ("bytes", "observation.anchor is a bytes"),
        ("holds_itself", "holds itself"),
    ],
)
def test_malformed_answers_are_named(name: str, words: str) -> None:
    with pytest.raises((EnvError, DataError), match=words):
        plain(sendable_result(ANSWERS[name](RIGHT), "step"))


@pytest.mark.parametrize("name", ["nan", "no_reward", "ten_megabytes", "exact"])
def test_odd_answers_are_sent_as_they_are(name: str) -> None:
    result = ANSWERS[name](RIGHT)
    assert repr(there_and_back(sendable_result(result, "step"))) == repr(result)


def test_scalars_of_array_libraries_become_numbers() -> None:
    given = StepResult(
        RIGHT.observation,
        np.float32(0.5),  # type: ignore[arg-type]
        np.bool_(True),  # type: ignore[arg-type]
        success=np.bool_(False),  # type: ignore[arg-type]
        metrics={"cost": np.int64(3)},  # type: ignore[dict-item]
    )
    result = sendable_result(given, "step")
    assert repr(result) == repr(
        StepResult(RIGHT.observation, 0.5, True, success=False, metrics={"cost": 3})
    )
    with pytest.raises(EnvError, match="reward=array"):
        sendable_result(StepResult(RIGHT.observation, np.zeros(2), False), "step")  # type: ignore[arg-type]


def test_an_observation_that_is_none_is_refused() -> None:
    with pytest.raises(EnvError, match="reset returned None, expected an Observation"):
        sendable_observation(None, "reset")
