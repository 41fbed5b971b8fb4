"""Generates rooms and tasks: a pure function of (difficulty, seed, index).

Every game can be solved by construction: what is needed is there, in reach, and not yet done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from agentrl.core.errors import ConfigError
from agentrl.core.task import content_hash, derive_seed
from agentrl.envs.alfworld.difficulty import Difficulty
from agentrl.envs.alfworld.game import TASK_TYPES, Game, Goal, Receptacle, Thing
from agentrl.envs.alfworld.text import INSTRUCTIONS
from agentrl.envs.alfworld.vocabulary import (
    ABILITIES,
    ACCEPTS,
    ALWAYS_OPENABLE,
    LAMP,
    LAMP_PLACES,
    SOMETIMES_OPENABLE,
    STYLES,
)

SPLITS = ("train", "validation", "test")

#: State asked for -> (ability of the object, appliance). ALFWorld's other states need neither.
_TREATMENT = {
    "clean": ("cleanable", "sinkbasin"),
    "hot": ("heatable", "microwave"),
    "cool": ("coolable", "fridge"),
}
_PICKUPABLE = frozenset({"pickupable"})


def split_of(game_id: str) -> str:
    """The split that a game belongs to, by its content alone: 70 % train, 15 % each other.

    The same room and task are in the same split whatever the settings that led to them, so no
    curriculum over difficulties can leak a test task into training.
    """
    percent = int(game_id, 16) % 100
    return "train" if percent < 70 else "validation" if percent < 85 else "test"


class Generator:
    """All games of one difficulty and seed.

    Args:
        difficulty: The settings.
        seed: Which sequence of games; equal seeds and settings give equal games everywhere.

    Raises:
        ConfigError: No room of the chosen styles and vocabulary offers one of the task types.
    """

    def __init__(self, difficulty: Difficulty, seed: int = 0) -> None:
        self.difficulty = difficulty
        self._seed = derive_seed("alfworld", seed, content_hash(difficulty.to_data()))
        self._goals = {kind: self._possible_goals(kind) for kind in difficulty.task_types}

    def games(self) -> Iterator[Game]:
        """The endless sequence of games, doubles included."""
        return map(self.game, count())

    def game(self, index: int) -> Game:
        """Game number ``index`` of the sequence."""
        rng = random.Random(derive_seed(self._seed, index))
        goals = self._goals[rng.choice(self.difficulty.task_types)]
        style, by_thing = rng.choice(goals)
        thing = rng.choice(list(by_thing))
        return _Room(self.difficulty, style, by_thing[thing], rng).game()

    def _possible_goals(self, task_type: str) -> list[tuple[str, dict[str, list[Goal]]]]:
        found = []
        for style in self.difficulty.styles:
            goals = _goals(self.difficulty, style, task_type)
            if goals:
                found.append((style, goals))
        if not found:
            raise ConfigError(
                f"env 'alfworld': no {task_type} in rooms of the style "
                f"{', '.join(self.difficulty.styles)} with {self.difficulty.receptacle_types} "
                f"types of receptacles and {self.difficulty.thing_types} of things; add a style, "
                "raise receptacle_types or thing_types, or leave this task type out"
            )
        return found


def _kinds(difficulty: Difficulty, style: str) -> dict[str, int]:
    return dict(STYLES[style].receptacles[: difficulty.receptacle_types])


def _goals(difficulty: Difficulty, style: str, task_type: str) -> dict[str, list[Goal]]:
    """Goals that a style's vocabulary can offer, by the type of the thing."""
    kinds = _kinds(difficulty, style)
    ability, appliance = _TREATMENT.get(TASK_TYPES[task_type], ("pickupable", ""))
    if appliance and appliance not in kinds:
        return {}
    goals: dict[str, list[Goal]] = {}
    for thing in STYLES[style].things[: difficulty.thing_types]:
        places = [kind for kind in kinds if thing in ACCEPTS[kind]]
        targets = [kind for kind in places if kind != appliance] if len(places) > 1 else []
        if TASK_TYPES[task_type] == "lit":
            targets = [LAMP] if places and not LAMP_PLACES.isdisjoint(kinds) else []
        if targets and ability in ABILITIES.get(thing, _PICKUPABLE):
            goals[thing] = [Goal(task_type, thing, target) for target in targets]
    return goals


