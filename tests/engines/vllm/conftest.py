"""A real vLLM server on the CPU, where its environment is installed."""

from __future__ import annotations

import os

import pytest

from agentrl.core.errors import ConfigError
from agentrl.engines.vllm.environment import VARIABLE, ServerEnvironment, find_environment


@pytest.fixture(scope="session")
def server_environment() -> ServerEnvironment:
    """Absent: skip on a developer's machine, fail where CI is set."""
    try:
        return find_environment()
    except ConfigError as error:
        reason = f"no vLLM server to test with: {error}"
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI builds it, see .ci/run, and names it with {VARIABLE})")
    pytest.skip(reason)
