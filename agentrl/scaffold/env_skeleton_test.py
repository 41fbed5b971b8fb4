"""Tests of SkeletonFactory."""

from __future__ import annotations

import asyncio

from agentrl.core.message import Message
from agentrl.scaffold.env_skeleton import SkeletonFactory
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS


def test_it_keeps_the_contract_of_environments() -> None:
    assert_contract(CHECKS, SkeletonFactory)


def test_the_first_right_command_moves_towards_the_target() -> None:
    async def play() -> None:
        factory = SkeletonFactory()
        task = factory.tasks("train")[0]
        env = await factory.make(task, seed=0)
        await env.reset()
        command = "up" if task.payload["start"] < task.payload["target"] else "down"
        result = await env.step(Message("assistant", command))
        assert result.action_valid
        await env.aclose()

    asyncio.run(play())
