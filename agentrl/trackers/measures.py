"""What of a run is sent to trackers: flat names and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from agentrl.core.trajectory import UpdateStats
from agentrl.evaluate.report import CurvePoint, Evaluation, SuccessReport
from agentrl.rollout.load import shares
from agentrl.stages import Iteration

__all__ = ["of_evaluation", "of_iteration", "of_update"]


def of_iteration(done: Iteration, point: CurvePoint) -> dict[str, float]:
    """``train/``, ``validation/``, ``credit/``, ``rollout/`` and ``seconds/`` of an iteration.

    What is unknown (no episode finished, no validation, an engine without counters) is left out.
    """
    known: dict[str, Any] = {
        "train/success": point.train_success,
        "train/reward": point.train_reward,
        "train/episodes": point.episodes,
        "train/tokens": point.tokens,
        "train/policy_version": done.policy_version,
        "seconds/run": point.wall_s,
        "seconds/rollout": done.rollout_s,
        "seconds/update": done.update_s,
    }
    if point.validation is not None:
        known |= _success("validation", point.validation)
    known |= {f"credit/{name}": value for name, value in point.credit.items()}
    if done.load is not None:
        known |= dict(_flat("rollout", done.load.to_data()))
        known |= dict(_flat("rollout/share", shares(done.load.counts.timings)))
    if done.asynchrony is not None:
        known |= dict(_flat("asynchrony", done.asynchrony.measures()))
    return _numbers(known)


def of_update(stage: str, stats: UpdateStats) -> dict[str, float]:
    """What the learner reports about one optimiser step of ``stage``, under the stage's name."""
    return _numbers({f"{stage}/{name}": value for name, value in stats.metrics.items()})


def of_evaluation(evaluation: Evaluation) -> dict[str, float]:
    """Success on the test panel: ``test/success``, and ``test/greedy/success`` if measured."""
    known = _success("test", evaluation.sampled)
    if evaluation.greedy is not None:
        known |= _success("test/greedy", evaluation.greedy)
    return _numbers(known)


def _success(name: str, report: SuccessReport) -> dict[str, Any]:
    return {
        f"{name}/success": report.success,
        f"{name}/success_low": report.low,
        f"{name}/success_high": report.high,
    }


def _flat(name: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{name}/{key}", value)
        else:
            yield f"{name}/{key}", value


def _numbers(known: Mapping[str, Any]) -> dict[str, float]:
    """Everything but ``None`` as floats; something else than a number is a bug, and raises."""
    numbers: dict[str, float] = {}
    for name, value in known.items():
        if value is None:
            continue
        if not isinstance(value, Real):
            raise TypeError(f"the metric '{name}' is no number: {value!r}")
        numbers[name] = float(value)
    return numbers
