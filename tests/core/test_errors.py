"""The error tree is part of the interface: what is listed is what there is."""

from __future__ import annotations

import pytest

from agentrl.core import errors
from agentrl.core.errors import nearest


def test_every_error_is_listed_and_everything_listed_exists() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined | {"nearest"} == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        (errors.ConfigError, errors.AgentRLError),
        (errors.UnknownPluginError, errors.ConfigError),
        (errors.MissingDependencyError, errors.ConfigError),
        (errors.DataError, errors.AgentRLError),
        (errors.SchemaVersionError, errors.DataError),
        (errors.EpisodeError, errors.AgentRLError),
        (errors.DeadlineError, errors.EpisodeError),
        (errors.BlockedError, errors.EpisodeError),
        (errors.AbandonedError, errors.EpisodeError),
        (errors.PoisonedTaskError, errors.EpisodeError),
        (errors.EngineError, errors.EpisodeError),
        (errors.EnvError, errors.EpisodeError),
        (errors.EnvDiedError, errors.EnvError),
        (errors.UserError, errors.EpisodeError),
        (errors.RecallError, errors.EpisodeError),
        (errors.SandboxError, errors.EpisodeError),
        (errors.SandboxUnavailableError, errors.SandboxError),
        (errors.SandboxTimeoutError, errors.SandboxError),
        (errors.SandboxOutputLimitError, errors.SandboxError),
        (errors.SandboxDiedError, errors.SandboxError),
        (errors.LearnerError, errors.AgentRLError),
        (errors.WeightSyncError, errors.LearnerError),
        (errors.StoreError, errors.AgentRLError),
        (errors.ToolError, Exception),
    ],
)
def test_the_tree_is_as_documented(child: type[Exception], parent: type[Exception]) -> None:
    assert child.__base__ is parent


def test_text_for_the_model_is_no_error_of_the_run() -> None:
    assert not issubclass(errors.ToolError, errors.AgentRLError)


def test_a_missing_dependency_names_the_extra_of_a_checkout() -> None:
    error = errors.MissingDependencyError.for_extra("docker", "docker", "the docker sandbox")
    assert str(error) == (
        "the docker sandbox needs the package 'docker', which is not installed. "
        "From a checkout: pip install -e '.[docker]'"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [("serach", "; did you mean 'search'?"), ("zzz", ""), ("", "")],
)
def test_nearest_suggests_only_what_is_near(name: str, hint: str) -> None:
    assert nearest(name, ["search", "shell"]) == hint
