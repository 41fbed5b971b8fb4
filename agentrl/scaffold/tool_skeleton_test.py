"""Tests of Skeleton."""

from __future__ import annotations

import asyncio

from agentrl.scaffold.tool_skeleton import Skeleton
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.tool import CHECKS, ToolSubject


def test_it_keeps_the_contract_of_tools() -> None:
    assert_contract(CHECKS, ToolSubject(Skeleton))


def test_it_counts() -> None:
    assert asyncio.run(Skeleton()("a b A", "a")) == "2 times"
