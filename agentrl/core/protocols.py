"""Every seam of agentrl as a protocol.

Whatever waits on another process is async; maths, rendering and local storage are sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    Batch,
    CreditResult,
    Group,
    Observation,
    Row,
    Sample,
    Sampling,
    Step,
    StepResult,
    Trajectory,
    UpdateStats,
)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers with where text alone does not say it.

    Attributes:
        content: Text for the model.
        final: The episode is over with this call.
        answer: What the policy answered by it, for the scorer.
    """

    content: str
    final: bool = False
    answer: str | None = None


@runtime_checkable
class Tool(Protocol):
    """Something the policy can call.

    Most tools are written as a class or function whose spec is read from its signature and
    docstring (``agentrl.tools``); one that knows its own ``spec`` is this protocol itself.
    """

    @property
    def spec(self) -> ToolSpec: ...

    async def __call__(self, **arguments: Any) -> str | ToolResult:
        """Raise ``ToolError`` for what the model should read; anything else ends the episode."""
        ...


@runtime_checkable
class ToolProvider(Protocol):
    """Opens tools for one episode: a session with a server, say."""

    def open(self, task: Task, seed: int) -> AbstractAsyncContextManager[Sequence[Any]]:
        """Tools that live until the context is left, which another asyncio task may do."""
        ...


@runtime_checkable
class SandboxProvider(Protocol):
    """Opens sandboxes; what is opened is closed by leaving the context."""

    def open(self, spec: Any) -> AbstractAsyncContextManager[Any]: ...


@runtime_checkable
class UserSimulator(Protocol):
    """Plays the user of one episode."""

    async def reply(self, conversation: Sequence[Message]) -> Message | None:
        """What the user says next; ``None``: the user has left, and the episode is over.

        ``conversation`` is what user and agent said to each other, tools left out; the first
        reply, to an empty one, opens the episode. A user with ``metrics`` (names to numbers) has
        them recorded with the last step.
        """
        ...


@runtime_checkable
class Env(Protocol):
    """One episode of one task: ``reset`` once, ``step`` until over, ``aclose`` always."""

    @property
    def tools(self) -> Sequence[ToolSpec]: ...

    async def reset(self) -> Observation: ...

    async def step(self, action: Message) -> StepResult: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class EnvFactory(Protocol):
    """Lists the tasks of a split and makes an Env from (task, seed)."""

    @property
    def splits(self) -> Sequence[str]: ...

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks in a fixed order that no scheduling, worker count or directory order changes."""
        ...

    async def make(self, task: Task, *, seed: int) -> Env: ...


@runtime_checkable
class Demonstrator(Protocol):
    """An EnvFactory may also offer an expert: a solution of a task to clone from."""

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterable[Demonstration]:
        """Play ``task`` with the expert; a share ``noise`` of commands is random and admissible."""
        ...


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One step of an expert's episode.

    Attributes:
        observation: What was shown. action: The assistant message given.
        trainable: Whether the action is the expert's (random commands are played, not cloned).
    """

    observation: Observation
    action: Message
    trainable: bool


@runtime_checkable
class Engine(Protocol):
    """Samples tokens from the current policy. Cancelling a call frees its slot."""

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample: ...

    def release(self, episode_id: str) -> None:
        """Forget whatever is kept for an episode (its key/value cache). Unknown ids are fine."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Renderer(Protocol):
    """Messages to token ids, append-only; ids back to a message. Sync and pure."""

    @property
    def stop_token_ids(self) -> Sequence[int]: ...

    @property
    def append_only(self) -> bool:
        """False: the prompt is rendered anew each step, as the model's own template does it."""
        ...

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of a whole prompt, the opening of the assistant's turn included."""
        ...

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Ids that follow a sampled answer: its closing, ``messages``, the next opening.

        ``closed`` says whether the sampled ids already end with a stop token.
        """
        ...

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        """The assistant message in sampled ids. Never raises on what a model may emit."""
        ...

    def encode_action(self, message: Message) -> list[int]:
        """Ids a model should have sampled to say ``message``, stop token included (cloning)."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids for people, control tokens included."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """What the policy sees of the history.

    Attributes:
        messages: The whole conversation to show, the newest messages last.
        rewritten: Whether it is more than the last view plus the answer plus new messages.
            Then a new segment begins.
        summary: Text the memory carries, for the record.
    """

    messages: tuple[Message, ...]
    rewritten: bool
    summary: str | None = None


@runtime_checkable
class Memory(Protocol):
    """Decides what the policy sees of the history. One object per episode."""

    async def view(
        self, steps: Sequence[Step], newest: Sequence[Message], *, budget_tokens: int
    ) -> View:
        """Make the next view.

        ``steps`` are the finished ones (each knows what it showed), ``newest`` the messages no
        prompt has held yet.
        """
        ...


@runtime_checkable
class Annotator(Protocol):
    """Adds what credit needs and only a model can give to finished groups."""

    def annotate(self, groups: Sequence[Group]) -> Sequence[Group]: ...


@runtime_checkable
class CreditEstimator(Protocol):
    """Groups in, one advantage per step (or per token) out. Sync and pure."""

    def assign(self, groups: Sequence[Group]) -> CreditResult: ...


@dataclass(frozen=True, slots=True)
class Scores:
    """What ``Learner.score`` returns, aligned with the rows.

    ``logprobs[i][k]`` is the log-probability of token k of row i given what precedes it (entry 0
    is 0). ``hidden[i]`` is the hidden state before each token, or ``None`` if not asked for.
    """

    logprobs: Sequence[Sequence[float]]
    hidden: Sequence[Any] | None = None


@runtime_checkable
class Learner(Protocol):
    """Owns the weights. Batches in, gradient, a new policy version out. Sync."""

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        """Make one optimiser step per batch until ``batches`` ends."""
        ...

    def score(
        self,
        rows: Sequence[Row],
        *,
        hidden_layer: int | None = None,
        actions_only: bool = False,
    ) -> Scores:
        """Score the tokens of rows; ``actions_only``: only where the action mask is 1, else 0."""
        ...

    def publish(self) -> int:
        """Hand the weights to the engine; returns the new policy version."""
        ...

    def save(self, path: Path) -> None: ...

    def load(self, path: Path) -> None: ...


@runtime_checkable
class Store(Protocol):
    """The append-only database of a run. What ``append`` returned for survives ``kill -9``."""

    def append(self, trajectory: Trajectory, *, task: Task, iteration: int, purpose: str) -> None:
        """``purpose`` is ``train`` or the name of an evaluation (``before``, ``validation``)."""
        ...

    def add_credit(self, groups: Sequence[Group], credit: CreditResult) -> None:
        """Record the advantages and their parts for trajectories already appended."""
        ...

    def groups(self, *, purpose: str | None = None) -> Iterator[Group]: ...

    def close(self) -> None: ...
