"""What an update learnt from is on record with it, and tokens are read back without their text."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.core.errors import StoreError
from agentrl.core.trajectory import Batch, CreditResult, UpdateStats
from agentrl.learn.rows import rows_from_demonstrations, rows_from_groups
from agentrl.store.sqlite import SqliteStore
from agentrl.store.trained import ids_digest, mask_spans
from agentrl.testing.contracts.store import rich_group
from agentrl.testing.episodes import episode, group

WIN = group("g", episode("win", ("hall", 0.0), ("attic", 1.0)))


def batch() -> Batch:
    credit = CreditResult([(0.5, 0.5)])
    return Batch(rows_from_groups([WIN], credit, trajectory_weighting="equal"), "stage0-0/0")


def test_an_update_is_recorded_with_its_rows(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.add_update(UpdateStats(1, 4, {"loss": 0.0}), iteration=2, batch=batch())
        store.add_update(UpdateStats(2, 4, {"loss": 0.0}), iteration=2)
        (trained,) = store.trained()
        assert [one.update for one in store.updates()] == [1, 2]
    assert (trained.id, trained.update, trained.iteration) == ("stage0-0/0", 1, 2)
    assert (trained.policy_version, trained.demonstrations) == (4, 0)
    (row,), (made,) = trained.rows, batch().rows
    assert row.trajectory_id == WIN.trajectories[0].id
    assert row.digest == ids_digest(made.token_ids)
    assert row.tokens == len(made.token_ids)
    # two steps of two sampled tokens, each behind what its prompt added
    assert [end - start for start, end in row.spans] == [2, 2]
    assert row.action_tokens == sum(made.action_mask) == 4


def test_demonstrations_are_counted_and_not_listed(tmp_path: Path) -> None:
    rows = rows_from_demonstrations([[((1, 2, 3), (0, 1, 1))]])
    with SqliteStore(tmp_path) as store:
        store.add_update(UpdateStats(1, 0, {}), batch=Batch(rows, "clone-0"))
        (trained,) = store.trained()
    assert (trained.rows, trained.demonstrations) == ((), 1)


def test_an_update_and_its_rows_are_recorded_together_or_not_at_all(tmp_path: Path) -> None:
    broken = Batch((*batch().rows, *batch().rows), "x")
    object.__setattr__(broken.rows[1], "token_ids", (2**40,))  # does not fit 32 bits
    with SqliteStore(tmp_path) as store:
        with pytest.raises(StoreError, match="32 bits"):
            store.add_update(UpdateStats(1, 0, {}), batch=broken)
        assert store.events() == []


def test_going_back_forgets_what_was_learnt_since(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.add_update(UpdateStats(1, 0, {}), iteration=1, batch=batch())
        kept = store.last_event()
        store.add_update(UpdateStats(2, 1, {}), iteration=2, batch=batch())
        store.forget_training(iteration=1, event=kept)
        assert [one.update for one in store.trained()] == [1]


@given(st.lists(st.integers(0, 1)))
def test_spans_are_the_runs_of_ones(mask: list[int]) -> None:
    spans = mask_spans(mask)
    inside = {place for start, end in spans for place in range(start, end)}
    assert inside == {place for place, one in enumerate(mask) if one}
    assert all(start < end for start, end in spans)
    assert all(end < start for (_, end), (start, _) in pairwise(spans))


def test_tokens_are_read_back_as_they_were_sampled(tmp_path: Path) -> None:
    played = rich_group()
    with SqliteStore(tmp_path) as store:
        for one in played.trajectories:
            store.append(one, task=played.task, iteration=0, purpose="train")
        for one in played.trajectories:
            steps = store.token_steps(one.id)
            assert [step.prompt_ids for step in steps] == [step.prompt_ids for step in one.steps]
            samples = [step.sample for step in one.steps]
            assert [step.token_ids for step in steps] == [sample.token_ids for sample in samples]
            assert [step.logprobs for step in steps] == [len(one.logprobs) for one in samples]
            assert [step.versions for step in steps] == [one.versions for one in samples]
        with pytest.raises(StoreError, match="no trajectory 'nobody'"):
            store.token_steps("nobody")


def test_tasks_come_with_what_they_were_played_for(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.append(WIN.trajectories[0], task=WIN.task, iteration=0, purpose="train")
        (again,) = group("again", episode("again", ("hall", 0.0))).trajectories
        again = replace(again, task_id=WIN.task.id)
        store.append(again, task=WIN.task, iteration=0, purpose="before")
        (played,) = store.played_tasks()
    assert played.task == WIN.task
    assert played.purposes == {"train", "before"}
    assert len(played.openings) == 1, "both begin in the hall"


def test_a_damaged_record_is_a_store_error(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.append(WIN.trajectories[0], task=WIN.task, iteration=0, purpose="train")
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("UPDATE steps SET record = '{}'")
    connection.close()
    with SqliteStore(tmp_path, read_only=True) as store:
        with pytest.raises(StoreError, match="a record is damaged"):
            store.token_steps(WIN.trajectories[0].id)
        with pytest.raises(StoreError, match="a record is damaged"):
            store.played_tasks()
