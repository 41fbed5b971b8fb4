"""Checks of what an environment answers: malformed answers are infra failures, named as such."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentrl.core.errors import EnvError
from agentrl.core.message import ROLES, Message
from agentrl.core.trajectory import Observation, StepResult

__all__ = ["checked_observation", "checked_result"]


def checked_observation(observation: Any, where: str) -> Observation:
    """``observation``, if it is one that can be shown and recorded.

    Raises:
        EnvError: it is not.
    """
    if not isinstance(observation, Observation):
        raise EnvError(f"{where} gave {_short(observation)} where an Observation is expected")
    for message in observation.messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise EnvError(f"{where} shows {_short(message)}, expected a Message with text")
        if message.role not in ROLES or message.role == "assistant":
            raise EnvError(
                f"{where} shows a message of role '{message.role}'; only the policy speaks as "
                "assistant, an environment as user, tool or system"
            )
    if not _is_json_like(observation.anchor):
        raise EnvError(
            f"{where} gave the anchor {_short(observation.anchor)}; it must be JSON-like (text, "
            "numbers, lists, tuples, mappings with text keys), or None"
        )
    return observation


def checked_result(result: Any, where: str) -> StepResult:
    """``result``, if it is well formed; its reward as a plain float, or ``None``.

    Raises:
        EnvError: it is not; a reward that is NaN or infinite is named.
    """
    if not isinstance(result, StepResult):
        raise EnvError(f"{where} returned {_short(result)}, expected a StepResult")
    checked_observation(result.observation, where)
    for name, number in result.metrics.items():
        if not isinstance(name, str) or not _is_finite(number):
            raise EnvError(f"{where} gave the metric {name!r} as {number!r}, expected a number")
    if result.success is not None and not isinstance(result.success, bool):
        raise EnvError(f"{where} gave success as {result.success!r}, expected True, False or None")
    reward = result.reward
    if reward is None:
        return result
    if not _is_finite(reward):
        raise EnvError(
            f"{where} returned the reward {_short(reward)}; a reward must be a finite number, or "
            "None if the step cannot be scored"
        )
    return result if type(reward) in (float, int) else replace(result, reward=float(reward))


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, str) and math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


def _is_json_like(value: Any) -> bool:
    if value is None or isinstance(value, str | int | float):
        return True
    if isinstance(value, list | tuple):
        return all(map(_is_json_like, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json_like(one) for key, one in value.items())
    return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
