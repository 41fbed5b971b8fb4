"""What people see of a run: filters, one episode, a group side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from agentrl.engines.work import EngineWork
from agentrl.rollout.load import Load
from agentrl.rollout.stats import RolloutCounts
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import episode, group
from agentrl.viewer.terminal import trajectory_table
from tests.cli.conftest import Agentrl


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"mixed/win", "mixed/lose", "mixed/crash", "late/lose"}),
        (("--kind", "cool"), {"late/lose"}),
        (("--outcome", "infra"), {"mixed/crash"}),
        (("--stop", "max_steps"), {"mixed/lose"}),
        (("--iteration", "1"), {"late/lose"}),
        (("--reward", "1.."), {"mixed/win"}),
        (("--advantage", "..-0.5"), {"mixed/lose"}),
        (("--advantage", "0.6..0.8"), {"mixed/win"}),
        (("--purpose", "after"), set()),
    ],
)
def test_episodes_are_filtered(
    agentrl: Agentrl, run_dir: Path, options: tuple[str, ...], expected: set[str]
) -> None:
    listed = agentrl("view", run_dir, *options, "--json").json()
    assert {one["id"] for one in listed["episodes"]} == expected
    shown = agentrl("view", run_dir, *options).out
    assert {one for one in ("mixed/win", "late/lose") if one in shown} == expected & {
        *("mixed/win", "late/lose")
    }


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--outcome", "sucess"), "did you mean 'success'?"),
        (("--stop", "max_step"), "did you mean 'max_steps'?"),
        (("--reward", "5"), "must be a range LOW..HIGH"),
        (("--advantage", "a..b"), "must be a range LOW..HIGH"),
        (("mixed/wim",), "did you mean 'mixed/win'?"),
        (("mixed/",), "begins the ids of 3 episodes: mixed/win, mixed/lose, mixed/crash; give"),
        (("--group", "mixd"), "did you mean 'mixed'?"),
        (("mixed/win", "--page"), "not several"),
        (("--prompts",), "name its id"),
        (("mixed/win", "--prompts"), "no tokenizer.json of the run"),
    ],
)
def test_a_wrong_filter_is_misuse(
    agentrl: Agentrl, run_dir: Path, options: tuple[str, ...], hint: str
) -> None:
    ended = agentrl("view", run_dir, *options)
    assert ended.code == 2
    assert hint in ended.err


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (("--kind", "heat", "--purpose", "after"), ["kind heat 3, cool 1", "purpose train 4"]),
        (("--purpose", "trian"), ["purpose train 4 (did you mean 'train'?)"]),
        (("--kind", "clean"), ["kind heat 3, cool 1"]),
        (("--stop", "max_tokens", "--iteration", "7"), ["iteration from 0 to 1"]),
        (("--reward", "2.."), ["reward from 0 to 1"]),
        (("--advantage", "2.."), ["advantage from -1 to 0.75"]),
        (("--task", "x", "--outcome", "unknown"), ["outcome failure 2, success 1, infra 1"]),
    ],
)
def test_a_filter_without_a_match_says_what_there_is(
    agentrl: Agentrl, run_dir: Path, options: tuple[str, ...], lines: list[str]
) -> None:
    shown = [" ".join(line.split()) for line in agentrl("view", run_dir, *options).out.splitlines()]
    assert shown[0] == "no episode matches; of 4 in this run there are"
    for line in lines:
        assert line in shown


def test_a_run_that_has_played_nothing_says_so(agentrl: Agentrl, tmp_path: Path) -> None:
    SqliteStore(tmp_path / "run").close()
    assert agentrl("view", tmp_path / "run").out == "no episode was played yet\n"


def test_a_group_and_an_episode_may_be_named_by_how_they_begin(
    agentrl: Agentrl, run_dir: Path
) -> None:
    assert agentrl("view", run_dir, "--group", "mi", "--json").json()["group"] == "mixed"
    for given, whole in (("mixed/wi", "mixed/win"), ("late", "late/lose")):
        shown = agentrl("view", run_dir, given, "--json").json()
        assert shown["trajectory"]["id"] == whole


def test_an_episode_is_a_dialogue_with_what_was_said_and_done(
    agentrl: Agentrl, run_dir: Path
) -> None:
    shown = agentrl("view", run_dir, "mixed/win").out
    for words in (
        "food is there",
        "<action>go kitchen</action>",
        "action go kitchen",
        "advantage +0.750",
        "reward 1  valid",
    ):
        assert words in shown


def test_a_group_stands_side_by_side(agentrl: Agentrl, run_dir: Path) -> None:
    shown = agentrl("view", run_dir, "--group", "mixed").out
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "trial 0 success trial 1 failure trial 2 infra" in rows
    # All three began in the hall, which is state A; no other state was met twice.
    assert "0 A go kitchen +0.750 A go attic -0.250 A go" in rows
    assert "1 take mug reward 1 +0.500 dance ✗ -1.000" in rows


def test_a_run_can_be_looked_at_while_it_writes(agentrl: Agentrl, run_dir: Path) -> None:
    more = group("more", episode("new", ("hall", 1.0)))
    with SqliteStore(run_dir) as store:
        assert agentrl("view", run_dir, "--json").json()["total"] == 4
        store.append(more.trajectories[0], task=more.task, iteration=2, purpose="train")
        listed = agentrl("view", run_dir, "--json", "--limit", "1").json()
    assert listed["total"] == 5
    assert listed["episodes"][0]["id"] == "more/new"


def test_ids_stand_whole_in_a_narrow_terminal(run_dir: Path) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        lines = store.find()
    console = Console(width=50, no_color=True)
    with console.capture() as captured:
        console.print(trajectory_table(lines, console.width))
    shown = captured.get()
    assert "mixed/crash" in shown
    assert "outcome" in shown
    assert "ended by" not in shown


def test_the_list_ends_with_what_the_newest_credit_came_to(agentrl: Agentrl, run_dir: Path) -> None:
    shown = agentrl("view", run_dir).out
    for words in (
        "credit of iteration 0",
        "1 of 2 trajectories, 1 failed and 0 unscored trajectories left out",
        "4, 0% left without signal",
        "episode 100% (mean size 0.625)",
        "3 clusters of 1.3 steps, at most 2; 50% of the acts compared with nothing",
    ):
        assert words in shown
    found = agentrl("view", run_dir, "--json").json()["credit"]
    assert found["iteration"] == 0
    assert found["metrics"]["episode_abs_mean"] == 0.625
    assert agentrl("view", run_dir, "--iteration", "1", "--json").json()["credit"] is None
    assert "credit of" not in agentrl("view", run_dir, "--iteration", "1").out
    agentrl("view", run_dir, "--page")
    page = (run_dir / "report.html").read_text()
    assert "<h2>Credit of iteration 0</h2>" in page
    assert "<td>parts</td><td>episode 100% (mean size 0.625)</td>" in page


def test_the_list_says_where_the_time_of_the_newest_rollout_went(
    agentrl: Agentrl, run_dir: Path
) -> None:
    assert agentrl("view", run_dir, "--json").json()["rollout"] is None
    counts = RolloutCounts(
        requested=10,
        finished=7,
        failed=3,
        retried=4,
        sampled_tokens=900,
        failures={"step/EnvError": 6, "reset/DeadlineError": 1},
        timings={"sample_s": 5.0, "env_s": 4.0, "tool_s": 1.0, "wait_s": 1.0},
    )
    work = EngineWork(busy_s=9.0, forwards=10, rows=35.0, sampled_tokens=1234)
    with SqliteStore(run_dir) as store:
        store.add_event("rollout", Load(counts, 10.0, work).to_data(), iteration=1)
    shown = agentrl("view", run_dir).out
    for words in (
        "rollout of iteration 1",
        "7 finished, 3 failed for good, 4 attempts tried again",
        "busy 90%, 3.5 requests a pass, 123 tokens/s",
        "sampling 50%, environment 30%, tools 10%, waiting 10%",
        "step/EnvError 6, reset/DeadlineError 1",
    ):
        assert words in shown
    found = agentrl("view", run_dir, "--json").json()["rollout"]
    assert (found["iteration"], found["metrics"]["tool_s"]) == (1, 1.0)
    assert agentrl("view", run_dir, "--iteration", "0", "--json").json()["rollout"] is None
    agentrl("view", run_dir, "--page")
    page = (run_dir / "report.html").read_text()
    assert "<h2>Rollout of iteration 1</h2>" in page
    assert "<td>step/EnvError 6, reset/DeadlineError 1</td>" in page
