"""``agentrl serve``: players come over HTTP, and the run learns from what they play."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.envs.blackbox import Episode
from agentrl.envs.blackbox.endpoint import free_port
from tests.envs.blackbox.conftest import Told, ask, post, user

RUN = {
    "model": {"create": {"hidden_size": 16, "layers": 1, "vocab_size": 300, "context_tokens": 96}},
    "threads": 1,
    "agent": {
        "renderer": {"name": "plain"},
        "action_format": "chat",
        "max_steps": 3,
        "max_tokens": 96,
    },
    "engine": {"options": {"context_tokens": 96}},
    "sampling": {"max_tokens": 6},
    "stages": [
        {"kind": "rl", "iterations": 2, "tasks_per_iteration": 2, "group_size": 2},
    ],
    "evaluation": {"tasks": 3, "every": 0, "greedy": False},
}


def run_file(folder: Path, **options: object) -> Path:
    problems = [{"number": number} for number in range(40)]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, problems)))
    env = {"name": "blackbox", "options": {"tasks": str(folder / "problems.jsonl"), **options}}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**RUN, "run_dir": str(folder / "run"), "env": env}))
    return path


@pytest.fixture
def expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Never played: its words make the tiny model's tokenizer."""
    (tmp_path / "serve_expert.py").write_text(
        "from agentrl.core.message import Message\n"
        "from agentrl.core.protocols import Demonstration\n"
        "from agentrl.core.trajectory import Observation\n"
        "from agentrl.envs.blackbox import BlackBoxFactory\n"
        "SHOWN = Observation((Message('user', 'which number ?'),))\n"
        "class Factory(BlackBoxFactory):\n"
        "    def demonstrate(self, task, *, seed, noise):\n"
        "        yield Demonstration(SHOWN, Message('assistant', 'seven'), True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "serve_expert:Factory"


def play_until_none_waits(address: str, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            claimed = post(f"{address}/episodes", {})
        except (Told, OSError):  # the run has not begun, or waits for its learner, or has ended
            stop.wait(0.05)
            continue
        episode = Episode(claimed["problem"], claimed["base_url"], claimed["key"], 0)
        try:
            said = ask(episode, [user(str(episode.problem["number"]))])
            result = {"reward": float(len(said["content"])), "success": True}
            post(f"{address}/episodes/{claimed['key']}/result", result)
        except (Told, OSError):
            continue


def test_a_run_learns_from_players_elsewhere(tmp_path: Path, expert: str) -> None:
    port, stop = free_port("127.0.0.1"), threading.Event()
    address = f"http://127.0.0.1:{port}"
    players = [
        threading.Thread(target=play_until_none_waits, args=(address, stop)) for _ in range(3)
    ]
    for one in players:
        one.start()
    try:
        path = run_file(tmp_path)
        arguments = ["serve", str(path), f"env.name={expert}", "--port", str(port), "--json"]
        result = CliRunner().invoke(app, arguments)
    finally:
        stop.set()
        for one in players:
            one.join(60)
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert f"serving episodes at {address}/episodes" in result.stderr
    report = json.loads(result.stdout)
    assert report["after"]["tasks"] == 3
    assert report["curve"][-1]["episodes"] == 8


@pytest.mark.parametrize("options", [{"command": ["true"]}, {"agent": "os:getcwd"}])
def test_what_plays_itself_is_not_served(tmp_path: Path, options: dict[str, object]) -> None:
    result = CliRunner().invoke(app, ["serve", str(run_file(tmp_path, **options))])
    assert result.exit_code == 2
    assert "plays its episodes itself, so there is nothing to serve" in result.stderr
