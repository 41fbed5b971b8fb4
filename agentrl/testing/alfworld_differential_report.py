"""What a comparison of two ALFWorld engines came to: records, counts, and their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.testing.alfworld_differential_commands import KINDS
from agentrl.testing.alfworld_differential_engines import COMPARED, Shown

__all__ = ["Comparison", "Count", "Difference", "GameResult", "difference"]

_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two engines first answered differently in a game.

    Attributes:
        step: Number of the command, from 1; 0 for the reset.
        kind: Kind of the command.
        command: The command; ``None`` for the reset.
        field: Which part of the answer (one of ``COMPARED``).
        native, original: That part, of agentrl's engine and of ALFWorld's.
        before: The last commands before it, each with the text that both answered.
    """

    step: int
    kind: str
    command: str | None
    field: str
    native: Any
    original: Any
    before: tuple[tuple[str, str], ...] = ()

    def lines(self) -> Iterator[str]:
        """The difference in words, with its context."""
        for command, feedback in self.before:
            yield f"  > {short(command)}"
            yield f"    {short(feedback)}"
        yield "  at the reset" if self.command is None else f"  > {short(self.command)}"
        if self.field == "admissible":
            native, original = set(self.native), set(self.original)
            yield f"    only agentrl:  {sorted(native - original) or 'none; the order differs'}"
            yield f"    only ALFWorld: {sorted(original - native) or 'none; the order differs'}"
            return
        at = ""
        if isinstance(self.native, str) and isinstance(self.original, str):
            at = f", from character {_common(self.native, self.original)} on"
        yield f"    {self.field} differs{at}"
        yield f"    agentrl:  {self.native!r}"
        yield f"    ALFWorld: {self.original!r}"

    def to_data(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "kind": self.kind,
            "command": self.command,
            "field": self.field,
            "native": self.native,
            "original": self.original,
            "before": [list(pair) for pair in self.before],
        }


def short(text: str) -> str:
    """A text on one line; the middle of a very long one is left out."""
    shown = repr(text)
    if len(shown) <= _SHOWN:
        return shown
    return f"{shown[: _SHOWN // 2]} ... {shown[-_SHOWN // 4 :]} ({len(text)} characters)"


def _common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def difference(native: Shown, original: Shown) -> str:
    """The first field in which two answers differ, or an empty string."""
    return next((one for one in COMPARED if getattr(native, one) != getattr(original, one)), "")


@dataclass(frozen=True, slots=True)
class GameResult:
    """One game, played on both engines.

    Attributes:
        folder, split, task_type: Which game.
        steps: Answers that were compared, by kind of command (``reset`` is one).
        differences: Those that differed, by kind.
        won: Whether the game was won on the way.
        first: The first difference.
        failure: Why the game could not be played to the end of its commands; no difference.
    """

    folder: str
    split: str
    task_type: str
    steps: Mapping[str, int] = field(default_factory=dict)
    differences: Mapping[str, int] = field(default_factory=dict)
    won: bool = False
    first: Difference | None = None
    failure: str = ""

    @property
    def same(self) -> bool:
        """Whether the game was played to the end without a difference."""
        return self.first is None and not self.failure

    def to_data(self) -> dict[str, Any]:
        return {
            "game": self.folder,
            "steps": sum(self.steps.values()),
            "differences": sum(self.differences.values()),
            "won": self.won,
            "first": self.first.to_data() if self.first else None,
            "failure": self.failure or None,
        }


@dataclass(frozen=True, slots=True)
class Count:
    """Totals over some games or some kind of commands.

    Attributes:
        games: Games played. won: of them won. failed: of them not played to the end.
        steps: Answers compared. differences: of them different.
        different: Games with a difference.
    """

    games: int = 0
    won: int = 0
    failed: int = 0
    steps: int = 0
    differences: int = 0
    different: int = 0

    def to_data(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All games of a comparison, in the order in which they were asked for."""

    games: Sequence[GameResult]
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether everything was played, and nothing differed."""
        return bool(self.games) and all(game.same for game in self.games)

    @property
    def total(self) -> Count:
        return _count(self.games)

    def by(self, key: Callable[[GameResult], str]) -> dict[str, Count]:
        """Totals by a property of games, sorted by it."""
        names = sorted({key(game) for game in self.games})
        return {name: _count([one for one in self.games if key(one) == name]) for name in names}

    def by_kind(self) -> dict[str, Count]:
        """Totals by kind of command; ``games`` are those in which it occurred."""
        steps: Counter[str] = Counter()
        differences: Counter[str] = Counter()
        games: Counter[str] = Counter()
        different: Counter[str] = Counter()
        for game in self.games:
            steps.update(game.steps)
            differences.update(game.differences)
            games.update(game.steps.keys())
            different.update(kind for kind, number in game.differences.items() if number)
        return {
            kind: Count(
                games=games[kind],
                steps=steps[kind],
                differences=differences[kind],
                different=different[kind],
            )
            for kind in KINDS
            if steps[kind]
        }

    def to_data(self) -> dict[str, Any]:
        """Everything for machines. Games that are the same are counted, not listed."""

        def listed(counts: Mapping[str, Count]) -> dict[str, dict[str, int]]:
            return {name: count.to_data() for name, count in counts.items()}

        return {
            "same": self.same,
            "versions": dict(self.versions),
            "total": self.total.to_data(),
            "by_split": listed(self.by(lambda game: game.split)),
            "by_task_type": listed(self.by(lambda game: game.task_type)),
            "by_kind": listed(self.by_kind()),
            "games": [game.to_data() for game in self.games if not game.same],
        }

    def lines(self) -> Iterator[str]:
        """The report in words."""
        yield from self.wrong()
        for title, counts in (
            ("split", self.by(lambda game: game.split)),
            ("task type", self.by(lambda game: game.task_type)),
            ("kind of command", self.by_kind()),
        ):
            whole = title != "kind of command"
            yield ""
            yield f"{title:32}{'games':>8}{'won' if whole else '':>8}{'steps':>10}{'different':>11}"
            for name, count in counts.items():
                won = count.won if whole else ""
                yield f"{name:32}{count.games:8}{won:>8}{count.steps:10,}{count.differences:11,}"
        total = self.total
        yield ""
        yield (
            f"{total.games} games, {total.won} won, {total.steps:,} answers compared: "
            f"{total.differences:,} differ in {total.different} games; {total.failed} failed"
        )

    def wrong(self) -> Iterator[str]:
        """What differs or failed, game by game; nothing if all is the same."""
        for game in self.games:
            if game.first is not None:
                yield f"DIFFERENT {game.folder}, step {game.first.step} ({game.first.kind})"
                yield from game.first.lines()
            if game.failure:
                yield f"FAILED {game.folder}: {game.failure}"


def _count(games: Sequence[GameResult]) -> Count:
    return Count(
        games=len(games),
        won=sum(game.won for game in games),
        failed=sum(bool(game.failure) for game in games),
        steps=sum(sum(game.steps.values()) for game in games),
        differences=sum(sum(game.differences.values()) for game in games),
        different=sum(game.first is not None for game in games),
    )
