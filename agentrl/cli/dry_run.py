"""``agentrl train FILE --dry-run``: all that can be checked without weights, and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentrl.assembly import close_factory
from agentrl.config import RunConfig
from agentrl.plan import episodes_of, evaluation_words, model_words, stage_words
from agentrl.preflight import check_training
from agentrl.preflight.splits import splits_played, validates
from agentrl.preflight.template import template_words

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
            model in a folder of this machine.
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
        AgentRLError: with every problem that ``agentrl.preflight`` found.
    """
    factory = check_training(config, new=True)
    try:
        tasks = {split: len(factory.tasks(split)) for split in splits_played(config)}
    finally:
        close_factory(factory)
    return Plan(
        run_dir=str(config.run_dir),
        model=model_words(config),
        env=config.env.name,
        tasks=tasks,
        stages=tuple(stage_words(config, stage) for stage in config.stages),
        episodes=sum(episodes_of(stage) for stage in config.stages),
        evaluation=evaluation_words(config, validates=validates(config)),
        template=template_words(config),
    )
