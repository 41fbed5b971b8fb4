"""Records of play: samples, steps, trajectories, groups, training rows. All frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from agentrl.core.message import Message
from agentrl.core.task import Task

StepKind = Literal["act", "summary", "skill"]
FinishReason = Literal["stop", "length"]


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"  # the task itself ended it
    MAX_STEPS = "max_steps"  # budget of policy calls
    MAX_TOKENS = "max_tokens"  # budget of prompt + sampled tokens
    MAX_SECONDS = "max_seconds"  # budget of wall time
    ENV_TRUNCATED = "env_truncated"  # a budget of the environment's own
    FAILURE = "failure"  # an infra failure, see Trajectory.failure


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. ``temperature`` 0 is greedy. Training needs top_p = 1 and top_k = 0."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """What the engine sampled: the record, never encoded again.

    Attributes:
        token_ids: Sampled ids, the stop token included if one was sampled.
        logprobs: Log-probability of each id at the sampling temperature, same length.
        versions: ``((start, policy_version), ...)``; a weight change in mid-answer is a new span.
        finish_reason: ``stop`` (a stop token was sampled) or ``length``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[tuple[int, int], ...]
    finish_reason: FinishReason

    @property
    def policy_version(self) -> int:
        """The oldest version that sampled any of it."""
        return min((version for _, version in self.versions), default=0)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows next.

    Attributes:
        messages: New messages for the policy (not the history).
        anchor: Key of the state the next action is taken in (GiGPO's anchor state): the raw
            observation without history; JSON-like. ``None``: the state has no key, so it is never
            compared with another.
        admissible: Commands that would be valid now, if the environment can tell.
        fresh: A conversation begins anew with ``messages``: nothing from before is part of it (an
            agent of somebody else's has rewritten its prompt, say).
    """

    messages: tuple[Message, ...]
    anchor: Any = None
    admissible: tuple[str, ...] | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """The environment's answer to one action.

    Attributes:
        observation: What comes next (may be empty of messages when over).
        reward: Reward of the action; ``None`` means that it could not be scored.
        terminated: The task is over. truncated: a budget of the environment's own ran out.
        action_valid: The action was well-formed and possible.
        success: Whether the task is solved; ``None`` until the environment knows.
        metrics: Plain numbers for reports.
    """

    observation: Observation
    reward: float | None
    terminated: bool
    truncated: bool = False
    action_valid: bool = True
    success: bool | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds spent on a step, by cause.

    Attributes:
        sample_s: The engine's, from the request to the answer. env_s: The environment's.
        tool_s: The part of ``env_s`` spent in tools. wait_s: Waiting for a free slot of some limit,
            in neither of the others.
    """

    sample_s: float = 0.0
    env_s: float = 0.0
    tool_s: float = 0.0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the policy and the environment's answer: the unit of credit.

    Attributes:
        index: Position in the episode, from 0.
        kind: ``act``, or a call that served the memory (``summary``) or skills (``skill``).
        shown: Messages that were new to the policy in this step's prompt.
        anchor: Key of the state the action was taken in.
        prompt_ids: The whole prompt as the engine got it.
        sample: What was sampled.
        action: The assistant message that the environment got.
        answer: What the model said, as the renderer read it, where that is not ``action`` (tags
            around a command, text without an action in it); memories show it. ``None``: ``action``.
        action_key: Normalised executed action (same text = same action).
        parse_status: ``ok``, the ``kind`` of the ParseFailure, or ``parse_error``: a tool call
            could not be read.
        result: The environment's answer; ``None`` for steps that are not acts.
    """

    index: int
    shown: tuple[Message, ...]
    anchor: Any
    prompt_ids: tuple[int, ...]
    sample: Sample
    action: Message
    action_key: str
    parse_status: str
    result: StepResult | None
    kind: StepKind = "act"
    timings: Timings = Timings()
    answer: Message | None = None

    @property
    def said(self) -> Message:
        """What the model said: ``answer``, or else ``action``."""
        return self.action if self.answer is None else self.answer

    @property
    def reward(self) -> float | None:
        return 0.0 if self.result is None else self.result.reward


@dataclass(frozen=True, slots=True)
class Failure:
    """An infra failure: the machine's fault, never the policy's.

    Attributes:
        boundary: Where it was caught (``reset``, ``step``, ``sample``, ``memory``, ``close``).
        error: Class name of the error. message: Its text.
        outages: Attempts at this episode so far, this one included, that failed because the
            engine was down for others too: they are no use of the episode's own attempts.
    """

    boundary: str
    error: str
    message: str
    outages: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive steps whose prompts only grow by appending: one training row.

    ``steps`` are positions in ``Trajectory.steps``; ``spans`` the ``(start, end)`` of each step's
    sampled tokens in ``token_ids``.
    """

    steps: tuple[int, ...]
    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one episode.

    Attributes:
        id: Unique in the run: ``group_id/trial/attempt``.
        trial: Number of this episode among the group's, from 0. attempt: retries after failures.
        stop_reason: Why it ended; ``failure`` says what broke when it is ``FAILURE``.
        close_failure: The environment did not close; what was played still counts.
        success: What evaluation counts; apart from reward. ``None``: unknown (failed).
        final_shown: Messages of the last observation, which the policy never saw a prompt with.
    """

    id: str
    group_id: str
    task_id: str
    trial: int
    attempt: int
    seed: int
    steps: tuple[Step, ...]
    stop_reason: StopReason
    failure: Failure | None = None
    close_failure: Failure | None = None
    success: bool | None = None
    final_shown: tuple[Message, ...] = ()
    wall_s: float = 0.0

    @property
    def scored(self) -> bool:
        """Whether it may enter credit: no infra failure, every step scored, something sampled."""
        if self.failure is not None or not any(step.sample.token_ids for step in self.steps):
            return False
        for step in self.steps:  # a plain loop: credit asks this of every step of a batch
            if step.result is not None and step.result.reward is None:
                return False
        return True

    @property
    def reward(self) -> float | None:
        """Sum of the step rewards; ``None`` if the trajectory is not scored."""
        return sum(step.reward or 0.0 for step in self.steps) if self.scored else None

    @property
    def policy_version(self) -> int:
        """The oldest version that sampled any of it."""
        return min((step.sample.policy_version for step in self.steps), default=0)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(step.sample.token_ids) for step in self.steps)

    def segments(self) -> tuple[Segment, ...]:
        """Merge consecutive steps into rows wherever a prompt extends the tokens held exactly."""
        segments: list[Segment] = []
        steps: list[int] = []
        spans: list[tuple[int, int]] = []
        held: tuple[int, ...] = ()
        for position, step in enumerate(self.steps):
            if steps and step.prompt_ids[: len(held)] != held:
                segments.append(Segment(tuple(steps), held, tuple(spans)))
                steps, spans = [], []
            start = len(step.prompt_ids)
            held = step.prompt_ids + step.sample.token_ids
            steps.append(position)
            spans.append((start, len(held)))
        if steps:
            segments.append(Segment(tuple(steps), held, tuple(spans)))
        return tuple(segments)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task under one configuration."""

    id: str
    task: Task
    trajectories: tuple[Trajectory, ...]

    @property
    def policy_version(self) -> int:
        """The oldest version that sampled any of it."""
        return min((one.policy_version for one in self.trajectories if one.steps), default=0)


@dataclass(frozen=True, slots=True)
class CreditResult:
    """Advantages, aligned with ``[one for group in groups for one in group.trajectories]``.

    Attributes:
        step_advantages: For each trajectory one advantage per step, or ``None`` for a trajectory
            that takes no part (infra failure, unscored). ``None`` is not 0.
        token_advantages: For each trajectory, per step, one value per sampled token, added by
            estimators that work below the step; ``None`` when they do not.
        parts: Named components of ``step_advantages``, same shape (``episode``, ``step``).
        groups: Named partitions, same shape, of integer labels (``anchor``).
        metrics: Plain numbers for reports.
    """

    step_advantages: Sequence[Sequence[float] | None]
    token_advantages: Sequence[Sequence[Sequence[float]] | None] | None = None
    parts: Mapping[str, Sequence[Sequence[float] | None]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[Sequence[int] | None]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One training row: a segment with what the loss needs. All sequences have one length.

    Attributes:
        token_ids: Prompt and sampled tokens of the segment.
        action_mask: 1 exactly on sampled tokens.
        behaviour_logprobs: Log-probability under the policy that sampled; 0 where the mask is 0.
            ``None`` when the tokens were not sampled by the policy (demonstrations).
        advantages: Per token; 0 where the mask is 0.
        weight: Weight of every token of the row in the loss (trajectory weighting).
        proximal_logprobs: Under the weights at the start of the iteration's updates, which the
            decoupled loss clips against; 0 where the mask is 0. ``None``: those weights are the
            present ones.
        teacher_logprobs: What a distillation term draws towards: under a policy that was told
            more. ``None`` (for a token or the row): not scored, which is not 0.
    """

    token_ids: tuple[int, ...]
    action_mask: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...] | None
    advantages: tuple[float, ...]
    weight: float
    trajectory_id: str
    group_id: str
    policy_version: int
    proximal_logprobs: tuple[float, ...] | None = None
    teacher_logprobs: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one optimiser step."""

    rows: tuple[Row, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What the learner reports about one optimiser step."""

    update: int
    policy_version: int
    metrics: Mapping[str, float]
