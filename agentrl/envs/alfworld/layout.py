"""What follows from a game alone and never changes while it is played."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.envs.alfworld.game import Game


class Layout:
    """Lookup tables of a game, made once and shared by all its episodes.

    Attributes:
        at: Location -> indices of the receptacles there, in listing order.
        of_type: Receptacle type -> indices of the receptacles of that type.
        sliceable: Indices of the things that a knife can slice.
    """

    def __init__(self, game: Game) -> None:
        at: dict[int, list[int]] = defaultdict(list)
        of_type: dict[str, list[int]] = defaultdict(list)
        for index, receptacle in enumerate(game.receptacles):
            at[receptacle.location].append(index)
            of_type[receptacle.type].append(index)
        self.at = {location: tuple(indices) for location, indices in at.items()}
        self.of_type = {kind: tuple(indices) for kind, indices in of_type.items()}
        self.sliceable = tuple(
            index for index, thing in enumerate(game.things) if "sliceable" in thing.abilities
        )
        self._game = game
        self._elsewhere: dict[int, dict[str, tuple[str, int, int]]] = {}

    def elsewhere(self, location: int) -> dict[str, tuple[str, int, int]]:
        """Commands that are possible at a location whatever the state: leaving it, looking."""
        commands = self._elsewhere.get(location)
        if commands is None:
            commands = {
                f"go to {receptacle.name}": ("go to", -1, index)
                for index, receptacle in enumerate(self._game.receptacles)
                if receptacle.location != location
            }
            for word in ("help", "inventory", "look"):
                commands[word] = (word, -1, -1)
            self._elsewhere[location] = commands
        return commands
