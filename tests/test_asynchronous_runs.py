"""Runs whose rollouts go on beside the learner: settings, warnings, records, a killed engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentrl.alarms import uncorrected_loss
from agentrl.config import LearnerConfig, RolloutConfig, RunConfig, load_config
from agentrl.core.errors import ConfigError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, StepResult
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.toy import CorridorEnv, ToyFactory
from agentrl.play import evaluate
from agentrl.preflight import check_training
from agentrl.resuming import config_to_resume
from agentrl.rollout.staleness import Asynchrony
from agentrl.rollout.taken import TAKEN, Taken, credit_made_again, recorded_takes
from agentrl.run_directory import create_run_directory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.engine import CHECKS as ENGINE
from agentrl.testing.contracts.engine import EngineSubject
from agentrl.testing.contracts.env import CHECKS as ENV
from agentrl.testing.copied_engine import CopiedEngine
from agentrl.testing.episodes import episode, group
from agentrl.testing.slow_env import SlowFactory
from agentrl.testing.tiny_models import tiny_model
from agentrl.testing.tiny_runs import tiny_run, tiny_run_data
from agentrl.train import train
from agentrl.viewer.load import load_lines

BESIDE = "rollout.max_staleness=1"
COPIED = "engine.name=agentrl.testing.copied_engine:CopiedEngine"


# Settings


def test_older_samples_are_learnt_from_with_the_decoupled_loss_unless_another_is_named() -> None:
    data = tiny_run_data(Path("run"))
    assert load_config(data).learner.loss == "dapo"
    assert load_config(data, [BESIDE]).learner.loss == "decoupled"
    assert load_config(data, [BESIDE]).learner.learning_rate == 3e-3
    assert load_config(data, [BESIDE, "learner.loss=dapo"]).learner.loss == "dapo"
    data.pop("learner")
    assert load_config(data, [BESIDE]).learner.loss == "decoupled"
    # What is written into a run's directory says it, so that a resumed run has it as well.
    resolved = load_config(data, [BESIDE]).model_dump(mode="json")
    assert resolved["learner"]["loss"] == "decoupled"
    assert load_config(resolved).learner.loss == "decoupled"
    made = RunConfig.model_validate(
        {**data, "rollout": RolloutConfig(max_staleness=1), "learner": LearnerConfig()}
    )
    assert made.learner.loss == "decoupled"


@pytest.mark.parametrize("wrong", ["rollout.max_staleness=-1", "rollout.max_staleness=often"])
def test_a_wrong_bound_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.max_staleness"):
        load_config(tiny_run_data(Path("run")), [wrong])


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("dapo", "clips against the weights that sampled them"),
        ("no_ratio", "ignores that other weights sampled them"),
        ("cpgd", "pulls towards the weights that sampled them"),
    ],
)
def test_a_loss_that_does_not_correct_for_age_is_said_aloud(loss: Any, words: str) -> None:
    (text,) = uncorrected_loss(1, LearnerConfig(loss=loss), 2)
    assert words in text
    assert "Set stages.1.learner.loss=decoupled, unless you mean it" in text
    assert not list(uncorrected_loss(1, LearnerConfig(loss=loss), 0))
    assert not list(uncorrected_loss(1, LearnerConfig(loss="decoupled"), 2))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("deterministic=true",), "what is learnt from depends on who is quick"),
        (("engine.name=tests.test_asynchronous_runs:LiveEngine",), "weights of its own"),
        (("stages.1.strategies=[{name: adaptive}]",), r"stages\.1\.strategies decide by what"),
    ],
)
def test_a_run_that_cannot_have_rollouts_beside_its_learner_is_refused(
    overrides: Sequence[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_training(tiny_run(Path("run"), [BESIDE, *overrides]))
    check_training(tiny_run(Path("run"), [BESIDE, COPIED]))


class LiveEngine(ScriptedEngine):
    """Follows the learner's own weights, in its process."""


def test_how_old_samples_may_be_is_no_matter_of_resuming(tmp_path: Path) -> None:
    create_run_directory(tiny_run(tmp_path / "run", [BESIDE]))
    config_to_resume(tmp_path / "run", ["rollout.concurrency=3"])
    config_to_resume(tmp_path / "run", ["engine.threads=1"])
    for key in ("rollout.max_staleness=0", "rollout.late_groups=drop"):
        with pytest.raises(ConfigError, match="it would be another run"):
            config_to_resume(tmp_path / "run", [key])


# Records


