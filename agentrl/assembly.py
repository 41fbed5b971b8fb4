"""Builds the parts of a run from its configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.agents.gate import EngineGate
from agentrl.agents.loop import Agent, Budgets, Deadlines
from agentrl.completions.written import text_ids
from agentrl.config import (
    NO_WEIGHTS,
    AgentConfig,
    LearnerConfig,
    PluginConfig,
    RunConfig,
    TinyModelConfig,
)
from agentrl.core.errors import ConfigError, nearest
from agentrl.core.message import Message
from agentrl.core.protocols import Demonstrator, EnvFactory, Learner, Memory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sampling, Trajectory
from agentrl.dialects.action import ACTION
from agentrl.dialects.choice import AUTO, choose_dialect, find_dialect
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect
from agentrl.dialects.writing import format_call
from agentrl.registry import make, resolve, verify
from agentrl.renderers.encoding import TextEncoder
from agentrl.renderers.plain import describe_tools
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.rollout.thread import LoopThread
from agentrl.run_directory import discard_run_directory
from agentrl.store.sqlite import SqliteStore

__all__ = ["Parts", "assemble", "close_factory", "make_factory", "open_new_run", "tasks_of"]

_LOG = logging.getLogger(__name__)
TEARDOWN_S = 10.0  # beyond the deadline of closing an environment


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of. ``model`` and ``tokenizer`` are transformers' own objects.

    All its runners pass one ``gate`` on their way to the engine: also two that play at once.
    """

    config: RunConfig
    factory: EnvFactory
    model: Any
    tokenizer: Any
    agent: Agent
    loop: LoopThread
    gate: EngineGate = field(default_factory=EngineGate)

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The first ``count`` tasks of a split (all of them for ``None``)."""
        return tasks_of(self.config, self.factory, split, count)

    def sampling(self, *, greedy: bool = False) -> Sampling:
        """How the run samples, or the greedy form of it."""
        drawn = Sampling(**self.config.sampling.model_dump())
        return replace(drawn, temperature=0.0, top_p=1.0, top_k=0) if greedy else drawn

    def runner(
        self,
        sampling: Sampling,
        on_trajectory: Callable[[GroupRequest, Trajectory], None],
        recorded: Callable[[GroupRequest], Mapping[int, Trajectory]] = lambda _: {},
    ) -> Runner:
        """What plays groups, with the limits of the run; callbacks as of ``Runner``.

        As evaluations need it: every episode is played and waited for. Training adds its quorum.
        """
        limits = self.config.rollout
        return Runner(
            self.factory,
            replace(self.agent, sampling=sampling),
            Limits(
                concurrency=_concurrency(self.config, self.factory),
                retries=limits.retries,
                give_up_after=limits.give_up_after,
                env_concurrency=limits.env_concurrency,
                tokens_in_flight=limits.tokens_in_flight,
                backoff_s=limits.backoff_s,
                stall_s=_stall_s(self.config),
            ),
            on_trajectory,
            recorded,
            gate=self.gate,
        )

    def learner(
        self, settings: LearnerConfig, total_updates: int, *, policy_version: int
    ) -> Learner:
        """A learner of the model's weights, which are ``policy_version``; the engine is told."""
        from agentrl.learn.trl_learner import TrlLearner

        self.announce(policy_version)
        return TrlLearner(
            self.model,
            self.tokenizer,
            settings,
            temperature=self.config.sampling.temperature,
            total_updates=total_updates,
            publish=self.announce,
            policy_version=policy_version,
        )

    def announce(self, version: int) -> None:
        """Tell the engine that the model's weights are now ``version``."""
        set_version = getattr(self.agent.engine, "set_version", None)
        if set_version is not None:
            set_version(version)

    def save_model(self, path: Path) -> None:
        """Write the model and its tokenizer to the folder ``path``, whole or not at all."""
        from agentrl.learn.checkpoint import quietly
        from agentrl.models.loading import save_policy

        new = path.with_name(f".{path.name}.new")
        for folder in (new, path):
            shutil.rmtree(folder, ignore_errors=True)
        with quietly():
            save_policy(new, self.model, self.tokenizer)
        new.rename(path)

    def save_adapter(self, path: Path) -> None:
        """Write the model's adapter, if it has one, to the folder ``path``, whole or not at all."""
        from agentrl.models.lora import has_adapter, save_adapter

        if self.model is None or not has_adapter(self.model):
            return
        new = path.with_name(f".{path.name}.new")
        for folder in (new, path):
            shutil.rmtree(folder, ignore_errors=True)
        save_adapter(self.model, new)
        new.rename(path)

    def trained_parameters(self) -> str | None:
        """What is trained of a model with an adapter, in words; ``None``: all weights are."""
        from agentrl.models.lora import has_adapter, parameter_counts

        if self.model is None or not has_adapter(self.model):
            return None
        trained, every = parameter_counts(self.model)
        return (
            f"an adapter is trained (model.lora): {trained:,} of {every:,} parameters "
            f"({trained / every:.2%}); all others stay as they are"
        )

    def load_weights(self, folder: Path) -> None:
        """Give the model the weights in a model folder, in place and bit for bit."""
        from agentrl.learn.checkpoint import load_weights

        load_weights(self.model, folder)


