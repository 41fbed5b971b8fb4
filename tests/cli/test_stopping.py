"""A run that is told to stop ends as with Ctrl-C: it says how to go on, and it can go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
import yaml

from agentrl.core.task import Task
from agentrl.envs.toy import CorridorEnv, ToyFactory
from agentrl.testing.tiny_runs import tiny_run_data
from tests.cli.conftest import Agentrl


class Preempted(ToyFactory):
    """The toy environment of a machine that is taken away at the episode ``at``."""

    def __init__(self, flag: str, at: int = 9) -> None:
        super().__init__(max_rooms=3, max_steps=6)
        self._flag, self._at = Path(flag), at
        self._made = 0

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        self._made += 1
        if self._made == self._at and not self._flag.exists():
            self._flag.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return await super().make(task, seed=seed)


def test_sigterm_leaves_a_run_that_goes_on(agentrl: Agentrl, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    run_dir = tmp_path / "run"
    data = tiny_run_data(run_dir)
    flag = str(tmp_path / "taken")
    data["env"] = {"name": "tests.cli.test_stopping:Preempted", "options": {"flag": flag}}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(data))
    stopped = agentrl("train", file)
    assert stopped.code == 143
    hint = f"The run has stopped. To go on: agentrl train --resume {run_dir}"
    assert hint in stopped.out.splitlines()
    assert stopped.err == "agentrl: stopped by SIGTERM; what was finished is kept\n"
    resumed = agentrl("train", "--resume", run_dir)
    assert resumed.code == 0
    assert f"Run directory: {run_dir}" in resumed.out.splitlines()
