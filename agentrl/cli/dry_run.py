"""``agentrl train FILE --dry-run``: all that can be checked without weights, and the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.assembly import close_factory, make_factory, tasks_of
from agentrl.config import CloneStage, ReinforceStage, RunConfig
from agentrl.core.errors import AgentRLError, ConfigError
from agentrl.core.protocols import Demonstrator, EnvFactory
from agentrl.dialects.choice import AUTO
from agentrl.preflight import check_training
from agentrl.registry import make, resolve, verify

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do.

    Attributes:
        run_dir: Directory it would make. model: the policy in words.
        tasks: Number of tasks of each split that the run uses.
        stages: Each stage in words. episodes: training episodes of all of them.
        evaluation: What would be measured, in words.
        template: What the model's chat template does to a conversation, a sentence each; of a
            model whose tokenizer lies on this machine.
    """

    run_dir: str
    model: str
    env: str
    tasks: dict[str, int]
    stages: tuple[str, ...]
    episodes: int
    evaluation: str
    template: tuple[str, ...] = ()

    def show(self, console: Any) -> None:
        """Print the plan for people."""
        sizes = ", ".join(f"{count:,} {split}" for split, count in self.tasks.items())
        lines = [
            ("run directory", self.run_dir),
            ("model", self.model),
            ("environment", f"{self.env}; tasks: {sizes}"),
            *((f"stage{number}", words) for number, words in enumerate(self.stages)),
            ("evaluation", self.evaluation),
            *(("chat template", words) for words in self.template),
        ]
        for name, words in lines:
            console.print(f"{name:14} {words}", highlight=False, markup=False, soft_wrap=True)
        console.print("Nothing was written and no weights were loaded.", highlight=False)


def plan(config: RunConfig) -> Plan:
    """Check a run and say what it would do.

    Raises:
        ConfigError: with every problem that was found, not only the first.
    """
    problems: list[str] = []
    _attempt(problems, partial(_check_directory, config.run_dir))
    factory = _attempt(problems, partial(make_factory, config))
    tasks = {} if factory is None else _count_tasks(problems, config, factory)
    model = _attempt(problems, partial(_model, config, factory))
    template = _attempt(problems, partial(_template, config)) if model else ()
    for check in _plug_ins(config):
        _attempt(problems, check)
    close_factory(factory)
    if not problems:
        close_factory(_attempt(problems, partial(check_training, config)))
    if problems:
        raise ConfigError("the run could not start:\n  " + "\n  ".join(problems))
    return Plan(
        run_dir=str(config.run_dir),
        model=str(model),
        env=config.env.name,
        tasks=tasks,
        stages=tuple(_words(config, stage) for stage in config.stages),
        episodes=sum(_episodes(stage) for stage in config.stages),
        evaluation=_evaluation(config),
        template=template or (),
    )


def _attempt(problems: list[str], check: Callable[[], Any]) -> Any:
    try:
        return check()
    except AgentRLError as error:
        problems.append(str(error))
        return None


def _check_directory(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"run_dir '{path}' holds files already; choose another: run_dir={path}-2")


def _count_tasks(problems: list[str], config: RunConfig, factory: EnvFactory) -> dict[str, int]:
    """Tasks of the splits that the run plays, and whether they are enough."""
    wanted: dict[str, int | None] = {config.env.train_split: None}
    if _validates(config):
        wanted[config.env.validation_split] = config.evaluation.validation_tasks
    wanted[config.env.test_split] = config.evaluation.tasks
    counts = {}
    for split, least in wanted.items():
        if _attempt(problems, partial(tasks_of, config, factory, split, least)) is not None:
            counts[split] = len(factory.tasks(split))
    return counts


