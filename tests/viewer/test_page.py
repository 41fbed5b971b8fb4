"""The page of a run: one file, nothing loaded, nothing run, everything escaped, small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import DataError, StoreError
from agentrl.core.message import Message, ToolCall
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Failure, Group, StopReason, Trajectory
from agentrl.evaluate.report import (
    CurvePoint,
    Evaluation,
    RunReport,
    SuccessReport,
    TaskOutcome,
    write_report,
)
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import act, episode, failed_episode, group
from agentrl.viewer.choice import choose
from agentrl.viewer.page import write_page

NASTY = (
    "</details></script><script>alert(1)</script><img src=x onerror=alert(2)> "
    "\" onmouseover='alert(3)' & <b>bold</b> \x1b[31m \u202e"
)


def evaluation(success: float, **changes: Any) -> dict[str, Any]:
    kind = {"success": success, "low": success - 0.1, "high": success + 0.1, "tasks": 20}
    return {
        "success": success,
        "low": success - 0.1,
        "high": success + 0.1,
        "confidence": 0.95,
        "tasks": 40,
        "exclusion": "",
        "by_kind": {"heat": kind, NASTY: kind},
        "greedy": None,
        **changes,
    }


def report(**changes: Any) -> dict[str, Any]:
    points = [
        {
            "iteration": n,
            "episodes": 64 * (n + 1),
            "tokens": 1000 * (n + 1),
            "train_success": n / 10,
            "validation": evaluation(0.2 + n / 20) if n % 3 == 0 else None,
        }
        for n in range(10)
    ]
    return {
        "before": evaluation(0.2, greedy=evaluation(0.3)),
        "after": evaluation(0.6, greedy=evaluation(0.7), exclusion="2 of 40 are excluded"),
        "paired": {"difference": 0.4, "low": 0.25, "high": 0.55, "improved": 18, "worsened": 2},
        "curve": points,
        "wall_s": 125.0,
        "peak_rss_mb": 900.0,
        **changes,
    }


def keep(store: SqliteStore, one: Group, purpose: str = "train", iteration: int = 0) -> None:
    for trajectory in one.trajectories:
        store.append(trajectory, task=one.task, iteration=iteration, purpose=purpose)


def nasty_group() -> Group:
    step = replace(
        act(NASTY, 0.0, valid=False),
        shown=(Message("user", NASTY),),
        action=Message("assistant", NASTY, NASTY, (ToolCall("1", NASTY, {NASTY: NASTY}),)),
        parse_status=NASTY,
    )
    crash = replace(failed_episode("crash", ("x", 0.0)), failure=Failure(NASTY, NASTY, NASTY))
    whole = group("g", episode("win", step, ("attic", 1.0)), episode("lose", step), crash)
    task = Task(NASTY, NASTY, NASTY, {}, NASTY)
    named = [
        replace(one, id=f"{NASTY}/{place}", group_id=NASTY, task_id=NASTY)
        for place, one in enumerate(whole.trajectories)
    ]
    return Group(NASTY, task, tuple(named))


CREDIT = CreditResult(
    [(0.75, 0.5), (-1.25,), None],
    parts={"episode": [(0.5, 0.5), (-1.0,), None]},
    groups={"anchor": [(0, 1), (0,), None]},
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / NASTY.replace("/", "_").replace("\x1b", "")
    with SqliteStore(directory) as store:
        whole = nasty_group()
        keep(store, whole, f"train/{NASTY}")
        store.add_credit([whole], CREDIT)
    (directory / "report.json").write_text(json.dumps(report()))
    return directory


class Reader(HTMLParser):
    """What a browser would make of the page."""

    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.text).append(data)


def read(path: Path) -> tuple[Reader, str]:
    html = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader, html


def test_nothing_is_loaded_and_nothing_foreign_runs(run_dir: Path) -> None:
    reader, html = read(write_page(run_dir))
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"img", "link", "iframe", "object", "embed", "base", "form"}
    for _, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert not attributes.keys() & {"src", "href", "action", "xlink:href"}
    assert re.search(r"<title>[^<]*report of the run</title>", html)
    assert "url(" not in html
    assert "@import" not in html
    (script,) = reader.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policies = [one["content"] for tag, one in reader.tags if "http-equiv" in one]
    assert policies == [
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    ]


def test_what_was_written_is_shown_as_text(run_dir: Path) -> None:
    reader, html = read(write_page(run_dir))
    text = "".join(reader.text)
    assert text.count("<script>alert(1)</script>") >= 8
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_each_step_shows_its_credit_by_sign(run_dir: Path) -> None:
    _, html = read(write_page(run_dir))
    assert '<div class="credit up"><b class="plus">+0.750</b>' in html
    assert '<div class="credit down"><b class="minus">-1.250</b>' in html
    assert "episode +0.500, anchor group of 2" in html
    assert "episode +0.500, anchor seen once" in html
    assert "rewards of its group: <b>1</b> · 0 · infra" in html
    assert "took no part in credit" in html
    assert html.count('<details class="episode"') == 3
    assert html.count(" open>") == 1


def test_episodes_can_be_filtered_by_what_they_are(run_dir: Path) -> None:
    reader, html = read(write_page(run_dir))
    selects = [attributes["name"] for tag, attributes in reader.tags if tag == "select"]
    assert selects == ["purpose", "outcome", "kind", "ended"]
    episodes = [attributes for tag, attributes in reader.tags if tag == "details"]
    for name in selects:
        assert all(f"data-{name}" in one for one in episodes)
    options = "".join(reader.text)
    for one in episodes:
        assert one["data-ended"] is not None
        assert one["data-ended"] in options
    assert "dataset[by.name]" in html


def test_what_was_said_stands_beside_what_was_done(tmp_path: Path) -> None:
    said = Message("assistant", "<action>go</action>", reasoning="food is there")
    step = replace(act("hall"), answer=said)
    with SqliteStore(tmp_path) as store:
        keep(store, group("g", episode("a", step)))
        reader, _ = read(write_page(tmp_path, store))
    text = "".join(reader.text)
    assert "food is there" in text
    assert "<action>go</action>" in text


def test_the_results_are_those_of_the_report(run_dir: Path) -> None:
    reader, html = read(write_page(run_dir))
    text = "".join(reader.text)
    assert "20.0% → 60.0%" in text
    assert "+40.0 points" in text
    assert "[+25.0, +55.0], 18 better, 2 worse" in text
    assert "After: 2 of 40 are excluded." in text
    assert "2 min 5 s" in text
    assert html.count("<circle") == 4  # validations at iterations 0, 3, 6, 9
    assert "validation: 35.0% [25.0%, 45.0%], 40 tasks" in text


def test_a_run_under_way_has_a_page(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        keep(store, group("g", episode("a", ("x", 1.0))))
        store.add_event("iteration", report()["curve"][0])
        store.add_event("iteration", {"of": "another kind"})
        reader, html = read(write_page(tmp_path, store))
    assert "Under way" in "".join(reader.text)
    assert "<circle" in html


def test_a_run_that_has_played_nothing_has_a_page(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        reader, _ = read(write_page(tmp_path, store))
    assert "No episode has been recorded yet" in "".join(reader.text)


def test_a_report_without_a_curve_is_drawn(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    (tmp_path / "report.json").write_text(json.dumps(report(curve=[])))
    _, html = read(write_page(tmp_path))
    assert ">before</text>" in html


def test_the_page_stays_small_however_much_was_said(tmp_path: Path) -> None:
    # 24 episodes of 200 steps of 3000 three-byte characters: 43 MB of text.
    long = [replace(act("x"), shown=(Message("user", "漢" * 3000),)) for _ in range(200)]
    with SqliteStore(tmp_path) as store:
        for number in range(24):
            keep(store, group(f"g{number}", episode("a", *long)))
        path = write_page(tmp_path, store)
    reader, _ = read(path)
    assert 300_000 < path.stat().st_size < 1_000_000
    text = "".join(reader.text)
    assert "characters left out" in text
    assert "more steps are left out of this page" in text


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"before": {}}', '{"before": {}, "after": {}, "curve": []}']
)
def test_a_damaged_report_is_said(tmp_path: Path, damage: str) -> None:
    SqliteStore(tmp_path).close()
    (tmp_path / "report.json").write_text(damage)
    with pytest.raises(DataError, match=r"report\.json.*write it again"):
        write_page(tmp_path)


def test_a_directory_without_a_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        write_page(tmp_path)


def test_the_choice_shows_change_then_credit_then_failure(tmp_path: Path) -> None:
    def alone(name: str, reward: float) -> Trajectory:
        return episode(name, ("x", reward), stop_reason=StopReason.TERMINATED)

    with SqliteStore(tmp_path) as store:
        keep(store, group("dull", alone("a", 0.0), alone("b", 0.0)))
        keep(store, group("broken", failed_episode("c")))
        mixed = group("mixed", alone("d", 1.0), alone("e", 0.0), alone("f", 1.0))
        keep(store, mixed)
        store.add_credit([mixed], CreditResult([(0.5,), (-1.0,), (0.5,)]))
        for purpose, rewards in (("before", (0.0, 1.0, 0.0)), ("after", (1.0, 0.0, 0.0))):
            for number, reward in enumerate(rewards):
                one = group(f"{purpose}{number}", alone("t", reward), task_name=f"test{number}")
                keep(store, one, purpose)
        lines = store.find()
    chosen = [line.id for line in choose(lines, 8)]
    assert chosen[:4] == ["before0/t", "after0/t", "before1/t", "after1/t"]  # won, then lost
    assert set(chosen[4:6]) <= {"mixed/d", "mixed/e", "mixed/f"}
    assert chosen[5] == "mixed/e"
    assert chosen[6:] == ["broken/c", "dull/a"]
    assert choose(lines, 8) == choose(list(lines), 8)
    assert len(choose(lines, 100)) == len(lines)
    assert choose([], 8) == []


def test_the_page_reads_what_a_run_writes(tmp_path: Path) -> None:
    outcomes = [
        TaskOutcome.of(one.task, trajectory)
        for one in (group("won", episode("a", ("x", 1.0))), group("lost", episode("b", ("x", 0.0))))
        for trajectory in one.trajectories
    ]
    panel = SuccessReport.of(outcomes, panel=[one.task_id for one in outcomes])
    both = Evaluation(panel, panel)
    point = CurvePoint(0, 8, 100, 1.0, 0.5, None, panel)
    written = RunReport.of(both, both, curve=[point], wall_s=61.0, peak_rss_mb=10.0)
    with SqliteStore(tmp_path) as store:
        store.add_event("iteration", {"stage": "stage0", **point.to_data()})
        read(write_page(tmp_path, store))  # under way: from the event
        write_report(tmp_path, written)
        reader, html = read(write_page(tmp_path, store))
    assert "50.0% → 50.0%" in "".join(reader.text)
    assert "1 min 1 s" in html
