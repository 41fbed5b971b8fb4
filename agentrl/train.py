"""Wires the parts of a run; the only module that knows all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from agentrl.assembly import Parts, assemble, open_new_run
from agentrl.checkpoints import Checkpoint, Checkpoints, RunState
from agentrl.config import RunConfig
from agentrl.core.errors import AgentRLError
from agentrl.evaluate.report import CurvePoint, Evaluation, RunReport, read_report, write_report
from agentrl.panels import Panels
from agentrl.plan import beginning
from agentrl.preflight import check_training
from agentrl.progress import Progress
from agentrl.resuming import config_to_resume
from agentrl.rollout.taken import credit_made_again
from agentrl.run_directory import CONFIG_FILE, create_run_directory
from agentrl.store.sqlite import SqliteStore
from agentrl.trackers.measures import of_evaluation
from agentrl.trackers.sending import open_trackers
from agentrl.training import Training
from agentrl.viewer.page import write_page

__all__ = ["ADAPTER_DIRECTORY", "MODEL_DIRECTORY", "resume", "train"]

MODEL_DIRECTORY = "model"
ADAPTER_DIRECTORY = "adapter"
FINISHED = "finished"


def train(config: RunConfig, *, console: Console) -> RunReport:
    """Run all stages of ``config``; the run directory then holds model, store and report.

    A trained adapter is merged into the model; the adapter itself is beside it, in ``adapter``.

    Raises:
        ConfigError: the run cannot work; nothing was written.
        AgentRLError: whatever stopped the run; ``resume`` goes on with it.
    """
    factory = check_training(config, new=True)
    run_dir = create_run_directory(config)
    progress = Progress(console)
    progress.note(beginning(config))
    with ExitStack() as stack:
        parts, store = open_new_run(stack, config, factory, run_dir)
        return _execute(_training(parts, store, progress), run_dir)


def resume(run_dir: Path, overrides: Sequence[str] = (), *, console: Console) -> RunReport:
    """Go on with a run that was stopped or killed, from its last checkpoint.

    Episodes in its store are not played again. A finished run is only reported again.

    Args:
        run_dir: Its directory.
        overrides: ``key=value`` of what may be changed (``agentrl.resuming``), for this time. What
            was changed in its ``config.yaml`` is heeded too, within the same bounds.
        console: Where progress is shown.

    Raises:
        ConfigError: no run is there, or it would be another run.
        StoreError: another process is writing to the run.
        DataError: the run's data is damaged; the message says what to do.
    """
    config, edits = config_to_resume(run_dir, overrides)
    progress = Progress(console)
    if edits:
        progress.note(
            f"changed in {run_dir / CONFIG_FILE} since the run began, and heeded: {edits}"
        )
    with SqliteStore(run_dir, synchronous=config.store.synchronous) as store:
        if store.events(FINISHED):
            report = read_report(run_dir)
            progress.report(report, run_dir)
            return report
        checkpoint = Checkpoints(run_dir, config.checkpoints).latest()
        factory = check_training(config)
        words = None if checkpoint is None else checkpoint.model
        with assemble(config, factory, tokenizer=words) as parts:
            training = _training(parts, store, progress, checkpoint)
            at = training.state
            progress.note(
                f"resuming {beginning(config)}; at step {at.step} of stage {at.stage}, version "
                f"{at.policy_version} of the weights; what was played since is in the store"
            )
            return _execute(training, run_dir)


def _training(
    parts: Parts, store: SqliteStore, progress: Progress, origin: Checkpoint | None = None
) -> Training:
    """The run's training as it stood at ``origin``, or as it begins."""
    state = RunState()
    if origin is not None:
        state = replace(origin.state, measured=list(origin.state.measured))
        parts.load_weights(origin.model)
    points = store.events("iteration")
    timed = [*points, *store.events("resume")]
    spent_s = max([state.wall_s, *(one.data["wall_s"] for one in timed)])
    if origin is not None or store.last_event():
        again, kept = credit_made_again(store, state.iteration)
        store.forget_training(iteration=state.iteration, event=state.event, again=again, kept=kept)
        store.add_event("resume", {"wall_s": spent_s}, iteration=state.iteration)
    parts.announce(state.policy_version)
    return Training(
        parts,
        store,
        Checkpoints(parts.config.run_dir, parts.config.checkpoints),
        progress,
        Panels(parts, store, state),
        state,
        started=time.perf_counter() - spent_s,
        origin=origin,
        curve=[CurvePoint.from_data(one.data) for one in points if one.sequence <= state.event],
    )


def _execute(training: Training, run_dir: Path) -> RunReport:
    """Everything that is left of the run; if it stops, the user is told how to go on."""
    try:
        with open_trackers(training.parts.config, training.warn) as training.trackers:
            return _finish(training, run_dir)
    except (KeyboardInterrupt, AgentRLError):
        training.progress.note(f"The run has stopped. To go on: agentrl train --resume {run_dir}")
        raise


def _finish(training: Training, run_dir: Path) -> RunReport:
    """Everything that is left of the run, then its report."""
    parts, state, panels, progress = (
        training.parts,
        training.state,
        training.panels,
        training.progress,
    )
    if trained := parts.trained_parameters():
        progress.note(trained)
    for what in ("prefix_breaks", "treatments"):
        for text in getattr(parts.agent.renderer, what, ()):
            training.warn(text)

    def test(purpose: str, iteration: int) -> Evaluation:
        with progress.status(f"evaluating on the test panel ({purpose})"):
            measured = panels.test(purpose, iteration=iteration)
        training.trackers.log(of_evaluation(measured), axis="test/iteration", step=iteration)
        return measured

    kinds = [stage.kind for stage in parts.config.stages]
    # Cloning only makes the policy that reinforcement starts from: "before" is after it.
    tested = kinds.index("rl") if "rl" in kinds else 0
    before: Evaluation | None = None
    for number in range(state.stage, len(kinds)):
        if number >= tested and before is None:
            before = test("before", 0)
        training.run(number)
    before = before or test("before", 0)
    after = test("after", state.iteration) if kinds else before
    parts.save_model(run_dir / MODEL_DIRECTORY)
    parts.save_adapter(run_dir / ADAPTER_DIRECTORY)
    report = RunReport.of(before, after, curve=training.curve, wall_s=training.wall_s)
    write_report(run_dir, report)
    write_page(run_dir, training.store)
    training.store.add_event(FINISHED, {"wall_s": training.wall_s}, iteration=state.iteration)
    progress.report(report, run_dir)
    return report
