"""Everything breaks, nothing is lost, invented or counted twice; and the judge is not blind.

The full form is ``benchmarks/chaos.py``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.core.trajectory import Failure, StopReason, Trajectory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.chaos import Chaos, changed, play_chaos, stored, verdict_on
from agentrl.testing.chaos_faults import ChaosPlan
from agentrl.testing.chaos_judge import Journal, Verdict

SOUND = Chaos(40, None, workers=0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 episodes in which nothing broke."""
    directory = tmp_path_factory.mktemp("sound")
    found = asyncio.run(play_chaos(SOUND, directory))
    assert found.sound, found.findings
    assert (found.finished, found.attempts) == (40, 40)
    return directory


def test_under_all_faults_nothing_is_lost_fabricated_doubled_or_wedged(tmp_path: Path) -> None:
    chaos = Chaos(320, ChaosPlan(seed=4, doomed=0.04), workers=1, iteration_groups=40)
    found = asyncio.run(play_chaos(chaos, tmp_path / "faults"))
    assert found.sound, found.findings
    assert found.resumed >= 1
    assert found.engine_restarts >= 1
    assert found.failed_for_good >= 4
    assert found.finished + found.failed_for_good == found.episodes == 320
    assert {
        "make/EnvError",
        "reset/DeadlineError",
        "reset/EnvError",
        "sample/EngineError",
        "sample/DeadlineError",
        "step/DeadlineError",
        "step/EnvError",
        "step/SandboxDiedError",
    } <= set(found.failures)
    assert any(one.endswith("/EnvDiedError") for one in found.failures)  # of the killed worker

    plain = asyncio.run(play_chaos(replace(chaos, plan=None, workers=0), tmp_path / "none"))
    assert plain.sound, plain.findings
    assert changed(stored(tmp_path / "faults"), stored(tmp_path / "none")) == []


def planted(sound: Path, directory: Path, plant: Callable[[Path], None]) -> Verdict:
    """The verdict on a copy of the sound run after ``plant`` has spoilt it."""
    copy = directory / "copy"
    shutil.copytree(sound, copy)
    plant(copy)
    return verdict_on(SOUND, copy)


def figures(verdict: Verdict) -> tuple[int, int, int]:
    return len(verdict.lost), len(verdict.fabricated), len(verdict.trained_twice)


def append(directory: Path, spoil: Callable[[Trajectory], Trajectory]) -> None:
    """Add to the store what ``spoil`` makes of its first record."""
    with SqliteStore(directory / "run") as store:
        first = store.trajectory(store.find()[0].id)
        made = spoil(first.trajectory)
        store.append(made, task=first.task, iteration=1, purpose="train")


def test_the_judge_finds_nothing_in_a_sound_run(sound: Path, tmp_path: Path) -> None:
    assert figures(planted(sound, tmp_path, lambda copy: None)) == (0, 0, 0)


def test_a_record_that_is_gone_is_lost(sound: Path, tmp_path: Path) -> None:
    def plant(copy: Path) -> None:
        name = stored(copy)[0].id
        with sqlite3.connect(copy / "run" / "store.sqlite") as database:
            database.execute("PRAGMA foreign_keys = OFF")
            found = database.execute("DELETE FROM trajectories WHERE id = ?", (name,))
            assert found.rowcount == 1
        database.close()

    verdict = planted(sound, tmp_path, plant)
    # Nothing on record, although it was acknowledged; and what the trainer took is on no record.
    assert len(verdict.lost) == 2
    assert "nothing on record" in verdict.lost[0]
    assert "was acknowledged, and is gone" in verdict.lost[1]
    assert len(verdict.fabricated) == 2
    assert verdict.trained_twice == ()


def test_an_episode_that_never_reached_the_trainer_is_lost(sound: Path, tmp_path: Path) -> None:
    def plant(copy: Path) -> None:
        journal = copy / "journal.jsonl"
        lines = journal.read_text().splitlines()
        last = max(number for number, line in enumerate(lines) if '"trained"' in line)
        del lines[last]
        journal.write_text("\n".join(lines) + "\n")

    verdict = planted(sound, tmp_path, plant)
    assert figures(verdict) == (1, 0, 0)
    assert "not given to the trainer" in verdict.lost[0]


def test_an_episode_given_to_the_trainer_again_is_trained_twice(
    sound: Path, tmp_path: Path
) -> None:
    def plant(copy: Path) -> None:
        Journal(copy / "journal.jsonl").write("trained", stored(copy)[:1])

    assert figures(planted(sound, tmp_path, plant)) == (0, 0, 1)


def test_a_doubled_record_is_trained_twice(sound: Path, tmp_path: Path) -> None:
    def again(one: Trajectory) -> Trajectory:
        return replace(one, id=f"{one.id}x", attempt=one.attempt + 1)

    verdict = planted(sound, tmp_path, lambda copy: append(copy, again))
    assert figures(verdict) == (0, 0, 2)  # finished again, and made of the same playing


def invented(one: Trajectory) -> Trajectory:
    """Another reward than the environment gave."""
    step = one.steps[0]
    assert step.result is not None
    steps = (replace(step, result=replace(step.result, reward=2.0)), *one.steps[1:])
    return replace(one, id=f"{one.id}x", attempt=one.attempt + 1, steps=steps)


def cut_short(one: Trajectory) -> Trajectory:
    """Said to be over one step before it was."""
    return replace(one, id=f"{one.id}x", attempt=one.attempt + 1, steps=one.steps[:-1])


def never_asked_for(one: Trajectory) -> Trajectory:
    return replace(one, id=f"{one.id}x", trial=99)


@pytest.mark.parametrize("spoil", [invented, cut_short, never_asked_for])
def test_what_no_environment_said_is_fabricated(
    sound: Path, tmp_path: Path, spoil: Callable[[Trajectory], Trajectory]
) -> None:
    verdict = planted(sound, tmp_path, lambda copy: append(copy, spoil))
    assert len(verdict.fabricated) == 1, verdict


def test_a_failure_with_a_success_is_fabricated(sound: Path, tmp_path: Path) -> None:
    def failed(one: Trajectory) -> Trajectory:
        failure = Failure("step", "EnvError", "planted")
        return replace(
            one,
            id=f"{one.id}x",
            attempt=one.attempt + 1,
            stop_reason=StopReason.FAILURE,
            failure=failure,
            success=True,
        )

    verdict = planted(sound, tmp_path, lambda copy: append(copy, failed))
    assert any("a failure with a reward or a success" in one for one in verdict.fabricated)


def test_a_broken_step_on_record_is_fabricated(sound: Path, tmp_path: Path) -> None:
    # As if the runner had made a reward of the NaN that the first step was planned to give.
    def plant(copy: Path) -> None:
        path = sorted((copy / "ledger").iterdir())[0]
        first, *rest = path.read_text().splitlines()
        line = {**json.loads(first), "breaks_at": 0}
        path.write_text("\n".join([json.dumps(line), *rest]) + "\n")

    verdict = planted(sound, tmp_path, plant)
    assert figures(verdict) == (0, 1, 0)
    assert "broke, and is on record" in verdict.fabricated[0]


def test_a_finished_episode_that_differs_from_the_sound_run_is_changed(sound: Path) -> None:
    records = stored(sound)
    assert changed(records, records) == []
    other = replace(records[0], success=not records[0].success)
    assert len(changed([other], records)) == 1