def tasks_of(
    config: RunConfig, factory: EnvFactory, split: str, count: int | None = None
) -> Sequence[Task]:
    """The first ``count`` tasks of a split (all of them for ``None``).

    Raises:
        ConfigError: the environment has no such split, or too few tasks in it.
    """
    name, splits = config.env.name, factory.splits
    if split not in splits:
        raise ConfigError(
            f"environment '{name}' has no split '{split}'{nearest(split, splits) or '.'} "
            f"It has: {', '.join(splits) or 'none'}."
        )
    tasks = factory.tasks(split)
    if len(tasks) < (count or 1):
        raise ConfigError(
            f"split '{split}' of environment '{name}' has {len(tasks)} tasks, and "
            f"{count or 1} are wanted: ask for fewer (evaluation.tasks of the test split, "
            "evaluation.validation_tasks of the validation split), or let the environment have more"
        )
    return tasks if count is None else tasks[:count]


def make_factory(config: RunConfig) -> EnvFactory:
    """The environment's factory, in front of worker processes if the run says so.

    Whoever makes it closes it (``close_factory``); processes of one that is forgotten end too.
    """
    env, settings = config.env, config.env.workers
    if not settings.processes:
        factory: EnvFactory = make("env", env.name, env.options)
        return factory
    from agentrl.envs.process.factory import Workers, in_processes

    workers = Workers(
        processes=settings.processes,
        episodes=settings.episodes or -(-config.rollout.concurrency // settings.processes),
        python=settings.python,
        start_timeout_s=settings.start_timeout_s,
        grace_s=settings.grace_s,
    )
    return in_processes(env.name, env.options, workers)


def close_factory(factory: EnvFactory | None) -> None:
    """End what a factory holds open, if it has an ``aclose``; not from within an event loop."""
    aclose = getattr(factory, "aclose", None)
    if aclose is not None:
        asyncio.run(aclose())


@contextmanager
def _closed_at_the_end(factory: EnvFactory) -> Iterator[None]:
    try:
        yield
    finally:
        close_factory(factory)


def _concurrency(config: RunConfig, factory: EnvFactory) -> int:
    """Episodes in flight: no more than the environment's processes have places for."""
    wanted = config.rollout.concurrency
    return min(wanted, getattr(factory, "capacity", wanted))


def open_new_run(
    stack: ExitStack, config: RunConfig, factory: EnvFactory, run_dir: Path
) -> tuple[Parts, SqliteStore]:
    """The parts and the store of a new run, closed by ``stack``.

    If one cannot be made the new run directory, in which nothing has happened, is removed again.
    """
    try:
        synchronous = config.store.synchronous
        store = stack.enter_context(SqliteStore.create(run_dir, synchronous=synchronous))
        return stack.enter_context(assemble(config, factory)), store
    except BaseException:
        stack.close()
        discard_run_directory(run_dir)
        raise


@contextmanager
def assemble(
    config: RunConfig, factory: EnvFactory | None = None, *, tokenizer: Path | None = None
) -> Iterator[Parts]:
    """Build every part; the factory, the engine and the event loop are closed at the end.

    Args:
        config: The run.
        factory: Its environment's factory, if it is made already.
        tokenizer: Folder of the tokenizer that a run to be resumed had made.
    """
    # Before torch is loaded: what is wrong with the environment is said at once.
    factory = factory or make_factory(config)
    if config.model.path != NO_WEIGHTS:
        from agentrl.models.loading import use_threads

        use_threads(_threads(config)[0])
    stall_s, teardown_s = _stall_s(config), config.rollout.close_timeout_s + TEARDOWN_S
    owned = _closed_at_the_end(factory)
    with owned, LoopThread(give_up_s=stall_s, teardown_s=teardown_s) as loop:
        model, words = _model(config, factory, tokenizer)
        _adapt(config, model)
        agent = _agent(config, model, words)
        try:
            _check_context(config, agent)
            _fit_tools(factory, words, agent)
            limits = config.rollout
            gate = EngineGate.of(limits.tokens_in_flight, limits.backoff_s)
            yield Parts(config, factory, model, words, agent, loop, gate)
        finally:
            if not loop.blocked:
                loop.run(agent.engine.aclose())


def _agent(config: RunConfig, model: Any, tokenizer: Any) -> Agent:
    settings, renderer = config.agent, config.agent.renderer
    rendering = make("renderer", renderer.name, renderer.options, tokenizer=tokenizer)
    return Agent(
        engine=_engine(config, model, tokenizer),
        renderer=rendering,
        make_memory=_memory_maker(settings.memory),
        sampling=Sampling(**config.sampling.model_dump()),
        action_format=settings.action_format,
        dialect=_dialect(settings, rendering, tokenizer),
        system_prompt=settings.system_prompt,
        budgets=Budgets(
            settings.max_steps, settings.max_tokens, settings.max_seconds, settings.max_truncated
        ),
        deadlines=_deadlines(config),
    )


def _engine(config: RunConfig, model: Any, tokenizer: Any) -> Any:
    """What samples: from the very weights that are learnt, or from a copy in another process.

    With ``rollout.max_staleness`` the learner changes its weights while episodes are sampled.
    """
    engine = config.engine
    options = engine.options | ({"deterministic": True} if config.deterministic else {})
    if engine.name == "vllm" and model is not None:
        from agentrl.models.serving import ServedPolicy

        options = {"seed": derive_seed(config.seed, "engine")} | options
        return make("engine", "vllm", options, policy=ServedPolicy(model, tokenizer))
    if not config.rollout.max_staleness or engine.name != "hf":
        return make("engine", engine.name, options, model=model)
    from agentrl.engines.hf.hosted import hosted
    from agentrl.models.lora import plain_state

    verify("engine", engine.name, options, ("model",))
    return hosted(model, threads=_threads(config)[1], state=plain_state, **options)


def _deadlines(config: RunConfig) -> Deadlines:
    limits = config.rollout
    episode_s = limits.episode_timeout_s
    if episode_s is None:  # the budget of seconds is looked at before a step, not in it
        before = limits.make_timeout_s + limits.reset_timeout_s
        last = 2 * limits.sample_timeout_s + limits.step_timeout_s  # a view and an answer
        episode_s = before + config.agent.max_seconds + last
    return Deadlines(
        make_s=limits.make_timeout_s,
        reset_s=limits.reset_timeout_s,
        step_s=limits.step_timeout_s,
        sample_s=limits.sample_timeout_s,
        close_s=limits.close_timeout_s,
        episode_s=episode_s,
    )


def _stall_s(config: RunConfig) -> float:
    limits = config.rollout
    return limits.stall_timeout_s or 2 * limits.longest_call_s


def _dialect(settings: AgentConfig, renderer: Any, tokenizer: Any) -> Dialect:
    """How the policy writes tool calls; what ``auto`` found is said once, in the log."""
    written = getattr(renderer, "dialect", None)
    if settings.action_format not in ("tools", "chat"):
        return written or HERMES  # never asked
    dialect, why = choose_dialect(
        settings.tool_dialect,
        tokenizer=tokenizer,
        template=getattr(renderer, "template_source", None),
        written=written,
    )
    if settings.tool_dialect == AUTO:
        _LOG.warning("tool calls are read in the dialect '%s': %s", dialect.name, why)
    return dialect


def _check_context(config: RunConfig, agent: Agent) -> None:
    context = getattr(agent.engine, "context_tokens", None)
    if context is not None and config.agent.max_tokens > context:
        raise ConfigError(
            f"agent.max_tokens={config.agent.max_tokens} is more than the {context} tokens that "
            "the model and the engine's context_tokens allow for prompt and answer: lower it"
        )


def _fit_tools(factory: EnvFactory, tokenizer: Any, agent: Agent) -> None:
    """Tell an environment with tools how much of a prompt their results may take.

    Raises:
        ConfigError: the renderer cannot show a tool to the model.
    """
    if tools := tuple(getattr(factory, "tools", ())):
        told = [Message("system", agent.system_prompt)] if agent.system_prompt else []
        agent.renderer.start([*told, Message("user", ".")], tools)
    fit = getattr(factory, "fit_to", None)
    if fit is not None and tokenizer is None:
        fit(lambda text: len(text_ids(text)), agent.budgets.max_tokens)
    elif fit is not None:
        encoder = TextEncoder(tokenizer)
        fit(lambda text: len(encoder.encode_text(text)), agent.budgets.max_tokens)


def _memory_maker(memory: PluginConfig) -> Callable[[], Memory]:
    """What makes the memory of each episode; a wrong option is refused here, once."""
    maker = resolve("memory", memory.name)
    make("memory", maker, memory.options)
    return partial(maker, **memory.options)


def _model(config: RunConfig, factory: EnvFactory, saved: Path | None) -> tuple[Any, Any]:
    """The model as it is before any training, and its tokenizer (``saved``, if there is one).

    Both ``None`` where the engine brings a model that is not ours.
    """
    if config.model.path == NO_WEIGHTS:
        return None, None
    from agentrl.models.loading import load_model, load_tokenizer
    from agentrl.models.tiny import tiny_policy
    from agentrl.models.tokenizer import train_tokenizer

    if config.model.create is None:
        path, device = str(config.model.path), config.model.device
        if config.deterministic and device == "auto":
            device = "cpu"  # where bits are the same each time
        model = load_model(path, dtype=config.model.dtype, device=device)
        return model, load_tokenizer(path)
    create = config.model.create
    if saved is not None:
        tokenizer = load_tokenizer(saved)
    else:
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


def _adapt(config: RunConfig, model: Any) -> None:
    """Give the model an adapter, which is trained in the place of its weights, if asked for."""
    settings = config.model.lora
    if settings is None:
        return
    from agentrl.core.errors import DataError
    from agentrl.models.loading import resolve_model
    from agentrl.models.lora import add_adapter, load_adapter

    seed, path = derive_seed(config.seed, "lora"), config.model.path
    add_adapter(model, settings, seed=seed, source=None if path is None else resolve_model(path))
    if config.model.adapter is not None:
        folder = Path(config.model.adapter).expanduser()
        try:
            load_adapter(model, folder)
        except DataError as error:
            raise ConfigError(f"model.adapter: {error}") from error


def _texts(config: RunConfig, factory: EnvFactory, create: TinyModelConfig) -> Iterator[str]:
    """What the expert sees and says on training tasks: the language the policy has to speak."""
    if not isinstance(factory, Demonstrator):
        raise ConfigError(
            f"model.create trains a tokenizer on an expert's episodes, and the environment "
            f"'{config.env.name}' has no expert; set model.path to a model that exists"
        )
    written = find_dialect(config.agent.renderer.options.get("dialect", ACTION))
    if tools := tuple(getattr(factory, "tools", ())):
        yield describe_tools(tools)
    for task in factory.tasks(config.env.train_split)[: create.text_tasks]:
        seed = derive_seed(config.seed, task.id, "text")
        for shown in factory.demonstrate(task, seed=seed, noise=0.25):
            yield from (message.content for message in shown.observation.messages)
            calls = bool(shown.action.tool_calls)
            yield format_call(written, shown.action) if calls else shown.action.content


def _threads(config: RunConfig) -> tuple[int, int]:
    """Threads of this process, and of the engine's where it has one: they share the cores."""
    if config.deterministic:
        return config.threads or 1, 0
    cores = _physical_cores()
    if not config.rollout.max_staleness:
        return config.threads or cores, 0
    engine = config.engine.threads or max(1, cores // 2)
    return config.threads or max(1, cores - engine), engine


def _physical_cores() -> int:
    import psutil

    return psutil.cpu_count(logical=False) or os.cpu_count() or 1
