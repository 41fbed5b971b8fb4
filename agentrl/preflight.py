"""Refuses a run that cannot work, before anything is written and before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from agentrl.assembly import close_factory, make_factory, tasks_of
from agentrl.config import CloneStage, LearnerConfig, PluginConfig, ReinforceStage, RunConfig
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.message import Message
from agentrl.core.protocols import CreditEstimator, Demonstrator, EnvFactory
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
from agentrl.dialects.choice import AUTO
from agentrl.learn.rows import TEACHERS
from agentrl.learn.schedule import check_schedule
from agentrl.models.loading import resolve_model
from agentrl.registry import make, names, resolve, verify
from agentrl.trackers.sending import check_trackers

__all__ = ["check_playing", "check_training"]


def check_playing(config: RunConfig) -> EnvFactory:
    """Check what needs no torch for playing with ``config``; returns its environment's factory.

    Raises:
        ConfigError: every reason why the run cannot work, together.
        DataError: the environment's data is missing or damaged.
    """
    return _checked(config, list(_playing_problems(config)))


def check_training(config: RunConfig) -> EnvFactory:
    """As ``check_playing``, and everything that the stages and evaluations need."""
    problems = [*_playing_problems(config), *_training_problems(config)]
    check_trackers(config.trackers)
    factory = _checked(config, problems)
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage):
            _check_credit(number, stage, make("credit", stage.credit.name, stage.credit.options))
            _require_teacher(number, stage, _learner(config, stage))
            _check_strategies(number, stage, config, factory)
        elif not isinstance(factory, Demonstrator):
            raise ConfigError(
                f"stages.{number} (clone) needs an expert, and the environment "
                f"'{config.env.name}' has none: give its factory a method demonstrate(task, *, "
                "seed, noise), or start from a model that exists and remove the stage"
            )
    reinforces = any(isinstance(stage, ReinforceStage) for stage in config.stages)
    if config.stages:
        tasks_of(config, factory, config.env.train_split)
    if reinforces and config.evaluation.every:
        tasks_of(config, factory, config.env.validation_split, config.evaluation.validation_tasks)
    tasks_of(config, factory, config.env.test_split, config.evaluation.tasks)
    _refuse_overlap(config, factory)
    return factory


def _refuse_overlap(config: RunConfig, factory: EnvFactory) -> None:
    """Refuse a run whose test or validation panel holds a task that it trains on."""
    if not config.stages:
        return
    env, evaluation = config.env, config.evaluation
    trained = {task.id for task in tasks_of(config, factory, env.train_split)}
    panels = [(env.test_split, evaluation.tasks)]
    if evaluation.every and any(isinstance(stage, ReinforceStage) for stage in config.stages):
        panels.append((env.validation_split, evaluation.validation_tasks))
    for split, count in panels:
        both = [one.id for one in tasks_of(config, factory, split, count) if one.id in trained]
        if both:
            raise DataError(
                f"{len(both)} of the {count} tasks of the split '{split}' are also in "
                f"'{env.train_split}' (the first: {both[0]}): what is trained on measures nothing. "
                f"Let the environment '{env.name}' share its tasks out by their content"
            )


def _checked(config: RunConfig, problems: list[str]) -> EnvFactory:
    if problems:
        raise ConfigError("\n".join(["this run cannot work:", *(f"- {one}" for one in problems)]))
    plugins = (
        ("engine", PluginConfig(name=config.engine.name)),
        ("renderer", config.agent.renderer),
        ("memory", config.agent.memory),
    )
    for kind, plugin in plugins:
        # Registered names are not resolved: the hf engine would load torch.
        if plugin.name not in names(kind):
            resolve(kind, plugin.name)
    if config.agent.tool_dialect != AUTO:
        resolve("dialect", config.agent.tool_dialect)
    if config.model.path is not None:
        resolve_model(config.model.path)
    factory = make_factory(config)
    if getattr(factory, "tools", ()) and config.agent.action_format != "tools":
        close_factory(factory)
        raise ConfigError(
            f"the environment '{config.env.name}' has tools, and agent.action_format="
            f"{config.agent.action_format} never calls one: set agent.action_format: tools"
        )
    wanted = getattr(factory, "action_format", config.agent.action_format)
    if wanted != config.agent.action_format:
        close_factory(factory)
        raise ConfigError(
            f"the environment '{config.env.name}' needs agent.action_format: {wanted}, and "
            f"{config.agent.action_format} is set"
        )
    return factory


def _playing_problems(config: RunConfig) -> Iterator[str]:
    agent, sampling = config.agent, config.sampling
    if agent.max_tokens <= sampling.max_tokens:
        yield (
            f"agent.max_tokens={agent.max_tokens} (prompt and answer of one step) leaves no room "
            f"for a prompt beside an answer of sampling.max_tokens={sampling.max_tokens}: raise "
            "the first or lower the second"
        )
    limits = config.rollout
    if 0 < limits.tokens_in_flight < agent.max_tokens:
        yield (
            f"rollout.tokens_in_flight={limits.tokens_in_flight} is less than one step may need "
            f"(agent.max_tokens={agent.max_tokens}): raise it, or set it to 0 (no limit)"
        )
    if limits.episode_timeout_s is not None and limits.episode_timeout_s <= agent.max_seconds:
        yield (
            f"rollout.episode_timeout_s={limits.episode_timeout_s:g} makes a failure of what "
            f"agent.max_seconds={agent.max_seconds:g} would end as a truncated episode: raise the "
            "first or lower the second"
        )
    create = config.model.create
    if create is not None and agent.max_tokens > create.context_tokens:
        yield (
            f"agent.max_tokens={agent.max_tokens} is more than the new model can see "
            f"(model.create.context_tokens={create.context_tokens}): make them equal"
        )
    asked = config.env.options.get("action_format")
    if asked is not None and asked != agent.action_format:
        yield (
            f"env.options.action_format={asked} asks the policy for another form of action than "
            f"agent.action_format={agent.action_format} reads: make them equal"
        )
    if config.deterministic and config.threads > 1:
        yield (
            f"deterministic needs one thread, got threads={config.threads}: sums of several "
            "threads differ in their last bits; set threads: 1"
        )
    if config.deterministic and config.model.device != "cpu":
        yield (
            f"deterministic holds on a CPU only, got model.device={config.model.device}: set "
            "model.device: cpu"
        )
    if config.deterministic and config.engine.options.get("deterministic") is False:
        yield "deterministic is true, and engine.options.deterministic is false: remove one"


def _training_problems(config: RunConfig) -> Iterator[str]:
    sampling, evaluation = config.sampling, config.evaluation
    reinforces = any(isinstance(stage, ReinforceStage) for stage in config.stages)
    if reinforces and (sampling.top_p < 1 or sampling.top_k > 0):
        yield (
            f"sampling.top_p={sampling.top_p:g} and sampling.top_k={sampling.top_k} cut the "
            "distribution, and an rl stage learns from the whole of it (the ratio to the sampling "
            "policy would be wrong): set top_p: 1 and top_k: 0, and narrow them when you evaluate"
        )
    if config.stages and not _trainable(config):
        yield (
            f"the engine '{config.engine.name}' does not sample from the model that the stages "
            "train: set engine.name: hf, or remove the stages"
        )
    if evaluation.early_stop_success is not None and not (evaluation.every and reinforces):
        yield (
            f"evaluation.early_stop_success={evaluation.early_stop_success:g} needs validations "
            "in an rl stage: set evaluation.every above 0, or remove it"
        )
    yield from _staleness_problems(config)
    yield from _staleness_problems(config)
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage) and stage.group_size < config.rollout.quorum:
            yield (
                f"rollout.quorum={config.rollout.quorum} is more than stages.{number}.group_size="
                f"{stage.group_size}: lower the quorum or raise the size"
            )
        try:
            _check_schedule(_learner(config, stage), stage)
        except ConfigError as error:
            yield f"stages.{number}: {error}"


def _staleness_problems(config: RunConfig) -> Iterator[str]:
    """Why rollouts cannot go on beside the learner, if they are to."""
    bound, name = config.rollout.max_staleness, config.engine.name
    if not bound:
        return
    if config.deterministic:
        yield (
            f"deterministic is true, and with rollout.max_staleness={bound} what is learnt from "
            "depends on who is quick: set one of them back"
        )
    if name != "hf" and _trainable(config):
        engine = resolve("engine", name)
        if not getattr(engine, "own_weights", False):
            yield (
                f"rollout.max_staleness={bound} samples while the weights change, and the engine "
                f"'{name}' does not say that it has weights of its own (own_weights = True): set "
                "engine.name: hf, or max_staleness: 0"
            )
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage) and stage.strategies:
            yield (
                f"stages.{number}.strategies decide by what finished iterations came to, and with "
                f"rollout.max_staleness={bound} episodes begin before that: set it to 0, or remove "
                "the strategies"
            )


def _staleness_problems(config: RunConfig) -> Iterator[str]:
    """Why rollouts cannot go on beside the learner, if they are to."""
    bound, name = config.rollout.max_staleness, config.engine.name
    if not bound:
        return
    if config.deterministic:
        yield (
            f"deterministic is true, and with rollout.max_staleness={bound} what is learnt from "
            "depends on who is quick: set one of them back"
        )
    if name != "hf" and _trainable(config):
        engine = resolve("engine", name)
        if not getattr(engine, "own_weights", False):
            yield (
                f"rollout.max_staleness={bound} samples while the weights change, and the engine "
                f"'{name}' does not say that it has weights of its own (own_weights = True): set "
                "engine.name: hf, or max_staleness: 0"
            )
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage) and stage.strategies:
            yield (
                f"stages.{number}.strategies decide by what finished iterations came to, and with "
                f"rollout.max_staleness={bound} episodes begin before that: set it to 0, or remove "
                "the strategies"
            )


def _trainable(config: RunConfig) -> bool:
    """Whether an engine follows the learner's weights: it is then told of each new version."""
    name = config.engine.name
    if name in ("hf", "scripted"):  # named: the first would load torch, the second has no model
        return name == "hf"
    engine = resolve("engine", name)
    return not isinstance(engine, type) or hasattr(engine, "set_version")


def _learner(config: RunConfig, stage: CloneStage | ReinforceStage) -> LearnerConfig:
    return LearnerConfig.model_validate({**config.learner.model_dump(), **stage.learner})


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


def _check_schedule(learner: LearnerConfig, stage: CloneStage | ReinforceStage) -> None:
    if isinstance(stage, CloneStage):
        updates = stage.updates
    else:
        updates = stage.iterations * stage.updates_per_iteration
    check_schedule(learner.schedule, learner.warmup_updates, updates)


def _check_credit(number: int, stage: ReinforceStage, credit: CreditEstimator) -> None:
    """Refuse groups of one where credit compares the members of a group.

    Whether it does is seen by what it says of two groups of one, one won and one lost.
    """
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
