"""The comparison with ALFWorld's own engine finds what differs, and survives what breaks.

Doubles stand in for the package here; ``test_differential_original`` plays against it.
"""

from __future__ import annotations

import json
import random
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import (
    ConfigError,
    DeadlineError,
    EnvDiedError,
    EnvError,
    MissingDependencyError,
)
from agentrl.envs.alfworld import TASK_TYPES, World
from agentrl.envs.alfworld.files import SPLITS
from agentrl.testing.alfworld_differential import (
    compare_game,
    compare_games,
    draw_games,
    main,
    task_type,
)
from agentrl.testing.alfworld_differential_commands import KINDS, ODD, script
from agentrl.testing.alfworld_differential_engines import (
    AlteredEngine,
    NativeEngine,
    OriginalEngine,
    Shown,
)
from agentrl.testing.alfworld_differential_standin import StandInEnvironment
from agentrl.testing.alfworld_differential_worker import serve

GOOD = "valid_unseen"


@pytest.fixture(scope="module")
def some(root: Path) -> list[str]:
    """A game of every split and task type that is there."""
    return draw_games(root, 24)


@pytest.fixture
def python(tmp_path: Path) -> Callable[[str], Path]:
    """Makes an executable that is started in place of a Python, from the body of a script."""

    def make(body: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


STAND_IN = f"exec {sys.executable} -m agentrl.testing.alfworld_differential_standin"


def test_games_are_drawn_evenly_and_alike_for_a_seed(root: Path, some: list[str]) -> None:
    assert {task_type(folder) for folder in some} == set(TASK_TYPES)
    assert {folder.split("/")[0] for folder in some} == set(SPLITS)
    assert len({folder.split("/")[0] for folder in some[:4]}) >= 3  # not one split after the other
    assert draw_games(root, 24) == some
    assert draw_games(root, 24, seed=1) != some
    chosen = draw_games(root, 0, splits=[GOOD], task_types=["look_at_obj_in_light"])
    assert len(chosen) == 18  # all that valid_unseen has
    assert {task_type(folder) for folder in chosen} == {"look_at_obj_in_light"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"splits": ["valid_unsen"]}, "did you mean 'valid_unseen'?"),
        ({"task_types": ["pick_two"]}, "unknown task type 'pick_two'"),
    ],
)
def test_unknown_splits_and_task_types_are_named(
    options: dict[str, Any], words: str, root: Path
) -> None:
    with pytest.raises(ConfigError, match="unknown") as caught:
        draw_games(root, 1, **options)
    assert words in str(caught.value)


def test_an_engine_is_no_different_from_itself(root: Path, some: list[str]) -> None:
    told: list[str] = []
    comparison = compare_games(
        root, some, NativeEngine, workers=3, on_game=lambda game: told.append(game.folder)
    )
    assert comparison.same
    total = comparison.total
    assert (total.games, total.won, total.failed, total.differences) == (24, 24, 0, 0)
    assert [game.folder for game in comparison.games] == some
    assert sorted(told) == sorted(some)
    assert tuple(comparison.by_kind()) == KINDS  # every kind occurred
    assert sum(count.steps for count in comparison.by_kind().values()) == total.steps
    # The same seed types the same, whoever plays.
    assert compare_games(root, some, NativeEngine).games == comparison.games


def test_things_are_examined_in_every_state(root: Path) -> None:
    said: set[str] = set()

    def listen(command: str | None, shown: Shown) -> Shown:
        if shown.feedback.startswith("This is a "):
            said.add(shown.feedback.partition(" is a ")[2].rpartition(" ")[0].rpartition(" ")[0])
        return shown

    kitchens = draw_games(root, 0, splits=[GOOD], task_types=["pick_heat_then_place_in_recep"])
    for seed in range(4):
        for folder in kitchens:
            compare_game(
                NativeEngine(), AlteredEngine(NativeEngine(), listen), root, folder, seed=seed
            )
    states = {"hot", "cool", "clean", "hot and clean", "cool and clean"}
    assert said >= {"clean", "sliced"} | {f"{state} sliced" for state in states}


def test_half_the_games_begin_with_their_stored_solution(root: Path, some: list[str]) -> None:
    games = [compare_game(NativeEngine(), NativeEngine(), root, folder) for folder in some]
    assert 6 <= sum("solution" in game.steps for game in games) <= 18


def lie(command: str | None, shown: Shown) -> Shown:
    """ALFWorld's ``look`` with one letter changed, as a planted difference."""
    if command != "look":
        return shown
    return replace(shown, feedback=shown.feedback.replace("You", "you", 1))


