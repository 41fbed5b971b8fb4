"""What the run file says about limits reaches the parts."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from agentrl.agents.flight import Deadlines
from agentrl.assembly import assemble, make_factory, open_new_run
from agentrl.rollout.runner import Limits
from agentrl.testing.tiny_runs import tiny_run


def test_deadlines_and_limits_are_those_of_the_run_file(tmp_path: Path) -> None:
    settings = {
        "concurrency": 3,
        "env_concurrency": 2,
        "tokens_in_flight": 999,
        "retries": 1,
        "backoff_s": 0.25,
        "make_timeout_s": 1,
        "reset_timeout_s": 2,
        "step_timeout_s": 3,
        "close_timeout_s": 4,
        "sample_timeout_s": 5,
        "give_up_after": 7,
        "quorum": 2,
    }
    overrides = [f"rollout.{key}={value}" for key, value in settings.items()]
    with assemble(tiny_run(tmp_path, overrides)) as parts:
        # Whole: the budget of 600 s, making, resetting, a last view, answer and step.
        assert parts.agent.deadlines == Deadlines(
            make_s=1, reset_s=2, step_s=3, close_s=4, sample_s=5, episode_s=600 + 1 + 2 + 5 + 5 + 3
        )
        runner = parts.runner(parts.sampling(), lambda *_: None)
        expected = Limits(3, 1, 7, env_concurrency=2, tokens_in_flight=999, backoff_s=0.25)
        # An evaluation waits for everybody: the quorum is training's.
        assert runner.limits == replace(expected, stall_s=10.0)


def test_the_store_waits_for_the_disk_if_the_run_file_says_so(tmp_path: Path) -> None:
    for synchronous, level in (("normal", 1), ("full", 2)):
        run_dir = tmp_path / synchronous
        config = tiny_run(run_dir, [f"store.synchronous={synchronous}"])
        with ExitStack() as stack:
            _, store = open_new_run(stack, config, make_factory(config), run_dir)
            connection: sqlite3.Connection = store._connection
            assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
