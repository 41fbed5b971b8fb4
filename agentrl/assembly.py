"""Builds the parts of a run from its configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.agents.loop import Agent, Budgets, Deadlines
from agentrl.config import LearnerConfig, RunConfig, TinyModelConfig
from agentrl.core.errors import ConfigError, nearest
from agentrl.core.protocols import Demonstrator, EnvFactory, Learner
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sampling, Trajectory
from agentrl.registry import make
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.rollout.thread import LoopThread

__all__ = ["Parts", "assemble"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of. ``model`` and ``tokenizer`` are transformers' own objects."""

    config: RunConfig
    factory: EnvFactory
    model: Any
    tokenizer: Any
    agent: Agent
    loop: LoopThread

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The first ``count`` tasks of a split (all of them for ``None``).

        Raises:
            ConfigError: the environment has no such split, or too few tasks in it.
        """
        name, splits = self.config.env.name, self.factory.splits
        if split not in splits:
            raise ConfigError(
                f"environment '{name}' has no split '{split}'{nearest(split, splits)} "
                f"It has: {', '.join(splits)}."
            )
        tasks = self.factory.tasks(split)
        if len(tasks) < (count or 1):
            raise ConfigError(
                f"split '{split}' of environment '{name}' has {len(tasks)} tasks, and "
                f"{count or 1} are wanted: ask for fewer, or let the environment have more"
            )
        return tasks if count is None else tasks[:count]

    def sampling(self, *, greedy: bool = False) -> Sampling:
        """How the run samples, or the greedy form of it."""
        drawn = Sampling(**self.config.sampling.model_dump())
        return replace(drawn, temperature=0.0, top_p=1.0, top_k=0) if greedy else drawn

    def runner(
        self, sampling: Sampling, on_trajectory: Callable[[GroupRequest, Trajectory], None]
    ) -> Runner:
        limits = self.config.rollout
        return Runner(
            self.factory,
            replace(self.agent, sampling=sampling),
            Limits(limits.concurrency, limits.retries, limits.give_up_after),
            on_trajectory,
        )

    def learner(self, settings: LearnerConfig, total_updates: int, work_dir: Path) -> Learner:
        from agentrl.learn.trl_learner import TrlLearner

        set_version = getattr(self.agent.engine, "set_version", lambda version: None)
        return TrlLearner(
            self.model,
            self.tokenizer,
            settings,
            temperature=self.config.sampling.temperature,
            total_updates=total_updates,
            work_dir=work_dir,
            publish=set_version,
        )

    def save_model(self, path: Path) -> None:
        from agentrl.models.loading import save_policy

        save_policy(path, self.model, self.tokenizer)


@contextmanager
def assemble(config: RunConfig) -> Iterator[Parts]:
    """Build every part; the engine and the event loop are closed at the end."""
    from agentrl.models.loading import use_threads

    use_threads(config.threads or _physical_cores())
    factory: EnvFactory = make("env", config.env.name, config.env.options)
    with LoopThread() as loop:
        model, tokenizer = _model(config, factory)
        renderer = config.agent.renderer
        engine = make("engine", config.engine.name, config.engine.options, model=model)
        agent = Agent(
            engine=engine,
            renderer=make("renderer", renderer.name, renderer.options, tokenizer=tokenizer),
            make_memory=lambda: make(
                "memory", config.agent.memory.name, config.agent.memory.options
            ),
            sampling=Sampling(**config.sampling.model_dump()),
            action_format=config.agent.action_format,
            system_prompt=config.agent.system_prompt,
            budgets=Budgets(
                config.agent.max_steps, config.agent.max_tokens, config.agent.max_seconds
            ),
            deadlines=Deadlines(config.rollout.step_timeout_s, config.rollout.sample_timeout_s),
        )
        try:
            yield Parts(config, factory, model, tokenizer, agent, loop)
        finally:
            loop.run(engine.aclose())


def _model(config: RunConfig, factory: EnvFactory) -> tuple[Any, Any]:
    from agentrl.models.loading import load_model, load_tokenizer
    from agentrl.models.tiny import tiny_policy
    from agentrl.models.tokenizer import train_tokenizer

    if config.model.create is None:
        path = str(config.model.path)
        model = load_model(path, dtype=config.model.dtype, device=config.model.device)
        return model, load_tokenizer(path)
    create = config.model.create
    texts = list(_texts(config, factory, create))
    tokenizer = train_tokenizer(texts, vocab_size=create.vocab_size)
    model = tiny_policy(
        tokenizer,
        hidden_size=create.hidden_size,
        layers=create.layers,
        heads=create.heads,
        context=create.context_tokens,
        seed=derive_seed(config.seed, "model") % 2**32,
    )
    return model, tokenizer


def _texts(config: RunConfig, factory: EnvFactory, create: TinyModelConfig) -> Iterator[str]:
    """What the expert sees and says on training tasks: the language the policy has to speak."""
    if not isinstance(factory, Demonstrator):
        raise ConfigError(
            f"model.create trains a tokenizer on an expert's episodes, and the environment "
            f"'{config.env.name}' has no expert; set model.path to a model that exists"
        )
    for task in factory.tasks(config.env.train_split)[: create.text_tasks]:
        seed = derive_seed(config.seed, task.id, "text")
        for shown in factory.demonstrate(task, seed=seed, noise=0.25):
            yield from (message.content for message in shown.observation.messages)
            yield shown.action.content


def _physical_cores() -> int:
    import psutil

    return psutil.cpu_count(logical=False) or os.cpu_count() or 1
