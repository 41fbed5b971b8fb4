"""A whole run: what it writes, what it trains on, what it warns of, and how it ends."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console

from agentrl.config import load_config
from agentrl.core.errors import ConfigError
from agentrl.credit.gigpo import GiGPO
from agentrl.evaluate.report import read_report
from agentrl.learn.rows import batches_from_groups
from agentrl.models.loading import load_model, load_tokenizer, save_policy
from agentrl.models.tiny import tiny_policy
from agentrl.renderers.plain import PlainRenderer
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run, tiny_run_data
from agentrl.train import train

QUIET = Console(quiet=True)
ITERATIONS, TASKS, GROUP = 2, 3, 4
CLONED = ("stages.0.updates=60", "stages.0.episodes_per_update=8", "stages.1.group_size=4")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose policy has learnt enough to succeed now and then."""
    path = tmp_path_factory.mktemp("train") / "run"
    train(tiny_run(path, CLONED), console=QUIET)
    return path


@pytest.fixture(scope="module")
def store(run_dir: Path) -> Iterator[SqliteStore]:
    with SqliteStore(run_dir, read_only=True) as opened:
        yield opened


def test_a_run_ends_with_model_store_report_and_page(run_dir: Path) -> None:
    names = {one.name for one in run_dir.iterdir()}
    assert names >= {"config.yaml", "manifest.json", "store.sqlite", "model", "checkpoints"}
    assert names >= {"report.json", "report.md", "report.html", "curve.png"}
    assert not [name for name in names if name.startswith((".", "stage"))]
    assert load_config(run_dir / "config.yaml") == tiny_run(run_dir, CLONED)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert (manifest["what"], manifest["schema_version"]) == ("a run of agentrl", 1)
    report = read_report(run_dir)
    assert [point.iteration for point in report.curve] == [0, 1]
    assert report.curve[-1].episodes == ITERATIONS * TASKS * GROUP


def test_every_group_is_played_whole_and_once(store: SqliteStore) -> None:
    for iteration in (1, 2):
        groups = list(store.groups(purpose="train", iteration=iteration))
        assert [len(group.trajectories) for group in groups] == [GROUP] * TASKS
        assert len({group.task.id for group in groups}) == TASKS
    assert len(list(store.groups(purpose="train"))) == ITERATIONS * TASKS


def test_panels_before_and_after_are_the_same_tasks_and_seeds(store: SqliteStore) -> None:
    def panel(purpose: str) -> list[tuple[str, int]]:
        played = [one for group in store.groups(purpose=purpose) for one in group.trajectories]
        return sorted((one.task_id, one.seed) for one in played)

    assert panel("before") == panel("after")
    assert len(panel("before")) == 2 * 4  # sampled and greedy
    trained = {group.task.id for group in store.groups(purpose="train")}
    assert not trained & {task for task, _ in panel("before")}


def test_versions_rise_across_stages(store: SqliteStore) -> None:
    def versions(purpose: str, iteration: int | None = None) -> set[int]:
        groups = store.groups(purpose=purpose, iteration=iteration)
        played = [one for group in groups for one in group.trajectories]
        samples = [step.sample for one in played for step in one.steps]
        return {version for sample in samples for _, version in sample.versions}

    assert versions("before") == {1}  # cloning publishes once, at its end
    assert versions("train", 1) == {1}  # an iteration plays what the one before published
    assert versions("train", 2) == versions("validation/stage1/0") == {2}
    assert versions("after") == {3}
    updates = [one.policy_version for one in store.updates()]
    assert updates == sorted(updates)
    assert set(updates[:60]) == {0}
    assert 1 in updates


def test_credit_is_recorded_for_what_was_trained(store: SqliteStore) -> None:
    for iteration in range(1, ITERATIONS + 1):
        groups = list(store.groups(purpose="train", iteration=iteration))
        played = [one for group in groups for one in group.trajectories]
        assert all(store.trajectory(one.id).credit is not None for one in played)
        trained = store.events("update", iteration=iteration)
        tokens = sum(int(one.data["metrics"]["action_tokens"]) for one in trained)
        assert tokens == sum(one.sampled_tokens for one in played)


def test_diagnostics_of_credit_are_recorded_and_reported(run_dir: Path, store: SqliteStore) -> None:
    events = store.events("credit")
    assert [one.iteration for one in events] == list(range(1, ITERATIONS + 1))
    assert all(one.data["groups"] == TASKS for one in events)
    curve = read_report(run_dir).curve
    assert [point.credit for point in curve] == [one.data for one in events]
    assert {"without_signal_share", "group_size_mean", "anchor_size_1_share", "step_share"} <= (
        curve[-1].credit.keys()
    )
    points = store.events("iteration")
    assert [one.data["credit"] for one in points] == [one.data for one in events]


