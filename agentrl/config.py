"""The run file: one YAML file = one run. Unknown keys are refused with the nearest known name."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentrl.core.errors import ConfigError, nearest

__all__ = [
    "LOSS_SETTINGS",
    "AgentConfig",
    "CheckpointsConfig",
    "CloneStage",
    "DistillationConfig",
    "EngineConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "ModelConfig",
    "PluginConfig",
    "ReinforceStage",
    "RolloutConfig",
    "RunConfig",
    "SamplingConfig",
    "StoreConfig",
    "TinyModelConfig",
    "WorkersConfig",
    "load_config",
]


class Section(BaseModel):
    """A part of the run file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class PluginConfig(Section):
    """A plug-in by name (or ``module:attr``, which runs that code) and its keyword arguments."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class TinyModelConfig(Section):
    """A small random policy, and a tokenizer trained on the environment's own text."""

    hidden_size: int = Field(128, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    vocab_size: int = Field(512, ge=260)
    context_tokens: int = Field(1024, ge=64)
    text_tasks: int = Field(512, ge=1, description="Train tasks whose text trains the tokenizer.")


class ModelConfig(Section):
    """The policy's model: one that exists (``path``), or a tiny new one (``create``)."""

    path: str | None = Field(None, description="Folder, hub id, or builtin:NAME (shipped).")
    create: TinyModelConfig | None = None
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")

    @model_validator(mode="after")
    def _one_source(self) -> ModelConfig:
        if (self.path is None) == (self.create is None):
            raise ValueError("give exactly one of path (an existing model) and create (a tiny one)")
        return self


class WorkersConfig(Section):
    """Processes of their own for episodes: what blocks or dies there stops nothing else."""

    processes: int = Field(0, ge=0, description="0: episodes are played in the run's own process.")
    episodes: int | None = Field(
        None, ge=1, description="In one process at a time; null: rollout.concurrency shared out."
    )
    python: str | None = Field(
        None, description="Interpreter with the environment's packages; null: this one."
    )
    start_timeout_s: float = Field(120.0, gt=0, description="Until a process has its factory.")
    grace_s: float = Field(
        10.0, gt=0, description="To close what was cancelled; then the process is killed."
    )

    @model_validator(mode="after")
    def _are_there(self) -> WorkersConfig:
        if not self.processes and (self.python is not None or self.episodes is not None):
            given = "python" if self.python is not None else "episodes"
            raise ValueError(
                f"{given} is of worker processes, and processes is 0: set processes to 1 or more, "
                f"or remove {given}"
            )
        return self


class EnvConfig(Section):
    """The environment and which of its splits serve what."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    train_split: str = "train"
    validation_split: str = Field("validation", description="For the curve and early stopping.")
    test_split: str = Field("test", description="Touched twice: before and after.")
    workers: WorkersConfig = WorkersConfig()

    @model_validator(mode="after")
    def _splits_differ(self) -> EnvConfig:
        splits = (self.train_split, self.validation_split, self.test_split)
        if self.test_split in splits[:2] or self.train_split == self.validation_split:
            raise ValueError(
                f"train_split, validation_split and test_split must differ, got {splits}: what is "
                "trained or tuned on measures nothing"
            )
        return self


class AgentConfig(Section):
    """How the policy meets the environment, and its budgets per episode."""

    renderer: PluginConfig = PluginConfig(name="chat")
    memory: PluginConfig = PluginConfig(name="transcript")
    action_format: Literal["bare", "tagged", "tools", "chat"] = Field(
        "tagged",
        description="bare: the whole answer; tagged: <think>..</think><action>..</action>; "
        "tools: calls in tool_dialect; chat: the message itself, for agents of somebody else's.",
    )
    tool_dialect: str = Field(
        "auto", description="How calls are written; auto: as the chat template writes them."
    )
    system_prompt: str = ""
    max_steps: int = Field(50, ge=1)
    max_tokens: int = Field(8192, ge=1, description="Prompt and answer of one step, in tokens.")
    max_seconds: float = Field(600.0, gt=0)
    max_truncated: int = Field(
        0, ge=0, description="Cut answers in a row that end the episode; 0: max_steps does."
    )


class EngineConfig(Section):
    """What samples."""

    name: str = "hf"
    options: dict[str, Any] = Field(default_factory=dict)


class SamplingConfig(Section):
    """How training rollouts and sampled evaluations are drawn."""

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    max_tokens: int = Field(256, ge=1, description="Longest answer of one step.")


# What each loss reads, and what holds where the run file says nothing: the published value.
LOSS_SETTINGS: Mapping[str, Mapping[str, float | None]] = {
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.2, "dual_clip": None},
    "cispo": {"epsilon_high": 0.2},
    "loop": {"epsilon_high": 0.1},
    "no_ratio": {"tau": 1.0},
    "gspo_token": {"epsilon_low": 3e-4, "epsilon_high": 4e-4},
    "cpgd": {"epsilon_low": 0.2, "epsilon_high": 0.2, "drift": 0.1},
    "decoupled": {"epsilon_low": 0.2, "epsilon_high": 0.2, "dual_clip": None, "weight_cap": 5.0},
}


class DistillationConfig(Section):
    """A term of the loss that draws the policy towards a teacher's log-probabilities."""

    kind: Literal["gated", "delta", "importance"] = Field(
        "gated", description="gated: SEED's; delta and importance: OPID's."
    )
    coefficient: float = Field(0.01, gt=0)
    beta: float = Field(5.0, ge=0, description="gated: how sharply the gate opens.")
    clip: float | None = Field(
        None, gt=0, description="delta, importance: bound of a token's weight."
    )

    @model_validator(mode="after")
    def _has_a_clip(self) -> DistillationConfig:
        if self.kind == "gated" and self.clip is not None:
            raise ValueError(f"kind=gated has no clip, got {self.clip:g}: remove it")
        return self


class LearnerConfig(Section):
    """The optimiser and the loss."""

    learning_rate: float = Field(1e-6, gt=0)
    warmup_updates: int = Field(0, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    weight_decay: float = Field(0.0, ge=0)
    adam_beta2: float = Field(0.999, gt=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    loss: Literal["dapo", "cispo", "loop", "no_ratio", "gspo_token", "cpgd", "decoupled"] = Field(
        "dapo", description="The objective; docs/explanation/learner.md compares them."
    )
    epsilon_low: float | None = Field(
        None, gt=0, lt=1, description="Clip below 1; null here and below: the loss's own value."
    )
    epsilon_high: float | None = Field(None, gt=0, description="Clip above 1.")
    dual_clip: float | None = Field(
        None, gt=1, description="dapo, decoupled: bound of the ratio where the advantage is < 0."
    )
    tau: float | None = Field(None, ge=0, description="no_ratio: divides the loss by 1 + tau.")
    drift: float | None = Field(None, ge=0, description="cpgd: weight of the pull back.")
    weight_cap: float | None = Field(
        None, gt=0, description="decoupled: tokens whose weight is larger are left out."
    )
    distillation: DistillationConfig | None = Field(
        None, description="Needs teacher log-probabilities from an annotator."
    )
    kl_coefficient: float = Field(0.0, ge=0, description="KL to the reference model (k3).")
    trajectory_weighting: Literal["equal", "tokens"] = Field(
        "equal", description="equal: every trajectory counts once; tokens: every token does."
    )
    micro_batch_tokens: int = Field(16384, ge=1, description="Padded tokens of one forward pass.")

    @model_validator(mode="after")
    def _loss_reads_its_settings(self) -> LearnerConfig:
        reads = LOSS_SETTINGS[self.loss]
        names = dict.fromkeys(name for one in LOSS_SETTINGS.values() for name in one)
        for name in names:
            if name not in reads and getattr(self, name) is not None:
                others = ", ".join(loss for loss, one in LOSS_SETTINGS.items() if name in one)
                raise ValueError(
                    f"loss={self.loss} has no {name} (it reads {', '.join(reads)}), so "
                    f"{name}={getattr(self, name):g} would change nothing: remove it (null in a "
                    f"stage), or choose a loss that reads it ({others})"
                )
        return self

    def of_loss(self, name: str) -> float | None:
        """A setting that the loss reads: as given, or else the loss's own value.

        Raises:
            KeyError: the loss does not read it.
        """
        published = LOSS_SETTINGS[self.loss][name]
        given: float | None = getattr(self, name)
        return published if given is None else given


class EvaluationConfig(Section):
    """How success is measured."""

    tasks: int = Field(256, ge=1, description="Size of the test panel.")
    validation_tasks: int = Field(128, ge=1)
    every: int = Field(10, ge=0, description="Iterations between validations; 0: never.")
    trials: int = Field(1, ge=1)
    greedy: bool = Field(True, description="Report greedy success as well as sampled.")
    early_stop_success: float | None = Field(
        None, gt=0, le=1, description="Stop when validation success reaches this."
    )


class CloneStage(Section):
    """Behaviour cloning from the environment's expert."""

    kind: Literal["clone"]
    updates: int = Field(200, ge=1)
    episodes_per_update: int = Field(32, ge=1)
    demonstrations: int = Field(4096, ge=1, description="Tasks of the train split to clone from.")
    noise: float = Field(0.0, ge=0, lt=1, description="Share of random admissible commands.")
    imitate_noise: bool = Field(
        False, description="Clone the random commands too: the expert is clumsy, so is its clone."
    )
    learner: dict[str, Any] = Field(default_factory=dict, description="Overrides of learner.")
    max_seconds: float | None = Field(None, gt=0)


class ReinforceStage(Section):
    """Reinforcement learning from episodes."""

    kind: Literal["rl"]
    iterations: int = Field(100, ge=1)
    tasks_per_iteration: int = Field(16, ge=1)
    group_size: int = Field(8, ge=1)
    updates_per_iteration: int = Field(1, ge=1)
    credit: PluginConfig = PluginConfig(name="gigpo")
    annotators: tuple[PluginConfig, ...] = Field(
        (), description="Add to finished groups what credit needs (hidden_states for bipace)."
    )
    strategies: tuple[PluginConfig, ...] = Field(
        (), description="Which tasks are played how often, and what is replayed: adaptive, ..."
    )
    learner: dict[str, Any] = Field(default_factory=dict, description="Overrides of learner.")
    max_seconds: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _strategies_differ(self) -> ReinforceStage:
        names = [one.name for one in self.strategies]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"strategies names {twice[0]} twice: a stage has one of each")
        return self

    @model_validator(mode="after")
    def _groups_fit(self) -> ReinforceStage:
        if self.updates_per_iteration > self.tasks_per_iteration:
            raise ValueError(
                f"updates_per_iteration={self.updates_per_iteration} exceeds tasks_per_iteration="
                f"{self.tasks_per_iteration}: a group is never split across updates"
            )
        return self


Stage = Annotated[CloneStage | ReinforceStage, Field(discriminator="kind")]


class RolloutConfig(Section):
    """Limits of the play; docs/reference/faults.md says what becomes of every fault."""

    concurrency: int = Field(128, ge=1, description="Episodes in flight.")
    env_concurrency: int = Field(
        0, ge=0, description="Of these, how many of one environment; 0: no limit."
    )
    tokens_in_flight: int = Field(
        0, ge=0, description="Prompts and longest answers sampled at once; 0: no limit."
    )
    retries: int = Field(2, ge=0, description="New attempts after an infra failure.")
    backoff_s: float = Field(0.5, ge=0, description="Pause before the first; then it doubles.")
    make_timeout_s: float = Field(300.0, gt=0, description="Deadline of making an environment.")
    reset_timeout_s: float = Field(120.0, gt=0)
    step_timeout_s: float = Field(120.0, gt=0)
    close_timeout_s: float = Field(30.0, gt=0)
    sample_timeout_s: float = Field(600.0, gt=0, description="Also of a view of the memory.")
    episode_timeout_s: float | None = Field(
        None, gt=0, description="Of a whole attempt; null: what its other limits add up to."
    )
    stall_timeout_s: float | None = Field(
        None, gt=0, description="Nothing moves for so long: stop; null: twice the longest deadline."
    )
    give_up_after: int = Field(
        16, ge=1, description="Stop the run after this many failed episodes with none finished."
    )
    poison_after: int = Field(
        4, ge=0, description="Episodes of a task that failed for good set it aside; 0: never."
    )
    quorum: int = Field(
        0, ge=0, description="Episodes that a training group needs; 0: whatever finished."
    )
    straggler_timeout_s: float | None = Field(
        None, gt=0, description="Abandon the rest of a group so long after its quorum."
    )

    @property
    def longest_call_s(self) -> float:
        """The longest deadline of a single call."""
        env = (self.make_timeout_s, self.reset_timeout_s, self.step_timeout_s, self.close_timeout_s)
        return max(*env, self.sample_timeout_s)

    @model_validator(mode="after")
    def _limits_fit(self) -> RolloutConfig:
        if self.straggler_timeout_s is not None and not self.quorum:
            raise ValueError(
                "straggler_timeout_s abandons what comes after a quorum, and quorum is 0: set "
                "quorum, or remove straggler_timeout_s"
            )
        stall_s = self.stall_timeout_s
        if stall_s is not None and stall_s <= self.longest_call_s:
            raise ValueError(
                f"stall_timeout_s={stall_s:g} must exceed the longest deadline, "
                f"{self.longest_call_s:g} s: a call may take that long"
            )
        return self


class StoreConfig(Section):
    """How safe what was played is. It survives the end of the process, however it comes about."""

    synchronous: Literal["normal", "full"] = Field(
        "normal", description="full: also a power cut, at a few milliseconds an episode."
    )


class CheckpointsConfig(Section):
    """What a killed run goes on from. Played episodes are in the store and are never lost."""

    every: int = Field(
        5, ge=0, description="rl iterations between checkpoints; 0: stage ends only."
    )
    every_updates: int = Field(100, ge=0, description="The same for the updates of clone stages.")
    keep: int = Field(2, ge=1, description="The newest checkpoints; older ones are deleted.")


class RunConfig(Section):
    """A whole run."""

    run_dir: Path = Path("runs/run")
    seed: int = 0
    threads: int = Field(0, ge=0, description="torch threads; 0: one per physical core.")
    deterministic: bool = Field(
        False, description="Same weights to the last bit each time, also after a kill; slower."
    )
    model: ModelConfig
    env: EnvConfig
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    store: StoreConfig = StoreConfig()
    learner: LearnerConfig = LearnerConfig()
    stages: tuple[Stage, ...] = ()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    trackers: tuple[PluginConfig, ...] = Field(
        (), description="Where numbers go as well: tensorboard, wandb. Keys never stand here."
    )

    @model_validator(mode="after")
    def _trackers_differ(self) -> RunConfig:
        names = [one.name for one in self.trackers]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"trackers names {twice[0]} twice: a run has one of each")
        return self


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file (or a mapping), apply ``a.b=value`` overrides, validate.

    Values of overrides are YAML (``sampling.temperature=0.7``, ``env.options={difficulty: tiny}``).
    List items are reached by number (``stages.0.iterations=5``).

    Raises:
        ConfigError: no such file, not YAML, an unknown key, a wrong value.
    """
    if isinstance(source, Mapping):
        data: Any = copy.deepcopy(dict(source))
        where = "the configuration"
    else:
        data, where = _read_yaml(Path(source)), str(source)
    for override in overrides:
        _apply(data, override)
    try:
        run = RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, where)) from None
    for number, stage in enumerate(run.stages):
        try:
            LearnerConfig.model_validate({**run.learner.model_dump(), **stage.learner})
        except ValidationError as error:
            place = ("stages", str(number), stage.kind, "learner")
            raise ConfigError(_explain(error, where, place)) from None
    return run


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets a later key silently replace an equal earlier one; a run file must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' appears twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except FileNotFoundError:
        raise ConfigError(f"no run file at '{path}'; see examples/ for run files") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read run file '{path}': {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"'{path}' must be a mapping of keys, got {type(data).__name__}")
    return data


def _apply(data: Any, override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise ConfigError(f"override '{override}' must look like a.b=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the value of override '{override}' is not valid YAML: {error}"
        ) from None
    *parents, last = path.split(".")
    here = data
    for part in parents:
        if isinstance(here, list):
            here = here[_list_index(here, part, override)]
        else:
            if not isinstance(here.get(part), dict | list):
                here[part] = {}
            here = here[part]
        if not isinstance(here, dict | list):
            raise ConfigError(f"override '{override}': '{part}' is {_short(here)}, with no keys")
    if isinstance(here, list):
        here[_list_index(here, last, override)] = value
    else:
        here[last] = value


def _list_index(items: list[Any], part: str, override: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise ConfigError(
            f"override '{override}': '{part}' must be a number below {len(items)} (a list item)"
        )
    return int(part)


def _explain(error: ValidationError, where: str, place: Sequence[str] = ()) -> str:
    lines = []
    for one in error.errors():
        location = [*place, *(str(part) for part in one["loc"])]
        # Discriminated unions put the chosen kind into the location; it is no key of the file.
        shown = ".".join(part for part in location if part not in ("clone", "rl"))
        if one["type"] == "extra_forbidden":
            known = _known_keys(location[:-1])
            lines.append(
                f"unknown key '{shown}'{nearest(location[-1], known) or '.'} "
                f"Known here: {', '.join(sorted(known))}."
            )
        elif one["type"] == "missing":
            lines.append(f"missing key '{shown}'")
        else:
            lines.append(f"{shown or 'run file'}: {one['msg']}; got {_short(one.get('input'))}")
    return f"{where} is not a valid run:\n  " + "\n  ".join(lines)


def _known_keys(location: Sequence[str]) -> list[str]:
    model: Any = RunConfig
    for part in location:
        if part in ("clone", "rl"):
            model = CloneStage if part == "clone" else ReinforceStage
        elif part == "learner":
            model = LearnerConfig  # in a stage it is a mapping of overrides
        elif not part.isdigit():
            annotation = model.model_fields[part].annotation
            sections = [one for one in (annotation, *get_args(annotation)) if _is_section(one)]
            model = sections[0] if sections else model
    return list(model.model_fields)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
