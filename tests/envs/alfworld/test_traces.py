"""The native engine says and does what ALFWorld 0.4.2 said and did, to the letter."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from agentrl.envs.alfworld.files import SPLITS, list_games, read_game
from agentrl.testing.traces import main, replay, replay_walkthrough


def test_every_recorded_episode_is_reproduced(
    traces_file: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(traces_file), "--data", str(data)]) == 0
    # 120 games of 4 episodes each; nothing but the closing line
    assert capsys.readouterr().out == "480 passed, 0 failed\n"


def test_stored_solutions_win(root: Path) -> None:
    games = [folder for split in SPLITS for folder in list_games(root, split)]
    assert len(games) > 230
    failed = {
        folder: why for folder in games if (why := replay_walkthrough(read_game(root, folder)))
    }
    assert failed == {}


def test_verbose_names_every_case(
    traces_file: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one.jsonl"
    with lzma.open(traces_file, "rt") as lines:
        one.write_text(next(iter(lines)))
    assert main([str(one), "--data", str(root), "-v"]) == 0
    lines_out = capsys.readouterr().out.splitlines()
    assert len(lines_out) == 5
    assert lines_out[0].startswith("passed ")
    assert lines_out[-1] == "4 passed, 0 failed"


@pytest.mark.parametrize("key", ["feedback", "admissible", "reward", "done", "won"])
def test_one_changed_value_fails_that_episode_only(
    key: str,
    recorded: list[dict[str, Any]],
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = json.loads(json.dumps(recorded[0]))
    step = record["episodes"][1]["steps"][3]
    step[key] = {"feedback": "?", "admissible": [], "reward": 0.5, "done": True, "won": True}[key]
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert main([str(path), "--data", str(data)]) == 1
    failure, closing = capsys.readouterr().out.splitlines()
    assert closing == "3 passed, 1 failed"
    assert failure.startswith(f"FAILED {record['game']} episode 1 ")
    assert f"step 3 ({step['command']!r}), {key}: got " in failure


def test_a_changed_reset_is_noticed(recorded: list[dict[str, Any]], root: Path) -> None:
    game = read_game(root, recorded[0]["game"])
    episode = recorded[0]["episodes"][0]
    assert replay(game, episode) == ""
    assert replay(game, {**episode, "reset": ""}).startswith("at reset, reset: got '-= Welcome")
    assert "admissible: got [" in replay(game, {**episode, "admissible": []})


def test_a_missing_game_fails_its_episodes_with_the_reason(
    traces_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(traces_file), "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "0 passed, 480 failed"
    assert ": no game at " in lines[0]


@pytest.mark.parametrize("line", ["not json", "{}", '{"game": "g", "episodes": [{"reset": ""}]}'])
def test_misuse_exits_with_2(
    line: str, traces_file: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(line + "\n")
    for arguments in (
        ["--data", str(data)],
        [str(tmp_path / "none.jsonl"), "--data", str(data)],
        [str(traces_file), "--data", str(tmp_path / "none")],
        [str(traces_file)],
        [str(damaged), "--data", str(data)],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "damaged.jsonl, line 1" in capsys.readouterr().err
