"""Everything breaks, nothing is lost, invented or counted twice; and the judge is not blind.

The full form is ``benchmarks/chaos.py``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.core.trajectory import Batch, Failure, StopReason, Trajectory, UpdateStats
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.chaos import Chaos, changed, play_chaos, stored, verdict_on
from agentrl.testing.chaos_faults import ChaosPlan
from agentrl.testing.chaos_judge import Journal, Verdict
from agentrl.testing.chaos_learner import LinearLearner

SOUND = Chaos(40, None, workers=0, learner=True)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 episodes in which nothing broke."""
    directory = tmp_path_factory.mktemp("sound")
    found = asyncio.run(play_chaos(SOUND, directory))
    assert found.sound, found.findings
    assert (found.finished, found.attempts) == (40, 40)
    return directory


def test_under_all_faults_nothing_is_lost_fabricated_doubled_or_wedged(tmp_path: Path) -> None:
    plan = ChaosPlan(seed=4, doomed=0.04)
    chaos = Chaos(320, plan, workers=1, iteration_groups=40, learner=True)
    found = asyncio.run(play_chaos(chaos, tmp_path / "faults"))
    assert found.sound, found.findings
    assert found.resumed >= 1
    assert found.engine_restarts >= 1
    assert found.updates == 4  # two of each iteration, however often it was begun
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


KEPT = ("acknowledged", "took")  # what the journal says of an episode before it is trained on


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
    # Nothing on record, although it was acknowledged; and what the trainer took, was given for
    # good and learnt from is on no record.
    assert len(verdict.lost) == 2
    assert "nothing on record" in verdict.lost[0]
    assert "was acknowledged, and is gone" in verdict.lost[1]
    assert len(verdict.fabricated) == 3
    assert verdict.trained_twice == ()


def test_an_episode_that_never_reached_the_trainer_is_lost(sound: Path, tmp_path: Path) -> None:
    def plant(copy: Path) -> None:
        journal = copy / "journal.jsonl"
        lines = journal.read_text().splitlines()
        name = max(json.loads(line)[3] for line in lines if '"trained"' in line)
        kept = [one for one in lines if json.loads(one)[0] in KEPT or name not in one]
        journal.write_text("\n".join(kept) + "\n")

    verdict = planted(sound, tmp_path, plant)
    assert figures(verdict) == (1, 0, 0)
    assert "not given to the trainer" in verdict.lost[0]


def test_an_episode_given_to_the_trainer_again_is_trained_twice(
    sound: Path, tmp_path: Path
) -> None:
    def plant(copy: Path) -> None:
        Journal(copy / "journal.jsonl").write("trained", stored(copy)[:1])

    assert figures(planted(sound, tmp_path, plant)) == (0, 0, 1)


def learnt(copy: Path) -> list[str]:
    """The lines of the journal in which the learner says what it has learnt from."""
    lines = (copy / "journal.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)[0] == "learnt"]


def test_what_a_learner_learnt_twice_is_trained_twice(sound: Path, tmp_path: Path) -> None:
    # The trainer took it once; it is the learner's own word that counts.
    def plant(copy: Path) -> None:
        with (copy / "journal.jsonl").open("a") as journal:
            journal.write(learnt(copy)[0] + "\n")

    assert figures(planted(sound, tmp_path, plant)) == (0, 0, 1)


def test_what_was_given_to_the_learner_and_not_learnt_is_lost(sound: Path, tmp_path: Path) -> None:
    def plant(copy: Path) -> None:
        journal = copy / "journal.jsonl"
        journal.write_text(journal.read_text().replace(learnt(copy)[3] + "\n", ""))

    assert figures(planted(sound, tmp_path, plant)) == (1, 0, 0)


def test_what_was_learnt_and_never_sampled_is_fabricated(sound: Path, tmp_path: Path) -> None:
    def plant(copy: Path) -> None:
        kind, name, tokens = json.loads(learnt(copy)[0])
        lines = [[kind, name, [[0, tokens[0][1]]]], [kind, "g99999/0/0", tokens]]
        with (copy / "journal.jsonl").open("a") as journal:
            journal.writelines(json.dumps(line) + "\n" for line in lines)

    assert figures(planted(sound, tmp_path, plant)) == (0, 2, 0)


def test_a_batch_that_comes_again_is_seen(tmp_path: Path) -> None:
    # A learner that goes over the batches of an iteration twice: for real, not in the journal.
    class Twice(LinearLearner):
        def fit(
            self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]
        ) -> None:
            once = list(batches)
            super().fit(iter([*once, once[-1]]), on_update=on_update)

    found = asyncio.run(play_chaos(Chaos(8, None, 0, learner=True), tmp_path, learner=Twice))
    assert found.trained_twice == 4
    assert (found.lost, found.fabricated, found.updates) == (0, 0, 3)


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
