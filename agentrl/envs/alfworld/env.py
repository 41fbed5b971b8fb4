"""One episode of an ALFWorld game as an ``Env``, and how its observations are worded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.core.errors import ConfigError, EnvError, nearest
from agentrl.core.message import Message, ToolSpec
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.alfworld import compact
from agentrl.envs.alfworld.engine import Reply, World
from agentrl.envs.alfworld.game import Game

#: Told once, before the first full text. Ours, not ALFWorld's.
RULES = (
    "You act in a house by text commands, one at a time: go to R, open R, close R, take T from R, "
    "move T to R, use T, clean T with R, heat T with R, cool T with R, slice T with T, examine X, "
    "look, inventory. R is a receptacle and T a thing, each named with its number, as in 'mug 1'."
)
FORMATS = {
    "bare": "Answer with the command and nothing else.",
    "tagged": "Think in <think>...</think>, then give the command in <action>...</action>.",
}
TEXTS = ("full", "compact")


@dataclass(frozen=True, slots=True)
class Wording:
    """How a game is put into words.

    Attributes:
        text: ``full``: ALFWorld's own sentences; ``compact``: ours, for tiny models.
        action_format: Which answer format the rules ask for (``bare`` or ``tagged``). Compact text
            has no rules.
        show_admissible: Whether the possible commands are listed.

    Raises:
        ConfigError: An unknown ``text`` or ``action_format``.
    """

    text: Literal["full", "compact"] = "full"
    action_format: Literal["bare", "tagged"] = "tagged"
    show_admissible: bool = False

    def __post_init__(self) -> None:
        known = (("text", self.text, TEXTS), ("action_format", self.action_format, tuple(FORMATS)))
        for name, value, values in known:
            if value not in values:
                raise ConfigError(
                    f"env 'alfworld': unknown {name} {value!r}{nearest(str(value), values) or '.'} "
                    f"It may be: {', '.join(values)}."
                )

    def opening(self, world: World) -> Observation:
        """What is shown at a reset."""
        if self.text == "compact":
            return self._observation(world, compact.opening(world), compact.state(world))
        intro = world.intro
        return self._observation(
            world, f"{RULES} {FORMATS[self.action_format]}\n\n{intro}", anchor=intro
        )

    def answer(self, world: World, reply: Reply) -> Observation:
        """What is shown after a command."""
        if self.text == "full":
            return self._observation(world, reply.feedback, anchor=reply.feedback)
        state = compact.state(world)
        shown = state if reply.valid else f"{compact.INVALID} {state}"
        return self._observation(world, shown, anchor=state)

    def _observation(self, world: World, shown: str, anchor: str) -> Observation:
        commands = () if world.won else tuple(world.admissible)
        if self.show_admissible and commands:
            if self.text == "compact":
                shown += f" can {' | '.join(commands)}"
            else:
                shown += f"\nCommands that are possible now: {'; '.join(commands)}."
        return Observation((Message("user", shown),), anchor=anchor, admissible=commands)


class AlfworldEnv:
    """One episode: ``reset`` once, ``step`` until over, ``aclose``.

    The action is an assistant message whose content is the bare command. A command that is not
    possible changes nothing and comes back with ``action_valid=False``; that is never an error.

    Args:
        game: What is played.
        wording: How it is put into words.
        max_steps: Commands before the episode is truncated.
        reward_success: Reward of the command that solves the task; every other one gets 0.
    """

    tools: Sequence[ToolSpec] = ()

    def __init__(
        self,
        game: Game,
        *,
        wording: Wording | None = None,
        max_steps: int = 50,
        reward_success: float = 1.0,
    ) -> None:
        self._game = game
        self._wording = wording or Wording()
        self._max_steps = max_steps
        self._reward_success = reward_success
        self._world: World | None = None
        self._steps = 0
        self._over = False

    async def reset(self) -> Observation:
        """Begin the episode.

        Raises:
            EnvError: It was begun or closed before.
        """
        if self._world is not None or self._over:
            raise EnvError(
                "reset called on an ALFWorld episode that was begun or closed before; an Env is "
                "one episode: make a new one with the factory"
            )
        self._world = World(self._game)
        return self._wording.opening(self._world)

    async def step(self, action: Message) -> StepResult:
        """Answer one command.

        Raises:
            EnvError: The episode has not begun, is over, or closed.
        """
        world = self._world
        if world is None or self._over:
            raise EnvError(
                "step called on an ALFWorld episode that "
                + ("was not reset" if world is None else "is over or closed")
                + "; call reset once, then step until terminated or truncated"
            )
        reply = world.step(action.content)
        self._steps += 1
        truncated = not reply.won and self._steps >= self._max_steps
        self._over = reply.won or truncated
        return StepResult(
            observation=self._wording.answer(world, reply),
            reward=self._reward_success if reply.won else 0.0,
            terminated=reply.won,
            truncated=truncated,
            action_valid=reply.valid,
            success=reply.won,
        )

    async def aclose(self) -> None:
        """End the episode; may be called at any time, and again."""
        self._over = True
