"""Lists, filters, credit, siblings, events, and what a resumed run asks."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import DataError, StoreError
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, StopReason, UpdateStats
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import episode, failed_episode, group

FIRST = group(
    "first",
    episode("win", ("hall", 0.0), ("attic", 1.0)),
    episode("lose", ("hall", 0.0), ("cellar", 0.0), stop_reason=StopReason.MAX_STEPS),
    failed_episode("crash", ("hall", 0.0)),
)
UNKNOWN = replace(episode("mute", ("hall", None)), success=None)
SECOND = group("second", episode("win", ("hall", 0.25), policy_version=3), UNKNOWN)
SECOND_TASK = replace(SECOND.task, kind="heat")
CREDIT = CreditResult(
    step_advantages=[(0.5, 0.75), (-0.0, -0.5), None],
    token_advantages=[((0.5, 0.5), (0.75, 0.7)), ((0.0, 0.0), (-0.5, -0.5)), None],
    parts={"episode": [(0.5, 0.5), (0.0, -0.5), None], "step": [(0.0, 0.25), (0.0, 0.0), None]},
    groups={"anchor": [(0, -1), (0, 1), None]},
    metrics={"equal_groups": 0.25},
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path) as store:
        for one in FIRST.trajectories:
            store.append(one, task=FIRST.task, iteration=1, purpose="train")
        for one in SECOND.trajectories:
            store.append(one, task=SECOND_TASK, iteration=2, purpose="validation/1")
        store.add_credit([FIRST], CREDIT)
        yield store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "first/win first/lose first/crash second/win second/mute"),
        ({"last": True, "limit": 2}, "second/mute second/win"),
        ({"task_id": FIRST.task.id}, "first/win first/lose first/crash"),
        ({"group_id": "second"}, "second/win second/mute"),
        ({"kind": "heat"}, "second/win second/mute"),
        ({"purpose": "validation"}, "second/win second/mute"),
        ({"purpose": "train", "outcome": "success"}, "first/win"),
        ({"outcome": "failure"}, "first/lose"),
        ({"outcome": "infra"}, "first/crash"),
        ({"outcome": "unknown"}, "second/mute"),
        ({"stop_reason": StopReason.MAX_STEPS}, "first/lose"),
        ({"iteration": 2}, "second/win second/mute"),
        ({"reward": (0.2, 0.9)}, "second/win"),
        ({"reward": (None, 0.0)}, "first/lose"),
        ({"reward": (0.25, None)}, "first/win second/win"),
        ({"advantage": (0.6, 0.8)}, "first/win"),
        ({"advantage": (None, -0.4)}, "first/lose"),
        ({"advantage": (None, None)}, "first/win first/lose"),
        ({"reward": (0.5, None), "iteration": 2}, ""),
    ],
)
def test_trajectories_are_found_by_what_holds_for_them(
    store: SqliteStore, wanted: dict[str, Any], found: str
) -> None:
    chosen = TrajectoryFilter(**wanted)
    lines = store.find(chosen)
    assert [line.id for line in lines] == found.split()
    if chosen.limit is None:
        assert store.count(chosen) == len(lines)


def test_a_line_says_what_the_run_knew(store: SqliteStore) -> None:
    win, _, crash, *_ = store.find()
    assert (win.reward, win.steps, win.sampled_tokens, win.success) == (1.0, 2, 4, True)
    assert (win.takes_part, win.advantage_low, win.advantage_high) == (True, 0.5, 0.75)
    assert (crash.takes_part, crash.advantage_low, crash.reward) == (False, None, None)
    assert crash.failure is not None
    assert crash.failure.error == "EnvError"
    second = store.find(TrajectoryFilter(group_id="second"))[0]
    assert (second.takes_part, second.oldest_version, second.newest_version) == (None, 3, 3)
    assert (second.env, second.split, second.kind, second.iteration) == ("toy", "train", "heat", 2)


def test_a_trajectory_comes_with_its_credit(store: SqliteStore) -> None:
    lose = store.trajectory("first/lose")
    assert lose.task == FIRST.task
    assert lose.trajectory == FIRST.trajectories[1]
    credit = lose.credit
    assert credit is not None
    assert credit.step_advantages is not None
    # -0.0 keeps its sign: struct compares bits.
    assert struct.pack("<2d", *credit.step_advantages) == struct.pack("<2d", -0.0, -0.5)
    assert credit.parts == {"episode": (0.0, -0.5), "step": (0.0, 0.0)}
    assert credit.token_advantages == ((0.0, 0.0), (-0.5, -0.5))
    assert credit.groups == {"anchor": (0, 1)}
    # "hall" (label 0) was left by two steps of the group; "cellar" by one.
    assert credit.group_sizes == {"anchor": (2, 1)}


def test_no_credit_and_no_part_in_it_are_told_apart(store: SqliteStore) -> None:
    crash = store.trajectory("first/crash").credit
    assert crash is not None
    assert crash.step_advantages is None
    assert store.trajectory("second/win").credit is None


def test_a_step_with_no_anchor_group_stands_alone(store: SqliteStore) -> None:
    credit = store.trajectory("first/win").credit
    assert credit is not None
    assert credit.group_sizes == {"anchor": (2, 1)}


def test_siblings_are_the_whole_group(store: SqliteStore) -> None:
    ids = [line.id for line in store.siblings("first/lose")]
    assert ids == ["first/win", "first/lose", "first/crash"]


def test_groups_are_chosen_by_iteration(store: SqliteStore) -> None:
    assert [one.id for one in store.groups(iteration=1)] == ["first"]
    assert store.group("first") == FIRST


@pytest.mark.parametrize("call", [SqliteStore.trajectory, SqliteStore.group, SqliteStore.siblings])
def test_an_unknown_id_is_named(store: SqliteStore, call: Any) -> None:
    with pytest.raises(StoreError, match="'nowhere'"):
        call(store, "nowhere")


def test_a_misspelt_outcome_is_refused() -> None:
    with pytest.raises(DataError, match="did you mean 'success'"):
        TrajectoryFilter(outcome="succes")  # type: ignore[arg-type]


def test_an_id_with_sql_in_it_is_an_id(store: SqliteStore) -> None:
    assert store.find(TrajectoryFilter(task_id="' OR 1=1 --", purpose="train%")) == []


def test_events_keep_order_kind_and_numbers(store: SqliteStore) -> None:
    update = UpdateStats(7, 3, {"loss": 0.1, "nan": float("inf")})
    store.add_update(update, iteration=2)
    store.add_event("evaluation", {"name": "before", "low": 0.5, "spans": (1, 2)})
    assert store.updates() == [update]
    kinds = [(event.kind, event.iteration) for event in store.events()]
    assert kinds == [("credit", 1), ("update", 2), ("evaluation", 0)]
    (evaluation,) = store.events("evaluation")
    assert evaluation.data == {"name": "before", "low": 0.5, "spans": (1, 2)}
    assert store.events("credit")[0].data == {"equal_groups": 0.25}
    assert [event.kind for event in store.events(iteration=2)] == ["update"]


def test_training_after_a_checkpoint_is_forgotten_and_what_was_played_stays(
    store: SqliteStore,
) -> None:
    played = store.find()
    store.add_event("resume", {})
    store.add_event("update", {}, iteration=1)
    last = store.last_event()
    assert [event.sequence for event in store.events()] == [last - 2, last - 1, last]
    store.forget_training(iteration=1, event=last)
    assert store.trajectory("first/win").credit is not None
    store.forget_training(iteration=0, event=0)
    assert [event.kind for event in store.events()] == ["resume"]
    assert [one.id for one in store.find()] == [one.id for one in played]
    assert store.trajectory("first/win").credit is None
    assert store.find(TrajectoryFilter(advantage=(None, None))) == []
    # It is made again, and events are numbered on.
    store.add_credit([FIRST], CREDIT)
    assert store.events("credit")[0].sequence > last
    credit = store.trajectory("first/win").credit
    assert credit is not None
    assert credit.step_advantages == (0.5, 0.75)


def test_what_of_a_group_was_played_is_found_by_trial(store: SqliteStore) -> None:
    assert store.played("nothing yet") == {}
    again = replace(FIRST.trajectories[2], id="first/crash/1", attempt=1)
    store.append(again, task=FIRST.task, iteration=1, purpose="train")
    assert store.played("first") == {one.trial: one for one in (*FIRST.trajectories[:2], again)}


def test_flushing_moves_the_log_into_the_database(store: SqliteStore) -> None:
    before = store.path.stat().st_size
    store.flush()
    assert store.path.stat().st_size > before


@pytest.mark.parametrize("field", ["task", "purpose", "iteration"])
def test_a_group_is_of_one_task_purpose_and_iteration(store: SqliteStore, field: str) -> None:
    wrong: dict[str, Any] = {"task": FIRST.task, "purpose": "train", "iteration": 1}
    wrong[field] = {"task": Task("other", "toy", "train"), "purpose": "after", "iteration": 9}[
        field
    ]
    one = replace(FIRST.trajectories[0], id="first/new", task_id=wrong["task"].id)
    with pytest.raises(StoreError, match="Group ids must be unique"):
        store.append(one, **wrong)


@pytest.mark.parametrize(
    ("credit", "words"),
    [
        (CreditResult([(0.5,)]), "1 trajectories, but the groups hold 2"),
        (CreditResult([(0.5, 0.5), None]), "2 values for 1 steps"),
        (CreditResult([(0.5,), None], parts={"episode": [(0.5,)]}), "'episode' is for 1"),
        (CreditResult([(0.5,), None], groups={"anchor": [(), None]}), "'anchor'.*0 values for 1"),
        (
            CreditResult([(0.5,), None], token_advantages=[((0.5,),), None]),
            "1 values for 2 sampled",
        ),
    ],
)
def test_unaligned_credit_is_refused_whole(
    store: SqliteStore, credit: CreditResult, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        store.add_credit([SECOND], credit)
    assert store.trajectory("second/win").credit is None


def test_the_tables_can_be_asked_in_plain_sql(store: SqliteStore) -> None:
    database = sqlite3.connect(store.path)
    rows = database.execute(
        "SELECT outcome, sum(advantage), group_concat(step_credit.record ->> '$.parts.step')"
        " FROM step_credit JOIN trajectories ON key = trajectory GROUP BY key"
    ).fetchall()
    database.close()
    assert rows == [("success", 1.25, "0.0,0.25"), ("failure", -0.5, "0.0,0.0")]
