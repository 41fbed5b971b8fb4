"""The error tree. Expected errors are data; anything outside this tree is a bug and stops the run.

Every message says what was got, what was expected, where, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AbandonedError",
    "AgentRLError",
    "BlockedError",
    "ConfigError",
    "DataError",
    "DeadlineError",
    "EngineError",
    "EnvDiedError",
    "EnvError",
    "EpisodeError",
    "LearnerError",
    "MissingDependencyError",
    "PoisonedTaskError",
    "RecallError",
    "SandboxDiedError",
    "SandboxError",
    "SandboxOutputLimitError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SchemaVersionError",
    "StoreError",
    "ToolError",
    "UnknownPluginError",
    "UserError",
    "WeightSyncError",
    "nearest",
]


class AgentRLError(Exception):
    """Root of every expected error."""


class ConfigError(AgentRLError):
    """A run configuration that is wrong or cannot work together."""


class UnknownPluginError(ConfigError):
    """A name that no installed plug-in has."""


class MissingDependencyError(ConfigError):
    """An optional package is not installed; the message names the extra that brings it."""

    @classmethod
    def for_extra(cls, package: str, extra: str, purpose: str) -> MissingDependencyError:
        return cls(
            f"{purpose} needs the package '{package}', which is not installed. "
            f"From a checkout: pip install -e '.[{extra}]'"
        )


class DataError(AgentRLError):
    """Data that is damaged, missing or of the wrong shape."""


class SchemaVersionError(DataError):
    """Data written by another version of the schema."""


class EpisodeError(AgentRLError):
    """An episode could not go on, and the policy is not to blame."""


class DeadlineError(EpisodeError):
    """Something did not return within its deadline."""


class BlockedError(EpisodeError):
    """Code blocked the event loop of all episodes until the run was given up."""


class AbandonedError(EpisodeError):
    """The episode was given up because its group was complete enough without it."""


class PoisonedTaskError(EpisodeError):
    """The episode was not played: its task keeps failing and was set aside."""


class EngineError(EpisodeError):
    """The engine could not sample."""


class EnvError(EpisodeError):
    """The environment failed, hung, or returned what it must not."""


class EnvDiedError(EnvError):
    """The process that an environment runs in is gone."""


class UserError(EpisodeError):
    """The simulated user failed."""


class RecallError(EpisodeError):
    """The memory failed to produce a view."""


class SandboxError(EpisodeError):
    """A sandbox failed."""


class SandboxUnavailableError(SandboxError):
    """The sandbox backend cannot be used on this machine."""


class SandboxTimeoutError(SandboxError):
    """A command in the sandbox ran past its deadline."""


class SandboxOutputLimitError(SandboxError):
    """A command in the sandbox printed more than allowed."""


class SandboxDiedError(SandboxError):
    """The sandbox is gone."""


class LearnerError(AgentRLError):
    """The learner could not make an update."""


class WeightSyncError(LearnerError):
    """New weights did not reach the engine."""


class StoreError(AgentRLError):
    """The trajectory store cannot be read or written."""


class ToolError(Exception):
    """Text for the model: it becomes an observation and the episode goes on."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint ``; did you mean 'x'?`` for a misspelt name, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{matches[0]}'?" if matches else ""