def test_a_run_with_another_objective_reports_every_update_and_warns(tmp_path: Path) -> None:
    overrides = (
        "stages.1.learner={loss: decoupled, schedule: linear}",
        "stages.1.credit.name=loop",
        "stages.1.iterations=1",
        "stages.1.updates_per_iteration=3",
        "stages.1.tasks_per_iteration=6",
    )
    console = Console(file=io.StringIO(), width=400)
    train(tiny_run(tmp_path / "run", (*CLONED, *overrides)), console=console)
    with SqliteStore(tmp_path / "run", read_only=True) as opened:
        metrics = [one.metrics for one in opened.updates()]
        warned = [one.data["text"] for one in opened.events("warning")]
    learnt = metrics[60:]  # those before clone
    assert len(learnt) == 3  # with or without signal
    rates = [one["learning_rate"] / 3e-3 for one in learnt]
    assert rates == pytest.approx([1, 2 / 3, 1 / 3])
    steps = [one for one in learnt if not one["no_signal"]]
    assert steps
    assert all(one["behaviour_weight"] == pytest.approx(1, abs=0.5) for one in steps)
    first = learnt[0]
    assert first["no_signal"] or first["ratio_max"] == pytest.approx(1, abs=1e-5)
    (text,) = [one for one in warned if "was published with" in one]
    assert "Set stages.1.learner.loss=loop" in text


def test_rows_of_a_run_have_a_mask_of_exactly_the_sampled_tokens(store: SqliteStore) -> None:
    groups = list(store.groups(purpose="train"))
    played = [one for group in groups for one in group.trajectories]
    batches = batches_from_groups(
        groups, GiGPO().assign(groups), updates=2, trajectory_weighting="equal"
    )
    rows = [row for batch in batches for row in batch.rows]
    assert sum(sum(row.action_mask) for row in rows) == sum(one.sampled_tokens for one in played)
    assert Counter(row.trajectory_id for row in rows) == Counter(one.id for one in played)
    sampled = {
        one.id: [token for step in one.steps for token in step.sample.token_ids] for one in played
    }
    for row in rows:
        masked = zip(row.token_ids, row.action_mask, strict=True)
        assert [token for token, mask in masked if mask] == sampled[row.trajectory_id]


def test_nothing_is_sampled_or_stepped_after_the_end(run_dir: Path, store: SqliteStore) -> None:
    (stop,) = PlainRenderer(load_tokenizer(run_dir / "model")).stop_token_ids
    for group in store.groups():
        for one in group.trajectories:
            results = [step.result for step in one.steps]
            over = [one is not None and (one.terminated or one.truncated) for one in results]
            assert over == [False] * (len(over) - 1) + [True]
            for step in one.steps:
                assert stop not in step.sample.token_ids[:-1]
                assert len(step.sample.token_ids) <= 4


# Models that emit nothing, rubbish, or never an end


def policy(folder: Path, run: Path, kind: str) -> Path:
    """A model that always ends at once, never ends, or draws every token alike.

    Embeddings are all the first unit vector and the blocks add nothing, so the last hidden state
    is that vector; the output embedding then sets the logits by hand.
    """
    tokenizer = load_tokenizer(run / "model")
    (stop,) = PlainRenderer(tokenizer).stop_token_ids
    model = tiny_policy(tokenizer, hidden_size=16, layers=1, heads=2, context=512)
    model.config.tie_word_embeddings = False
    embedding = model.get_input_embeddings().weight
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(embedding))
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or one is embedding:
                one.zero_()
        embedding[:, 0] = 1.0
        model.lm_head.weight[stop, 0] = {"silent": 10.0, "endless": -10.0, "rubbish": 0.0}[kind]
    save_policy(folder, model, tokenizer)
    assert load_model(folder).config.tie_word_embeddings is False
    return folder


@pytest.mark.parametrize("kind", ["silent", "endless", "rubbish"])
def test_a_model_that_makes_no_sense_does_no_harm(tmp_path: Path, run_dir: Path, kind: str) -> None:
    model = policy(tmp_path / "model", run_dir, kind)
    shown = Console(record=True, width=300, file=io.StringIO())
    config = tiny_run(
        tmp_path / "run",
        [
            "model.create=null",
            f"model.path={model}",
            "stages=[{kind: rl, iterations: 3, tasks_per_iteration: 2, group_size: 2, "
            "credit: {name: grpo, options: {invalid_action_penalty: 0.1}}}]",
            "evaluation={tasks: 2, every: 0, greedy: false}",
        ],
    )
    report = train(config, console=shown)
    assert report.after.sampled.success == 0
    assert report.after.sampled.infra_failures == 0
    with SqliteStore(tmp_path / "run", read_only=True) as store:
        played = [one for group in store.groups(purpose="train") for one in group.trajectories]
        warnings = " ".join(one.data["text"] for one in store.events("warning"))
    answers = Counter(step.parse_status for one in played for step in one.steps)
    lengths = Counter(len(step.sample.token_ids) for one in played for step in one.steps)
    text = shown.export_text()
    if kind == "silent":
        assert set(answers) == {"empty_action"}
        assert set(lengths) == {1}
    if kind == "endless":
        assert set(answers) == {"truncated"}
        assert "answers were cut by sampling.max_tokens=4 before they ended" in text
    # Every episode runs into the environment's limit, and none is better than another.
    assert "12 of 12" not in text
    assert "4 of 4 episodes were cut short (4 by the limit of the environment 'toy' itself)" in text
    assert "3 iterations in a row without any signal" in text
    assert "episodes were cut short" in warnings


