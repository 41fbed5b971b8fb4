"""The store keeps the contract of its seam, and the contract goes red on a broken store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentrl.core.protocols import Store
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Trajectory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.contract import assert_contract, run_checks
from agentrl.testing.contracts.store import CHECKS


def test_the_sqlite_store_keeps_the_contract() -> None:
    assert_contract(CHECKS, SqliteStore)


def test_the_sqlite_store_is_a_store(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        assert isinstance(store, Store)


class ForgetfulStore:
    """Keeps everything in memory and checks nothing: what a careless store looks like."""

    def __init__(self, directory: Path) -> None:
        self.kept: dict[str, tuple[Task, list[Trajectory]]] = {}

    def append(self, trajectory: Trajectory, *, task: Task, iteration: int, purpose: str) -> None:
        self.kept.setdefault(trajectory.group_id, (task, []))[1].append(trajectory)

    def add_credit(self, groups: Sequence[Group], credit: CreditResult) -> None:
        pass

    def groups(self, *, purpose: str | None = None) -> Iterator[Group]:
        for id, (task, trajectories) in self.kept.items():
            yield Group(id, task, tuple(trajectories))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("check", CHECKS[1:], ids=lambda check: check.__name__)
def test_every_check_can_fail(check: object) -> None:
    (finding,) = asyncio.run(run_checks([check], ForgetfulStore))  # type: ignore[list-item]
    assert not finding.ok
    assert finding.detail
