"""Settings of a run file that cannot work together; nothing is made or loaded to see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrl.config import CloneStage, LearnerConfig, ReinforceStage, RunConfig
from agentrl.core.errors import AgentRLError, ConfigError
from agentrl.learn.schedule import check_schedule
from agentrl.registry import resolve

__all__ = ["learner_of", "playing_problems", "training_problems"]


def playing_problems(config: RunConfig) -> Iterator[str]:
    """What does not fit together for playing."""
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
    if config.deterministic and config.model.device not in ("auto", "cpu"):
        yield (
            f"deterministic holds on a CPU only, got model.device={config.model.device}: set "
            "model.device: cpu, or auto"
        )
    if config.deterministic and config.engine.options.get("deterministic") is False:
        yield "deterministic is true, and engine.options.deterministic is false: remove one"


def training_problems(config: RunConfig) -> Iterator[str]:
    """What does not fit together for training, besides."""
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
    for number, stage in enumerate(config.stages):
        if isinstance(stage, ReinforceStage) and stage.group_size < config.rollout.quorum:
            yield (
                f"rollout.quorum={config.rollout.quorum} is more than stages.{number}.group_size="
                f"{stage.group_size}: lower the quorum or raise the size"
            )
        try:
            _check_schedule(learner_of(config, stage), stage)
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
        engine = _engine(name)
        if engine is not None and not getattr(engine, "own_weights", False):
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
    engine = _engine(name)
    return not isinstance(engine, type) or hasattr(engine, "set_version")


def _engine(name: str) -> Any:
    """The engine; ``None`` if there is none, which is said where the parts are looked at."""
    try:
        return resolve("engine", name)
    except AgentRLError:
        return None


def learner_of(config: RunConfig, stage: CloneStage | ReinforceStage) -> LearnerConfig:
    """The learner's settings in a stage."""
    return LearnerConfig.model_validate({**config.learner.model_dump(), **stage.learner})


def _check_schedule(learner: LearnerConfig, stage: CloneStage | ReinforceStage) -> None:
    if isinstance(stage, CloneStage):
        updates = stage.updates
    else:
        updates = stage.iterations * stage.updates_per_iteration
    check_schedule(learner.schedule, learner.warmup_updates, updates)