class Rewriting(PlainRenderer):
    """A renderer that says of its template what the chat renderer says of some."""

    prefix_breaks = ("the chat template of 'x' drops thinking", "and again elsewhere")
    treatments = ("the chat template of 'x' knows no system message",)


def test_a_template_that_rewrites_history_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    shown = Console(record=True, width=300, file=io.StringIO())
    plugin = "agent.renderer.name=tests.test_train:Rewriting"
    panel = "evaluation={tasks: 1, every: 0, greedy: false}"
    train(tiny_run(tmp_path / "run", [plugin, panel, "stages=[]"]), console=shown)
    text = shown.export_text()
    for one in (*Rewriting.prefix_breaks, *Rewriting.treatments):
        assert text.count(f"warning: {one}") == 1


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    # The environment writes down what it opens and closes, and steps slowly enough to be caught.
    (tmp_path / "slow_toy.py").write_text(
        "import asyncio\n"
        "from pathlib import Path\n"
        "from agentrl.envs.toy import CorridorEnv, ToyFactory\n\n\n"
        "def note(word):\n"
        "    with Path('envs.log').open('a') as file:\n"
        "        file.write(word + '\\n')\n\n\n"
        "class SlowEnv(CorridorEnv):\n"
        "    async def reset(self):\n"
        "        note('open')\n"
        "        return await super().reset()\n\n"
        "    async def step(self, action):\n"
        "        await asyncio.sleep(0.05)\n"
        "        return await super().step(action)\n\n"
        "    async def aclose(self):\n"
        "        await asyncio.sleep(0.05)\n"
        "        note('close')\n"
        "        await super().aclose()\n\n\n"
        "class Slow(ToyFactory):\n"
        "    async def make(self, task, *, seed):\n"
        "        made = await super().make(task, seed=seed)\n"
        "        return SlowEnv(made._start, max_steps=6)\n"
    )
    data = tiny_run_data(Path("run"))
    data["env"] = {"name": "slow_toy:Slow", "options": {"max_rooms": 3, "max_steps": 6}}
    data["stages"] = [{"kind": "rl", "iterations": 500}]
    data["evaluation"] = {"tasks": 4, "every": 0, "greedy": False}
    data["rollout"] = {"concurrency": 8}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "agentrl.cli", "train", "run.yaml"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = tmp_path / "envs.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("close") >= 6):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors + output
    assert "stopped" in errors
    assert "agentrl train --resume run" in errors + output
    noted = Counter(log.read_text().split())
    assert noted["open"] == noted["close"] > 0
    with SqliteStore(tmp_path / "run") as store:
        store.verify()
        assert store.count() >= 6


# The run directory


def test_a_directory_that_holds_anything_is_left_as_it_is(tmp_path: Path, run_dir: Path) -> None:
    before = {one: one.stat().st_mtime_ns for one in run_dir.rglob("*")}
    with pytest.raises(ConfigError, match=r"already holds a run.*agentrl train --resume"):
        train(tiny_run(run_dir), console=QUIET)
    assert {one: one.stat().st_mtime_ns for one in run_dir.rglob("*")} == before
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConfigError, match="nothing was overwritten"):
        train(tiny_run(tmp_path / "file"), console=QUIET)
    assert (tmp_path / "file").read_text() == "precious"


def test_what_fails_while_loading_leaves_no_directory(tmp_path: Path) -> None:
    # Only the loaded model says how long its context is.
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no weights"):
        train(
            tiny_run(tmp_path / "run", ["model.create=null", f"model.path={folder}"]),
            console=QUIET,
        )
    assert not (tmp_path / "run").exists()


def test_each_iteration_says_where_its_time_went_and_how_busy_the_engine_was(
    store: SqliteStore,
) -> None:
    rollouts = [event.data for event in store.events("rollout")]
    assert len(rollouts) == ITERATIONS
    for one in rollouts:
        assert one["sample_s"] > 0 <= one["tool_s"] <= one["env_s"]
        assert 0 < one["engine_utilisation"] <= 1 <= one["engine_mean_batch"]
        assert one["tokens_per_s"] == pytest.approx(one["sampled_tokens"] / one["play_s"])
