"""Playing without training: an evaluation of a policy, or episodes into a store."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import Any

from rich.console import Console

from agentrl.assembly import Parts, assemble, open_new_run, tasks_of
from agentrl.completions.usage import Usage
from agentrl.config import RunConfig
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Trajectory
from agentrl.evaluate.panel import evaluate_panel
from agentrl.evaluate.rendering import success_table
from agentrl.evaluate.report import SuccessReport
from agentrl.preflight import check_playing
from agentrl.rollout.runner import GroupRequest, refuse_if_nothing_finished
from agentrl.run_directory import create_run_directory

__all__ = ["evaluate", "rollout"]


def evaluate(
    config: RunConfig, *, split: str, tasks: int, trials: int, greedy: bool, console: Console
) -> SuccessReport:
    """Success of the configured model on the first tasks of a split; nothing is written.

    Args:
        config: The run; its stages are not looked at.
        split: Empty: its test split. tasks: 0: as many as its test panel.
        trials: Episodes per task.
        greedy: Temperature 0 instead of the run's sampling.
        console: Where the result is shown.
    """
    with assemble(_alone(config), check_playing(config)) as parts:
        panel = parts.tasks(split or config.env.test_split, tasks or config.evaluation.tasks)
        seed = derive_seed(config.seed, "panel")
        runner = parts.runner(parts.sampling(greedy=greedy), lambda *_: None)
        with console.status(f"playing {len(panel)} tasks, {trials} times each"):
            work = evaluate_panel(runner, panel, trials=trials, seed=seed, name="evaluate")
            report = parts.loop.run(work)
    console.print(success_table(report))
    _show_usage(parts, console)
    return report


def rollout(
    config: RunConfig, *, split: str, tasks: int, group_size: int, console: Console
) -> dict[str, Any]:
    """Play groups into the store of a new run directory; returns counts for machines."""
    factory = check_playing(config)
    chosen = tasks_of(config, factory, split or config.env.train_split, tasks)
    run_dir = create_run_directory(config, command="rollout")
    with ExitStack() as stack:
        parts, store = open_new_run(stack, _alone(config), factory, run_dir)
        started = time.perf_counter()

        def keep(purpose: str, request: GroupRequest, trajectory: Trajectory) -> None:
            store.append(trajectory, task=request.task, iteration=0, purpose=purpose)

        runner = parts.runner(parts.sampling(), partial(keep, "rollout"))
        seed = derive_seed(config.seed, "rollout")
        requests = [GroupRequest(f"rollout-{one.id}", one, group_size, seed) for one in chosen]
        with console.status(f"playing {tasks * group_size} episodes"):
            groups = parts.loop.run(runner.run(requests), on_given_up=runner.blame)
        refuse_if_nothing_finished(groups)
        seconds = time.perf_counter() - started
    played = [one for group in groups for one in group.trajectories]
    summary = {
        "run_dir": str(run_dir),
        "episodes": len(played),
        "succeeded": sum(one.success is True for one in played),
        "infra_failures": sum(one.failure is not None for one in played),
        "sampled_tokens": sum(one.sampled_tokens for one in played),
        "seconds": seconds,
    }
    _show_usage(parts, console)
    console.print(
        f"{summary['episodes']} episodes, {summary['succeeded']} succeeded, "
        f"{summary['infra_failures']} infra failures, {seconds:.1f} s. "
        f"Look at them: agentrl view {run_dir}",
        highlight=False,
    )
    return summary


def _alone(config: RunConfig) -> RunConfig:
    """Without a learner beside it the engine needs no process of its own."""
    rollout = config.rollout.model_copy(update={"max_staleness": 0})
    return config.model_copy(update={"rollout": rollout})


def _show_usage(parts: Parts, console: Console) -> None:
    """What an engine that is paid for has used."""
    usage = getattr(parts.agent.engine, "usage", None)
    if not isinstance(usage, Usage):
        return
    unsaid = f", {usage.uncounted:,} answers not counted" if usage.uncounted else ""
    console.print(
        f"{usage.requests:,} answers of the endpoint, {usage.prompt_tokens:,} + "
        f"{usage.completion_tokens:,} tokens{unsaid}, cost {usage.cost:.4g}",
        highlight=False,
    )