def _model(config: RunConfig, factory: EnvFactory | None) -> str:
    """The policy in words, after a look at its folder."""
    create = config.model.create
    if create is not None:
        if factory is not None and not isinstance(factory, Demonstrator):
            raise ConfigError(
                "model.create trains a tokenizer on an expert's episodes, and the environment "
                f"'{config.env.name}' has no expert; set model.path to a model that exists"
            )
        return (
            f"a new tiny one: {create.layers} layers, width {create.hidden_size}, vocabulary "
            f"{create.vocab_size}, context {create.context_tokens}"
        )
    from agentrl.models.loading import resolve_model

    source = resolve_model(str(config.model.path))
    folder = Path(source)
    if not folder.is_dir():
        return f"{source}, from the hub or its cache on this machine"
    missing = [
        name
        for name, pattern in (
            ("config.json", "config.json"),
            ("weights (*.safetensors)", "*.safetensors"),
            ("a tokenizer (tokenizer.json)", "tokenizer*"),
        )
        if not list(folder.glob(pattern))
    ]
    if missing:
        raise ConfigError(
            f"the model folder '{source}' holds no {' and no '.join(missing)}; save model and "
            "tokenizer there with save_pretrained"
        )
    return f"{config.model.path} ({source})" if source != config.model.path else source


def _template(config: RunConfig) -> tuple[str, ...]:
    """What the renderer says of the chat template of a model in a folder, before any weights.

    Raises:
        ConfigError: the template cannot be worked with.
    """
    from agentrl.models.loading import load_tokenizer, resolve_model

    path, renderer = config.model.path, config.agent.renderer
    if path is None or renderer.name != "chat" or not Path(resolve_model(str(path))).is_dir():
        return ()
    made = make("renderer", "chat", renderer.options, tokenizer=load_tokenizer(str(path)))
    return (*made.prefix_breaks, *made.treatments)


def _plug_ins(config: RunConfig) -> list[Callable[[], Any]]:
    """Names and options of the parts, checked without making what needs weights."""
    engine, renderer, memory = config.engine, config.agent.renderer, config.agent.memory
    dialect = config.agent.tool_dialect
    return [
        partial(verify, "engine", engine.name, engine.options, ("model",)),
        partial(verify, "renderer", renderer.name, renderer.options, ("tokenizer",)),
        partial(make, "memory", memory.name, memory.options),
        *([] if dialect == AUTO else [partial(resolve, "dialect", dialect)]),
        *(
            partial(make, "credit", stage.credit.name, stage.credit.options)
            for stage in config.stages
            if isinstance(stage, ReinforceStage)
        ),
    ]


def _updates(stage: CloneStage | ReinforceStage) -> int:
    if isinstance(stage, CloneStage):
        return stage.updates
    return stage.iterations * stage.updates_per_iteration


def _episodes(stage: CloneStage | ReinforceStage) -> int:
    if isinstance(stage, CloneStage):
        return 0
    return stage.iterations * stage.tasks_per_iteration * stage.group_size


def _words(config: RunConfig, stage: CloneStage | ReinforceStage) -> str:
    limit = "" if stage.max_seconds is None else f", or {stage.max_seconds:g} s"
    if isinstance(stage, CloneStage):
        return (
            f"clone: {stage.updates:,} updates of {stage.episodes_per_update} demonstrated "
            f"episodes{limit}"
        )
    return (
        f"rl: {stage.iterations:,} iterations of {stage.tasks_per_iteration} tasks x "
        f"{stage.group_size} episodes = {_episodes(stage):,} episodes of at most "
        f"{config.agent.max_steps} steps, {_updates(stage):,} updates, credit "
        f"{stage.credit.name}{limit}"
    )


def _validates(config: RunConfig) -> bool:
    learns = any(isinstance(stage, ReinforceStage) for stage in config.stages)
    return learns and config.evaluation.every > 0


def _evaluation(config: RunConfig) -> str:
    settings = config.evaluation
    how = "sampled and greedy" if settings.greedy else "sampled"
    when = "before and after" if config.stages else "once"
    words = f"{settings.tasks} tasks of '{config.env.test_split}' {when}, {how}"
    if _validates(config):
        words += (
            f"; {settings.validation_tasks} of '{config.env.validation_split}' every "
            f"{settings.every} iterations"
        )
    return words