def test_a_planted_difference_is_reported_with_its_context(
    root: Path, some: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def start() -> AlteredEngine:
        return AlteredEngine(NativeEngine(), lie)

    assert main(["--data", str(root), "--games", "24", "--json"], start=start) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["same"] is False
    total = report["total"]
    # Every "look" and nothing else; the games went on to their end.
    looks = 0
    for folder in some:
        true = compare_game(NativeEngine(), AlteredEngine(NativeEngine(), lie), root, folder)
        looks += sum(true.differences.values())
        assert true.won
    assert total["differences"] == looks > 0
    assert total["failed"] == 0
    assert total["different"] == len(report["games"])
    first = report["games"][0]["first"]
    assert (first["field"], first["command"]) == ("feedback", "look")
    assert first["native"] == first["original"].replace("you", "You", 1)
    assert 1 <= len(first["before"]) <= 4 or first["step"] == 1

    assert main(["--data", str(root), "--games", "24"], start=start) == 1
    out = capsys.readouterr().out
    game = report["games"][0]["game"]
    assert f"DIFFERENT {game}, step {first['step']} ({first['kind']})" in out
    assert "feedback differs, from character 0 on" in out
    assert f"{looks} differ in {total['different']} games; 0 failed" in out


@pytest.mark.parametrize("name", ["score", "done", "won", "moves"])
def test_numbers_are_compared_as_well(name: str, root: Path, some: list[str]) -> None:
    def alter(command: str | None, shown: Shown) -> Shown:
        changed: Any = {"score": 0.5, "done": True, "won": True, "moves": -1}[name]
        return replace(shown, **{name: changed}) if command else shown

    result = compare_game(NativeEngine(), AlteredEngine(NativeEngine(), alter), root, some[0])
    assert result.first is not None
    assert (result.first.field, result.first.step) == (name, 1)


def test_a_game_ends_where_the_possible_commands_part(root: Path, some: list[str]) -> None:
    def alter(command: str | None, shown: Shown) -> Shown:
        commands = tuple(one for one in shown.admissible if one != "inventory")
        return replace(shown, admissible=commands) if command else shown

    result = compare_game(NativeEngine(), AlteredEngine(NativeEngine(), alter), root, some[0])
    assert result.first is not None
    assert result.first.field == "admissible"
    assert sum(result.steps.values()) == 2  # the reset, and one command
    words = "\n".join(result.first.lines())
    assert "only agentrl:  ['inventory']" in words
    assert "only ALFWorld: none; the order differs" in words


def test_the_order_of_possible_commands_counts(root: Path, some: list[str]) -> None:
    def alter(_command: str | None, shown: Shown) -> Shown:
        return replace(shown, admissible=shown.admissible[::-1])

    result = compare_game(NativeEngine(), AlteredEngine(NativeEngine(), alter), root, some[0])
    assert result.first is not None
    assert (result.first.step, result.first.kind, result.first.command) == (0, "reset", None)
    assert "at the reset" in "\n".join(result.first.lines())


def test_a_failing_engine_costs_its_game_only(root: Path, some: list[str]) -> None:
    def start() -> AlteredEngine:
        started.append(1)

        def alter(command: str | None, shown: Shown) -> Shown:
            # The third answer of the first engine fails.
            calls.append(1)
            if len(calls) == 3:
                raise EnvError("planted")
            return shown

        return AlteredEngine(NativeEngine(), alter)

    started: list[int] = []
    calls: list[int] = []
    comparison = compare_games(root, some[:3], start)
    assert [game.failure for game in comparison.games] == ["planted", "", ""]
    assert not comparison.same
    assert (comparison.total.failed, comparison.total.different) == (1, 0)
    assert len(started) == 2  # a fresh one after the failure
    assert f"FAILED {some[0]}: planted" in "\n".join(comparison.lines())


def test_a_damaged_game_fails_by_itself_with_the_reason(
    root: Path, some: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name in some if name.startswith(GOOD)][:2]
    for name in names:
        shutil.copytree(root / name, tmp_path / name)
    (tmp_path / names[0] / "game.tw-pddl").write_text('{"pddl_domain": ')
    arguments = ["--data", str(tmp_path), *names]
    assert main(arguments, start=NativeEngine) == 1
    out = capsys.readouterr().out
    assert f"FAILED {names[0]}: cannot read the game " in out
    assert "2 games, 1 won" in out
    assert "; 1 failed" in out


def test_games_can_be_named_in_several_ways(
    root: Path, some: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    named = [some[0], str(root / some[1]), f"{some[2]}/game.tw-pddl"]
    assert main(["--data", str(root.parent), *named, "-v"], start=NativeEngine) == 0
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.err.splitlines()] == some[:3]
    assert "3 games, 3 won" in printed.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "/nonexistent/games"], "no ALFWorld games in /nonexistent/games"),
        (["--games", "-1"], "--games must be 0 (all) or more, got -1"),
        (["--odd", "1"], "--odd must be at least 0 and below 1, got 1.0"),
        (["--workers", "0"], "--workers must be 1 or more"),
        (["--deadline-s", "0"], "--deadline-s must be above 0"),
        (["--split", "valid_sen"], "did you mean 'valid_seen'?"),
        (["valid_seen/no/game"], "no game 'valid_seen/no/game'"),
        (["valid_seen"], "expected <split>/<task>/<trial>"),
        (["--python", "/nonexistent/python"], "cannot start the Python '/nonexistent/python'"),
    ],
)
def test_misuse_exits_with_2(
    arguments: list[str], words: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [] if "--data" in arguments else ["--data", str(root)]
    assert main([*before, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_package_is_named_with_what_to_do(
    root: Path, python: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    # Without site-packages no Python has it.
    bare = python(f'exec {sys.executable} -S "$@"')
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[alfworld\]'"):
        OriginalEngine(bare)
    assert main(["--data", str(root), "--python", str(bare)]) == 2
    assert "lacks it: No module named 'textworld'" in capsys.readouterr().err


def test_a_process_answers_as_the_engine_in_it(
    root: Path, some: list[str], python: Callable[[str], Path]
) -> None:
    with OriginalEngine(python(STAND_IN)) as engine:
        assert engine.versions == {"stand-in": "1"}
        for folder in some[:2]:
            result = compare_game(NativeEngine(), engine, root, folder)
            assert result.first is None
            assert result.won
        # Also what has no encoding travels, and an error of the engine is said, not fatal.
        assert engine.step("\ud800\x00").feedback == "Nothing happens."
        assert engine.cpu_s > 0
        with pytest.raises(EnvError, match=r"failed at .*no game at"):
            engine.open(root, "valid_seen/no/game")
        assert engine.open(root, some[0]).moves == 0
    with pytest.raises(EnvDiedError):
        engine.step("look")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("echo sorry >&2; exit 7", EnvDiedError, "status 7; its last words: sorry"),
        ("echo hello", EnvError, "expected a line of JSON"),
        (r"printf '\377\n'", EnvError, "expected a line of JSON"),
        ("echo '[1]'", EnvError, "expected its versions"),
        ("exec sleep 60", DeadlineError, "did not answer within 0.2 s"),
    ],
)
def test_a_process_that_does_not_speak_is_an_error_in_words(
    body: str, error: type[Exception], words: str, python: Callable[[str], Path]
) -> None:
    deadline_s = 0.2 if error is DeadlineError else 60.0
    with pytest.raises(error, match=words):
        OriginalEngine(python(body), deadline_s=deadline_s)


def test_an_answer_of_another_shape_is_refused(
    root: Path, some: list[str], python: Callable[[str], Path]
) -> None:
    half = python("""echo '{"versions": {}}'; read line; echo '{"feedback": "hi"}'; read line""")
    with OriginalEngine(half) as engine, pytest.raises(EnvError, match="expected feedback"):
        engine.open(root, some[0])


def test_the_worker_reports_errors_and_goes_on(root: Path, some: list[str]) -> None:
    class Lines(list[str]):
        def write(self, text: str) -> int:
            self.append(text)
            return len(text)

        def flush(self) -> None: ...

    out: Any = Lines()
    path = root / some[0] / "game.tw-pddl"
    requests = [{"step": "look"}, {"open": str(path)}, {"step": "help"}]
    serve(StandInEnvironment, [json.dumps(one) for one in requests], out)
    early, reset, helped = (json.loads(line) for line in out)
    assert early["error"].startswith("AttributeError")
    assert (reset["score"], reset["done"], reset["moves"]) == (0, False, 0)
    assert helped["feedback"].startswith("Available commands:")
    assert helped["moves"] == 1


def test_odd_commands_are_odd(root: Path, some: list[str]) -> None:
    native = NativeEngine()
    native.open(root, some[0])
    for kind in (
        "odd: case",
        "odd: blanks inside",
        "odd: empty",
        "odd: symbols",
        "odd: two at once",
    ):
        for seed in range(30):
            command = ODD[kind](random.Random(seed), native.world)
            assert command.strip() not in native.world.commands, (kind, command)
    around = [ODD["odd: blanks around"](random.Random(seed), native.world) for seed in range(30)]
    assert all(command.strip() in native.world.commands for command in around)
    assert not any(command in native.world.commands for command in around)


def test_a_script_disturbed_by_odd_commands_still_ends_in_a_win(root: Path) -> None:
    native = NativeEngine()
    for number, folder in enumerate(draw_games(root, 12, splits=[GOOD])):
        native.open(root, folder)
        world: World = native.world
        kinds = set()
        solution = native.game.walkthrough
        for kind, command in script(
            world, random.Random(number), steps=3, odd=0.6, solution=solution
        ):
            kinds.add(kind)
            world.step(command)
        assert "after the end" in kinds
