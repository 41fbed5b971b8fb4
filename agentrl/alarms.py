"""Says aloud when a run, as it is set up, learns nothing, or not what its credit is known for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.config import LearnerConfig, RunConfig
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group, StopReason, Trajectory
from agentrl.stages import Iteration

__all__ = ["Alarms", "cut_by_limits", "uncorrected_loss", "unpublished_learner"]

NEARLY_ALL = 0.95
SILENT_ITERATIONS = 3


@dataclass(slots=True)
class Alarms:
    """Looks at the iterations of a stage in order; ``silent`` counts those without any signal."""

    config: RunConfig
    first: bool = True
    silent: int = 0

    def look(self, done: Iteration) -> list[str]:
        """Warnings about an iteration, for people; mostly none."""
        found: list[str] = []
        if self.first:
            self.first = False
            found += cut_by_limits(done.groups, self.config)
        self.silent = 0 if has_signal(done.credit) else self.silent + 1
        # Said after 3, 6, 12, ... iterations in a row: often enough, and not on every line.
        if self.silent in (SILENT_ITERATIONS * 2**doubling for doubling in range(20)):
            found.append(_silence(self.silent, done))
        return found


def has_signal(credit: CreditResult) -> bool:
    """Whether any step or token has an advantage other than 0."""
    if any(any(one) for one in credit.step_advantages if one is not None):
        return True
    tokens = credit.token_advantages or ()
    return any(any(step) for one in tokens if one is not None for step in one)


def unpublished_learner(
    number: int, name: str, credit: CreditEstimator, settings: LearnerConfig
) -> Iterator[str]:
    """A warning for each setting of a stage's learner that its credit was published with otherwise.

    Nothing is switched: another loss may well be meant.

    Args:
        number: Of the stage. name: of the credit in the run file.
        credit: May name the settings in ``published_learner``.
        settings: The stage's.
    """
    published: Mapping[str, Any] = getattr(credit, "published_learner", {})
    chosen = settings.model_dump()
    for key, wanted in published.items():
        given = chosen[key]
        if isinstance(wanted, Mapping):
            same = given is not None and {one: given[one] for one in wanted} == dict(wanted)
        else:
            same = given == wanted
        if not same:
            yield (
                f"credit '{name}' was published with learner.{key}={_flow(wanted)}, and stage "
                f"{number} learns with {_flow(given)}: what it measures is not the published "
                f"method. Set stages.{number}.learner.{key}={_flow(wanted)}, unless you mean it"
            )


def uncorrected_loss(number: int, settings: LearnerConfig, max_staleness: int) -> Iterator[str]:
    """A warning where samples are older than the weights and the loss does not take it well.

    Args:
        number: Of the stage. settings: its learner's.
        max_staleness: Of the run.
    """
    if not max_staleness or settings.loss == "decoupled":
        return
    what = {
        "no_ratio": "which ignores that other weights sampled them (biased on purpose)",
        "cpgd": "which pulls towards the weights that sampled them, and clips against those",
    }.get(
        settings.loss,
        "which clips against the weights that sampled them: the older a sample, the more of its "
        "tokens are without a gradient before anything was learnt",
    )
    yield (
        f"rollout.max_staleness={max_staleness} brings samples of older weights, and stage "
        f"{number} learns from them with loss {settings.loss}, {what}. Set "
        f"stages.{number}.learner.loss=decoupled, unless you mean it"
    )


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    return "null" if value is None else str(value)


def cut_by_limits(groups: Sequence[Group], config: RunConfig) -> Iterator[str]:
    """A warning for each limit that cut nearly all answers or episodes of ``groups``."""
    played = [one for group in groups for one in group.trajectories if one.failure is None]
    answers = [step.sample.finish_reason for one in played for step in one.steps]
    cut = answers.count("length")
    if answers and cut >= NEARLY_ALL * len(answers):
        yield (
            f"{cut:,} of {len(answers):,} answers were cut by sampling.max_tokens="
            f"{config.sampling.max_tokens} before they ended, and a cut answer is never executed: "
            "nothing can be learnt so. Raise sampling.max_tokens, or let a clone stage teach the "
            "model to end its answers"
        )
    ended = Counter(one.stop_reason for one in played)
    limits = {reason: name for reason, name in _limits(config).items() if ended[reason]}
    short = sum(ended[reason] for reason in limits)
    if played and short >= NEARLY_ALL * len(played):
        counts = ", ".join(f"{ended[reason]:,} by {name}" for reason, name in limits.items())
        yield (
            f"{short:,} of {len(played):,} episodes were cut short ({counts}) and "
            f"{_successes(played)}: unless the task is meant to last that long, little can be "
            "learnt so. Raise the limit, take easier tasks, or begin with a clone stage"
        )


def _limits(config: RunConfig) -> dict[StopReason, str]:
    agent = config.agent
    return {
        StopReason.MAX_STEPS: f"agent.max_steps={agent.max_steps}",
        StopReason.MAX_TOKENS: f"agent.max_tokens={agent.max_tokens}",
        StopReason.MAX_SECONDS: f"agent.max_seconds={agent.max_seconds:g}",
        StopReason.ENV_TRUNCATED: f"the limit of the environment '{config.env.name}' itself",
    }


def _successes(played: Sequence[Trajectory]) -> str:
    solved = sum(one.success is True for one in played)
    return f"{solved:,} succeeded" if solved else "none succeeded"


def _silence(iterations: int, done: Iteration) -> str:
    success = done.success
    why = "nothing could be scored" if success is None else f"success is {success:.0%}"
    return (
        f"{iterations} iterations in a row without any signal: in no group did one episode do "
        f"better than another ({why}), so the weights do not change. Too hard: easier tasks, "
        "larger groups, or a clone stage first. Too easy: harder tasks. Rewards that never "
        "differ: look at episodes with agentrl view"
    )
