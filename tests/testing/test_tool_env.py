"""The box environment keeps the contract of environments."""

from __future__ import annotations

from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS
from agentrl.testing.tool_env import BoxFactory


def test_contract() -> None:
    assert_contract(CHECKS, BoxFactory)
