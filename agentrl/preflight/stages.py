"""Whether the parts of an rl stage work together: credit, annotators, distillation, strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from agentrl.assembly import tasks_of
from agentrl.config import LearnerConfig, ReinforceStage, RunConfig
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.message import Message
from agentrl.core.protocols import CreditEstimator, EnvFactory
from agentrl.core.strategy import ChoosesTasks, SizesGroups
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    Group,
    Observation,
    Sample,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)
from agentrl.learn.rows import TEACHERS
from agentrl.preflight.settings import learner_of
from agentrl.registry import make, names, resolve, verify

__all__ = ["stage_checks"]


def stage_checks(config: RunConfig, factory: EnvFactory | None) -> Iterator[Callable[[], None]]:
    """Checks of every rl stage; those that need the environment only if its factory is there."""
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage):
            yield partial(_check_credit, number, stage)
            yield partial(_require_teacher, number, stage, learner_of(config, stage))
            if factory is not None:
                yield partial(_check_strategies, number, stage, config, factory)


def _check_credit(number: int, stage: ReinforceStage) -> None:
    """Refuse groups of one where credit compares the members of a group.

    Whether it does is seen by what it says of two groups of one, one won and one lost.
    """
    credit: CreditEstimator = make("credit", stage.credit.name, stage.credit.options)
    _require_annotations(number, stage, tuple(getattr(credit, "needs", ())))
    if stage.group_size > 1:
        return
    try:
        result = credit.assign([_group_of_one("won", 1.0), _group_of_one("lost", 0.0)])
    except DataError:
        return  # it needs annotations, so this says nothing
    if not any(any(one) for one in result.step_advantages if one is not None):
        raise ConfigError(
            f"stages.{number}.group_size=1: credit '{stage.credit.name}' compares the episodes of "
            "a group, and a group of one would never give any signal: set group_size to 2 or more "
            "(8 is usual), or choose another credit (agentrl list credit)"
        )


def _require_annotations(number: int, stage: ReinforceStage, needs: tuple[str, ...]) -> None:
    """Refuse credit that reads what no annotator of the stage adds.

    An annotator that does not say what it ``gives`` may give anything.
    """
    annotators = [
        verify("annotator", one.name, one.options, ("learner",)) for one in stage.annotators
    ]
    given = {name for one in annotators for name in getattr(one, "gives", needs)}
    missing = [name for name in needs if name not in given]
    if not missing:
        return
    installed = {
        name: getattr(resolve("annotator", name), "gives", ()) for name in names("annotator")
    }
    found = [name for name, gives in installed.items() if set(gives) & set(missing)]
    if found:
        advice = f"set stages.{number}.annotators: [{', '.join(f'{{name: {x}}}' for x in found)}]"
    else:
        advice = (
            f"no installed annotator gives it: name one of your own in stages.{number}.annotators "
            "('module:Class', docs/explanation/credit.md), or choose a credit that needs none"
        )
    raise ConfigError(
        f"stages.{number}: credit '{stage.credit.name}' needs {', '.join(missing)} on the steps, "
        f"which only a model can add, and no annotator of the stage adds it: {advice}"
    )


def _require_teacher(number: int, stage: ReinforceStage, learner: LearnerConfig) -> None:
    """Refuse a distillation term without anyone who gives a teacher's log-probabilities."""
    if learner.distillation is None:
        return
    annotators = [
        verify("annotator", one.name, one.options, ("learner",)) for one in stage.annotators
    ]
    if not any(set(getattr(one, "gives", TEACHERS)) & set(TEACHERS) for one in annotators):
        raise ConfigError(
            f"stages.{number}.learner.distillation draws towards a teacher's log-probabilities, "
            f"and no annotator of the stage gives them ({' or '.join(TEACHERS)}): name one in "
            f"stages.{number}.annotators (agentrl list annotator), or set distillation: null"
        )


def _check_strategies(
    number: int, stage: ReinforceStage, config: RunConfig, factory: EnvFactory
) -> None:
    """Refuse strategies that do not fit the stage, or leave it without a task."""
    where = f"stages.{number}.strategies"
    if stage.strategies and config.rollout.max_staleness:
        raise ConfigError(
            f"{where} ({', '.join(one.name for one in stage.strategies)}) are asked by synchronous "
            f"rollouts only, and rollout.max_staleness={config.rollout.max_staleness}: set it to "
            "0, or remove the strategies"
        )
    try:
        made = [make("strategy", one.name, one.options) for one in stage.strategies]
        for one in made:
            if isinstance(one, SizesGroups):
                one.first_size(stage.group_size)
        choosing = [one for one in made if isinstance(one, ChoosesTasks)]
        tasks = tasks_of(config, factory, config.env.train_split) if choosing else ()
        left = (task for task in tasks if all(one.admits(task) for one in choosing))
        if choosing and next(left, None) is None:
            raise ConfigError(
                f"none of the {len(tasks):,} tasks of '{config.env.train_split}' is admitted at "
                "the beginning: choose options that leave some"
            )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _group_of_one(name: str, reward: float) -> Group:
    result = StepResult(Observation(()), reward, terminated=True, success=reward > 0)
    sample = Sample((1,), (0.0,), ((0, 0),), "stop")
    step = Step(0, (), name, (0,), sample, Message("assistant", name), name, "ok", result)
    trajectory = Trajectory(
        id=f"{name}/0/0",
        group_id=name,
        task_id=name,
        trial=0,
        attempt=0,
        seed=0,
        steps=(step,),
        stop_reason=StopReason.TERMINATED,
        success=reward > 0,
    )
    return Group(name, Task(name, "preflight", "train"), (trajectory,))