def test_the_store_keeps_what_was_taken_and_forgets_the_credit_that_is_made_again(
    tmp_path: Path,
) -> None:
    # Filed by their place in the order of tasks: iterations 1, 2 and 3. Learnt from in another.
    groups = {number: group(f"g{number}", episode("e", ("s", 1.0))) for number in (1, 2, 3)}
    with SqliteStore(tmp_path / "run") as store:
        for number, one in groups.items():
            (trajectory,) = one.trajectories
            store.append(trajectory, task=one.task, iteration=number, purpose="train")
        for iteration, number in ((1, 3), (2, 1)):
            taken = Taken(iteration - 1, {f"g{number}": number})
            store.add_event(TAKEN, {"stage": "s", **taken.to_data()}, iteration=iteration)
            credit = CreditResult([[1.0]], metrics={"m": 1.0})
            store.add_credit([groups[number]], credit, iteration=iteration)
            if iteration == 1:
                event = store.last_event()
        assert [one.iteration for one in store.events("credit")] == [1, 2]
        again, kept = credit_made_again(store, 1)
        assert (again, kept) == (["g1"], ["g3"])
        store.forget_training(iteration=1, event=event, again=again, kept=kept)
        credited = {one.group_id for one in store.find() if one.takes_part is not None}
        assert credited == {"g3"}
        assert [one.iteration for one in store.events("credit")] == [1]
        assert [one.number for one in recorded_takes(store, "s")] == [0, 1]
        assert recorded_takes(store, "another") == []


def test_people_are_told_how_old_the_groups_were() -> None:
    made = Asynchrony(4, {"a": 0, "b": 1, "c": 1}, {"d": 3}, waited_s=1.24, overlap=0.456)
    counts = dict.fromkeys(
        ("finished", "recorded", "failed", "retried", "abandoned", "poisoned", "late"), 0
    )
    lines = dict(load_lines({**counts, "failures": {}, "asynchrony": made.to_data()}))
    assert lines["staleness"] == (
        "1 group of age 0, 2 groups of age 1, 1 dropped as too old, the learner waited 1.2 s, "
        "the engine computed in 46% of the updates' time"
    )
    assert "staleness" not in dict(load_lines({**counts, "failures": {}}))


# Parts that tests and measurements use


def test_an_engine_with_a_copy_of_the_weights_keeps_the_contract() -> None:
    model = tiny_model(48, seed=3, max_length=512)
    subject = EngineSubject(
        make=lambda: CopiedEngine(model, max_batch_size=8),
        prompt_ids=(5, 6, 7),
        vocabulary_size=48,
        stop_token_ids=(0, 1, 2, 3),
    )
    assert_contract(ENGINE, subject)


def test_a_slow_environment_keeps_the_contract_of_the_one_inside() -> None:
    options = {"max_rooms": 3, "max_steps": 6}
    assert_contract(ENV, lambda: SlowFactory("toy", options, shortest_s=1e-4, longest_s=1e-3))
    with pytest.raises(ConfigError, match="0 <= shortest_s <= longest_s"):
        SlowFactory("toy", options, shortest_s=2.0, longest_s=1.0)


def test_playing_alone_needs_no_process_for_the_engine() -> None:
    config = tiny_run(Path("run"), [BESIDE])
    report = evaluate(config, split="", tasks=2, trials=1, greedy=True, console=Console(quiet=True))
    assert report.tasks == 2
    assert engine_processes() == []


# A whole run


def engine_processes() -> list[int]:
    """Children of this process that sample."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"engines.process.worker" in command and int(parent) == os.getpid():
            found.append(int(folder.name))
    return found


class Deadly(CorridorEnv):
    """Kills the engine's process in one of its steps, once in a run."""

    killed = 0
    steps = 0

    async def step(self, action: Message) -> StepResult:
        Deadly.steps += 1
        if Deadly.steps == 60:
            for pid in engine_processes():
                os.kill(pid, signal.SIGKILL)
                Deadly.killed += 1
        return await super().step(action)


class DeadlyFactory(ToyFactory):
    """The toy environment, deadly to engines."""

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        env = await super().make(task, seed=seed)
        env.__class__ = Deadly
        return env


def test_an_engine_killed_in_a_run_is_replaced_and_its_episodes_are_played_again(
    tmp_path: Path,
) -> None:
    Deadly.killed = Deadly.steps = 0
    overrides = [
        BESIDE,
        "env.name=tests.test_asynchronous_runs:DeadlyFactory",
        "stages.1.iterations=4",
        "evaluation={tasks: 2, every: 0, greedy: false}",
        "rollout.backoff_s=0",
    ]
    train(tiny_run(tmp_path / "run", overrides), console=Console(quiet=True))
    assert Deadly.killed == 1
    assert engine_processes() == []
    with SqliteStore(tmp_path / "run", read_only=True) as store:
        takes = recorded_takes(store, "stage1")
        assert sorted(at for one in takes for at in one.positions.values()) == list(range(12))
        lines = store.find()
        failures = [one.failure for one in lines if one.failure is not None]
        assert {one.error for one in failures} <= {"EngineError"}
        for one in store.groups(purpose="train"):
            assert len(one.trajectories) == 3
            assert all(each.failure is None for each in one.trajectories)
        loads = [event.data for event in store.events("rollout")]
        assert all(one["asynchrony"]["version"] == 1 + one["number"] for one in loads)
        assert {age for one in loads for age in one["asynchrony"]["ages"].values()} <= {0, 1}
