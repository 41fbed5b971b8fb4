"""A run file that asks for worker processes: the same run, and no process left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.assembly import assemble, close_factory, make_factory
from agentrl.config import load_config
from agentrl.core.errors import ConfigError
from agentrl.envs.process.factory import ProcessFactory
from agentrl.envs.toy import ToyFactory
from agentrl.testing.tiny_runs import tiny_run, tiny_run_data
from agentrl.train import MODEL_DIRECTORY, train
from tests.envs.process.conftest import children

WEIGHTS = f"{MODEL_DIRECTORY}/model.safetensors"


def test_a_run_in_processes_learns_the_same_weights_to_the_last_bit(tmp_path: Path) -> None:
    exact = ["deterministic=true", "evaluation.tasks=2", "evaluation.every=0"]
    train(tiny_run(tmp_path / "one", exact), console=Console(quiet=True))
    in_two = [*exact, "env.workers.processes=2", "env.workers.episodes=3"]
    train(tiny_run(tmp_path / "two", in_two), console=Console(quiet=True))
    assert (tmp_path / "two" / WEIGHTS).read_bytes() == (tmp_path / "one" / WEIGHTS).read_bytes()
    assert children() == []


def test_episodes_are_shared_out_and_no_more_are_in_flight_than_have_places(
    tmp_path: Path,
) -> None:
    config = tiny_run(tmp_path, ["rollout.concurrency=7", "env.workers.processes=2"])
    with assemble(config) as parts:
        factory = parts.factory
        assert isinstance(factory, ProcessFactory)
        assert factory.capacity == 8  # 4 each
        runner = parts.runner(parts.sampling(), lambda *_: None)
        assert runner.limits.concurrency == 7
    assert children() == []
    config = tiny_run(tmp_path, ["env.workers.processes=2", "env.workers.episodes=3"])
    with assemble(config) as parts:
        runner = parts.runner(parts.sampling(), lambda *_: None)
        assert runner.limits.concurrency == 6
    assert children() == []


def test_without_workers_the_factory_is_the_environments_own(tmp_path: Path) -> None:
    factory = make_factory(tiny_run(tmp_path))
    assert isinstance(factory, ToyFactory)
    close_factory(factory)  # which has nothing to close


def test_the_settings_arrive(tmp_path: Path) -> None:
    settings = "{processes: 1, python: /no/such/python, start_timeout_s: 3, grace_s: 2}"
    with pytest.raises(ConfigError, match=re.escape("with '/no/such/python': No such file")):
        make_factory(tiny_run(tmp_path, [f"env.workers={settings}"]))


@pytest.mark.parametrize("wrong", ["python: python3", "episodes: 3"])
def test_settings_of_workers_without_workers_are_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is of worker processes, and processes is 0"):
        load_config(tiny_run_data(tmp_path), [f"env.workers={{{wrong}}}"])