class _Room:
    """One room in the making."""

    def __init__(
        self, difficulty: Difficulty, style: str, goals: list[Goal], rng: random.Random
    ) -> None:
        self.difficulty = difficulty
        self.rng = rng
        self.goal = rng.choice(goals)
        self.most = _kinds(difficulty, style)
        self.thing_types = STYLES[style].things[: difficulty.thing_types]
        self.state = TASK_TYPES[self.goal.task_type]

    def game(self) -> Game:
        copies = 2 if self.state == "two" else 1
        sources = [self.rng.choice(self._sources()) for _ in range(copies)]
        needed = {*sources, *self._needed()}
        self.receptacles = self._receptacles(self._choose_kinds(needed))
        placed = [(self.goal.thing, self._one_of({source})) for source in sources]
        if self.state == "lit":
            placed.append((LAMP, self._one_of(LAMP_PLACES)))
        placed += self._distractors(Counter(kind for kind, _ in placed))
        return self._assemble(placed)

    def _sources(self) -> list[str]:
        return [
            kind
            for kind in self.most
            if self.goal.thing in ACCEPTS[kind] and kind != self.goal.target
        ]

    def _needed(self) -> list[str]:
        if self.state == "lit":
            return [self.rng.choice([kind for kind in self.most if kind in LAMP_PLACES])]
        _, appliance = _TREATMENT.get(self.state, ("", ""))
        return [self.goal.target, appliance] if appliance else [self.goal.target]

    def _choose_kinds(self, needed: set[str]) -> list[str]:
        left = Counter(self.most)
        left.subtract(needed)
        kinds = list(needed)
        size = min(self.rng.randint(*self.difficulty.receptacles), sum(self.most.values()))
        while len(kinds) < size:
            (kind,) = self.rng.choices(list(left), list(left.values()))
            left[kind] -= 1
            kinds.append(kind)
        return sorted(kinds)

    def _receptacles(self, kinds: list[str]) -> list[Receptacle]:
        """Receptacles in listing order: sorted by kind, numbers falling, as ALFWorld lists them."""
        number = Counter(kinds)
        receptacles: list[Receptacle] = []
        for place, kind in enumerate(kinds):
            openable = kind in ALWAYS_OPENABLE or (
                kind in SOMETIMES_OPENABLE and self.rng.random() < self.difficulty.openable
            )
            if receptacles and self.rng.random() < self.difficulty.shared:
                place = receptacles[-1].location
            receptacles.append(Receptacle(f"{kind} {number[kind]}", kind, place, openable))
            number[kind] -= 1
        return receptacles

    def _one_of(self, kinds: frozenset[str] | set[str]) -> int:
        return self.rng.choice([i for i, one in enumerate(self.receptacles) if one.type in kinds])

    def _distractors(self, present: Counter[str]) -> list[tuple[str, int]]:
        """Further things, none of which brings the goal nearer."""
        placed: list[tuple[str, int]] = []
        wanted = self.rng.randint(*self.difficulty.things) - present[self.goal.thing]
        for _ in range(4 * wanted):
            kind = self.rng.choice(self.thing_types)
            places = [
                index
                for index, receptacle in enumerate(self.receptacles)
                if kind in ACCEPTS[receptacle.type]
                and not (kind == self.goal.thing and receptacle.type == self.goal.target)
            ]
            if len(placed) < wanted and places and present[kind] < self.difficulty.copies:
                present[kind] += 1
                placed.append((kind, self.rng.choice(places)))
        return placed

    def _assemble(self, placed: list[tuple[str, int]]) -> Game:
        placed.sort(key=lambda pair: pair[0])
        number = Counter(kind for kind, _ in placed)
        things, contents = [], [list[int]() for _ in self.receptacles]
        for index, (kind, place) in enumerate(placed):
            abilities = ABILITIES.get(kind, _PICKUPABLE)
            location = self.receptacles[place].location
            things.append(Thing(f"{kind} {number[kind]}", kind, abilities, location=location))
            contents[place].append(index)
            number[kind] -= 1
        types = frozenset(thing.type for thing in things)
        game = Game(
            instruction="",
            goal=self.goal,
            receptacles=tuple(self.receptacles),
            things=tuple(things),
            contents=tuple(map(tuple, contents)),
            accepts={one.type: ACCEPTS[one.type] & types for one in self.receptacles},
        )
        return replace(game, instruction=self._instruction(game))

    def _instruction(self, game: Game) -> str:
        """The task sentence. The room decides the wording, so no room comes in two wordings."""
        wording = int(game.id, 16) % self.difficulty.wordings
        form = INSTRUCTIONS[self.goal.task_type][wording]
        return form.format(thing=self.goal.thing, receptacle=self.goal.target)
