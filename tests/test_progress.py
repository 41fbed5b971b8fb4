"""What stands on the terminal while a run works: a panel there, plain lines anywhere else."""

from __future__ import annotations

import asyncio
import io
import threading
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress as Bars

from agentrl.core.trajectory import StepResult
from agentrl.progress import LivePanel, Progress, StageLog
from agentrl.rollout.load import Meter
from agentrl.rollout.stats import RolloutStats
from agentrl.testing.faults import Fault, FaultyFactory
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import train
from tests.rollout.playing import WIN, agent, corridor, requests, run, runner
from tests.rollout.test_load import BusyEngine


def screen(terminal: bool) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(
        file=written, force_terminal=terminal, width=100, height=40, color_system=None
    ), written


def test_the_panel_says_rates_of_late_and_counts_of_the_stage() -> None:
    now = [0.0]
    stats, engine = RolloutStats(), BusyEngine()
    faulty = FaultyFactory(corridor(), Fault("raise", "step", step=1, attempts=1))
    playing = replace(runner(faulty), stats=stats)
    panel = LivePanel(Bars(), Meter(stats, engine, clock=lambda: now[0]))
    run(playing.run(requests(corridor(), 2)))
    now[0], engine.busy_s, engine.forwards, engine.mean_batch = 10.0, 8.0, 10, 4.0
    engine.sampled_tokens = 500
    shown = dict(panel.lines())
    assert shown["in flight"] == "no episode: scoring, learning or testing"
    assert shown["episodes"].startswith("6 finished, ")
    assert shown["engine"] == "busy 80%, 4.0 requests a pass, 50 tokens/s"
    assert "step/EnvError" in shown["failures"]
    for now[0] in (20.0, 30.0, 40.0, 50.0):  # nothing is sampled any more
        later = dict(panel.lines())
    assert later["engine"] == "busy 0%, 0 tokens/s"
    assert (later["episodes"], later["failures"]) == (shown["episodes"], shown["failures"])


def test_a_call_that_lasts_is_named_with_its_episode() -> None:
    reached, release, stats = asyncio.Event(), asyncio.Event(), RolloutStats()

    async def step() -> StepResult:
        reached.set()
        await release.wait()
        return WIN

    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [step]))
    playing = replace(runner(factory, agent()), stats=stats)
    seen: dict[str, str] = {}

    async def look() -> None:
        work = asyncio.create_task(playing.run(requests(factory, 1, 1)))
        await reached.wait()
        since_s = stats.waiting()[0].since_s
        panel = LivePanel(Bars(), Meter(stats, None), monotonic=lambda: since_s + 12.0)
        seen.update(panel.lines())
        release.set()
        await work

    run(look())
    assert seen["in flight"] == "1 episodes, 1 to be done"
    assert seen["slowest"].endswith("(scripted) waits 12 s for step")


def test_a_terminal_gets_the_panel_and_a_log_the_plain_lines() -> None:
    for terminal in (True, False):
        console, written = screen(terminal)
        meter = Meter(RolloutStats(), None)
        with Progress(console).stage("stage1: rl", 3, meter=meter) as shown:
            shown.console.print("a line in between")
        text = written.getvalue()
        assert "stage1: rl" in text
        assert "a line in between" in text
        assert ("in flight" in text) is terminal


def test_a_whole_run_shows_one_panel(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    console, written = screen(terminal=True)
    train(tiny_run(tmp_path / "run"), console=console)
    text = written.getvalue()
    assert "iteration    2" in text
    last = text[text.rindex("in flight") :]
    assert "18 finished" in last
    assert "requests a pass" in text


def test_a_log_says_what_begins_and_how_far_it_is_in_whole_lines(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    console, written = screen(terminal=False)
    run_dir = tmp_path / ("a_long_name_" * 8) / "run"
    train(tiny_run(run_dir), console=console)
    lines = written.getvalue().splitlines()
    assert lines[0] == (
        f"run {run_dir}: a new tiny model (2 layers, width 32) plays toy; 2 updates of cloning, "
        "then 2 iterations of rl with gigpo"
    )
    assert "stage0: clone: begins at 0 of 2" in lines
    assert "evaluating on the test panel (before)" in lines
    assert any(line.startswith("stage1: rl: 2 of 2; ") for line in lines)
    assert f"  open {run_dir / 'report.html'}   agentrl view {run_dir}" in lines


class Told(io.StringIO):
    """Text whose first line of rl somebody waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines_came = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if "in flight" in self.getvalue() or "no episode" in self.getvalue():
            self.lines_came.set()
        return count


def test_a_log_gets_lines_also_within_an_iteration() -> None:
    written = Told()
    console = Console(file=written, width=60, color_system=None)
    bars = Bars(console=console)
    bars.add_task("stage1: rl", total=3, completed=1, note="success 50%")
    panel = LivePanel(bars, Meter(RolloutStats(), None))
    now = iter(range(0, 1_000_000, 60))
    with StageLog(bars, panel, console, every_s=0.01, monotonic=lambda: float(next(now))):
        assert written.lines_came.wait(timeout=60)
    first = written.getvalue().splitlines()[0]
    assert first.startswith("stage1: rl: 1 of 3; 60 s; success 50%; no episode: scoring")
    assert "\nstage1: rl: 1 of 3; " in written.getvalue()
