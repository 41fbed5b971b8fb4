"""The options that estimators share: their words, their ranges, their defaults by mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agentrl.core.errors import ConfigError
from agentrl.credit.functional import Normaliser, Singleton

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "Entries",
    "EpisodeOptions",
    "StateOptions",
    "check_options",
    "entries_of",
    "lone_get_zero",
    "singleton_of",
]

Entries = Literal["trajectories", "rows"]

Range = tuple[float, float]
Words = tuple[str, ...]

NOT_NEGATIVE: Range = (0.0, math.inf)
SHARED: Mapping[str, Range | Words] = {
    "discount": (0.0, 1.0),
    "step_weight": NOT_NEGATIVE,
    "invalid_action_penalty": NOT_NEGATIVE,
    "epsilon": (0.0, 1.0),
    "normaliser": ("mean", "mean_std"),
    "entries": ("trajectories", "rows"),
    "singleton": ("zero", "raw"),
}


class ModeOptions(Protocol):
    """What decides a default: ``None`` means the published behaviour in reference mode only."""

    @property
    def singleton(self) -> Singleton | None:
        """What a group of one trajectory gets; ``None``: ``zero``, ``raw`` in reference mode."""

    @property
    def reference(self) -> bool:
        """Reproduce the published code, bugs included."""


class EntryOptions(ModeOptions, Protocol):
    """Options of an estimator that compares the scores of whole trajectories."""

    @property
    def invalid_action_penalty(self) -> float:
        """Taken from the score of the step whose action was invalid."""

    @property
    def entries(self) -> Entries | None:
        """One entry of the statistics; ``None``: ``trajectories``, ``rows`` in reference mode."""


class EpisodeOptions(EntryOptions, Protocol):
    """Options of an estimator with an episode part (``episode.episode_part``)."""

    @property
    def normaliser(self) -> Normaliser:
        """``mean`` or ``mean_std``."""

    @property
    def epsilon(self) -> float:
        """Added to the standard deviation."""


class StateOptions(EpisodeOptions, Protocol):
    """Options of an estimator that also compares steps taken from one state (``states``)."""

    @property
    def discount(self) -> float:
        """Per-step discount of the returns."""


def entries_of(options: EntryOptions) -> Entries:
    """What one entry of the episode part's statistics is."""
    return options.entries or ("rows" if options.reference else "trajectories")


def singleton_of(options: ModeOptions) -> Singleton:
    """What a group of one trajectory gets."""
    return options.singleton or ("raw" if options.reference else "zero")


def lone_get_zero(options: ModeOptions) -> bool:
    """Whether a group of one trajectory gets 0 everywhere."""
    return singleton_of(options) == "zero"


def check_options(estimator: DataclassInstance, **rules: Range | Words) -> None:
    """Refuse numbers outside their range and unknown words.

    Args:
        estimator: Its fields are checked by ``SHARED`` and ``rules``; ``None`` passes.
        rules: ``option=(low, high)``, both allowed, or ``option=(word, word, ...)``.

    Raises:
        ConfigError: naming the estimator, the option, what was got and what is allowed.
    """
    name = type(estimator).__name__
    for option in (one.name for one in fields(estimator)):
        rule, value = rules.get(option, SHARED.get(option)), getattr(estimator, option)
        if rule is not None and value is not None:
            _check(f"{name}: {option}", value, rule)
    similarity = getattr(estimator, "similarity", None)
    if similarity is not None and not 0.0 < similarity < 1.0:
        raise ConfigError(
            f"{name}: similarity must be strictly in (0, 1), got {similarity}; "
            "leave it out to compare equal anchors only"
        )


def _check(option: str, value: Any, rule: Range | Words) -> None:
    if isinstance(rule[0], str):
        if value not in rule:
            allowed = ", ".join(str(word) for word in rule)
            raise ConfigError(f"{option} must be one of {allowed}; got {value!r}")
        return
    low, high = rule
    if isinstance(value, str) or not low <= value <= high:
        raise ConfigError(f"{option} must be in [{low:g}, {high:g}], got {value!r}")
