"""Episodes in the terminal: everything a step holds, and nothing that acts on the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.core.errors import StoreError
from agentrl.core.message import Message, ToolCall
from agentrl.core.trajectory import CreditResult, StopReason
from agentrl.store.records import TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import act, episode, failed_episode, group
from agentrl.viewer.terminal import show_trajectories, show_trajectory
from agentrl.viewer.wording import shortened, signed, visible

CALL = Message(
    "assistant",
    "",
    reasoning="I need the cat.",
    tool_calls=(ToolCall("1", "search", {"q": "cat"}),),
)
GROUP = group(
    "g",
    episode("win", replace(act("kitchen"), action=CALL), ("attic [bold]loft[/bold]", 1.0, "take")),
    episode(
        "lose",
        replace(act("kitchen", action="\x1b[2Jgo", valid=False), parse_status="no_action"),
        stop_reason=StopReason.MAX_STEPS,
    ),
    failed_episode("crash", ("kitchen", 0.0)),
)
CREDIT = CreditResult(
    [(0.75, 0.5), (-1.25,), None],
    parts={"episode": [(0.5, 0.5), (-1.0,), None], "step": [(0.25, 0.0), (-0.25,), None]},
    groups={"anchor": [(0, 1), (0,), None]},
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path) as store:
        for one in GROUP.trajectories:
            store.append(one, task=replace(GROUP.task, kind="heat"), iteration=3, purpose="train")
        store.add_credit([GROUP], CREDIT)
        yield store


def printed(store: SqliteStore, trajectory_id: str, limit: int | None = 2000) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    show_trajectory(store, trajectory_id, console, limit=limit)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def listed(store: SqliteStore, wanted: TrajectoryFilter) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    show_trajectories(store, wanted, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_step_shows_what_was_seen_done_and_earned(store: SqliteStore) -> None:
    text = printed(store, "g/win")
    for words in (
        "kitchen",
        "I need the cat.",
        'search(q="cat")',
        "reward 0  valid  advantage +0.750  (episode +0.500, step +0.250, anchor group of 2)",
        "reward 1  valid  advantage +0.500  (episode +0.500, step 0, anchor seen once)",
        "end  terminated",
        "train, iteration 3, trial 0",
        "success, reward 1, 2 steps, 4 tokens",
        "kind heat",
    ):
        assert words in text


def test_what_the_policy_did_wrong_is_said(store: SqliteStore) -> None:
    text = printed(store, "g/lose")
    assert "not parsed: no_action  invalid action" in text
    assert "reward 0  invalid  advantage -1.250" in text
    assert "end  max_steps" in text


def test_siblings_stand_beside_with_this_one_marked(store: SqliteStore) -> None:
    text = printed(store, "g/lose")
    rows = [line.split() for line in text[text.index("its group") :].splitlines()]
    assert ["0", "success", "1", "2", "+0.500", "..", "+0.750", "terminated"] in rows
    assert [">", "1", "failure", "0", "1", "-1.250", "max_steps"] in rows
    assert ["2", "infra", "unscored", "1", "no", "part", "EnvError"] in rows


def test_an_infra_failure_says_where_and_what(store: SqliteStore) -> None:
    text = printed(store, "g/crash")
    assert "took no part in credit" in text
    assert "failed at step: EnvError: the world is gone" in text


def test_text_of_models_is_shown_and_never_obeyed(store: SqliteStore) -> None:
    lose, win = printed(store, "g/lose"), printed(store, "g/win")
    assert "\x1b" not in lose
    assert "\N{SYMBOL FOR ESCAPE}[2Jgo" in lose
    assert "attic [bold]loft[/bold]" in win  # no markup of rich


def test_long_text_is_cut_and_says_so(store: SqliteStore) -> None:
    long = group("long", episode("a", ("x" * 5000, 1.0)))
    store.append(long.trajectories[0], task=long.task, iteration=0, purpose="before")
    assert "[… 4,700 characters left out …]" in printed(store, "long/a", limit=300)
    assert printed(store, "long/a", limit=None).count("x") >= 5000
    assert "no credit was recorded" in printed(store, "long/a")


def test_the_list_is_filtered_and_says_how_many_there_are(store: SqliteStore) -> None:
    text = listed(store, TrajectoryFilter(limit=2))
    assert "g/win" in text
    assert "g/crash" not in text
    assert "2 of 3 shown" in text
    assert "+0.500 .. +0.750" in text
    only = listed(store, TrajectoryFilter(outcome="infra"))
    assert "g/crash" in only
    assert "EnvError" in only
    assert "g/win" not in only
    assert "no episode matches" in listed(store, TrajectoryFilter(purpose="after"))


def test_an_unknown_trajectory_is_named(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="'g/none'"):
        printed(store, "g/none")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text", "plain text"),
        ("two\nlines\tand tab", "two\nlines\tand tab"),
        ("Grüße 🔑 漢字", "Grüße 🔑 漢字"),
        ("\x00\x07\x1b\x7f", "␀␇␛␡"),
        ("\u202eright\u2066", "\\u202eright\\u2066"),
        ("\ud800", "\\ud800"),
        ("no\u00a0break", "no\u00a0break"),
        ("\r\n", "␍\n"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_could_act_is_made_visible(raw: str, shown: str) -> None:
    assert visible(raw) == shown
    visible(raw).encode()


def test_shortening_keeps_both_ends() -> None:
    text = shortened("a" * 100 + "b" * 100, 30)
    assert text.startswith("a" * 20 + "\n")
    assert text.endswith("\n" + "b" * 10)
    assert "170 characters" in text
    assert shortened("short", 30) == "short"


def test_zero_has_no_sign() -> None:
    assert [signed(number) for number in (0.0, -0.0, 0.5, -0.25)] == ["0", "0", "+0.500", "-0.250"]
