"""A run that cannot work is refused in one message, before anything is written or loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from agentrl.core.errors import AgentRLError, ConfigError, DataError
from agentrl.core.task import Task
from agentrl.core.trajectory import Group
from agentrl.envs.toy import CorridorEnv, ToyFactory
from agentrl.play import rollout
from agentrl.preflight import check_playing, check_training
from agentrl.testing.tiny_runs import tiny_run, tiny_run_data
from agentrl.train import train

RL = "stages=[{kind: rl, iterations: 1, tasks_per_iteration: 2, group_size: 2}]"


EXISTING = ("model.create=null", "model.path=builtin:alfworld-tiny")
SCRIPTED = ("engine={name: scripted, options: {script: [[1]]}}",)


class NoExpert:
    """The toy environment without its expert."""

    def __init__(self) -> None:
        self._inside = ToyFactory(max_rooms=3, max_steps=6)

    @property
    def splits(self) -> Sequence[str]:
        return self._inside.splits

    def tasks(self, split: str) -> Sequence[Task]:
        return self._inside.tasks(split)

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        return await self._inside.make(task, seed=seed)


class Closing(ToyFactory):
    """Says when it is closed."""

    def __init__(self, log: str) -> None:
        super().__init__(max_rooms=3, max_steps=6)
        self._log = Path(log)

    async def aclose(self) -> None:
        self._log.write_text("closed")


class Fixed:
    """An engine that has no weights to follow."""

    def __init__(self, model: object = None) -> None:
        """Take what every engine is given."""


def refusal(run_dir: Path, *overrides: str) -> str:
    config = tiny_run(run_dir, overrides)
    with pytest.raises(AgentRLError) as caught:
        train(config, console=Console(quiet=True))
    assert not run_dir.exists()
    return str(caught.value)


def test_a_sound_run_is_accepted(tmp_path: Path) -> None:
    assert check_training(tiny_run(tmp_path / "run")).splits == ("train", "validation", "test")


@pytest.mark.parametrize("credit", ["grpo", "gigpo", "rloo", "loop", "hgpo"])
def test_credit_that_compares_needs_something_to_compare(tmp_path: Path, credit: str) -> None:
    text = refusal(tmp_path / "run", "stages.1.group_size=1", f"stages.1.credit.name={credit}")
    assert f"stages.1.group_size=1: credit '{credit}' compares the episodes of a group" in text


def test_credit_that_compares_across_groups_may_have_groups_of_one(tmp_path: Path) -> None:
    check_training(
        tiny_run(
            tmp_path / "run",
            ["stages.1.group_size=1", "stages.1.credit.name=reinforce_plus_plus"],
        )
    )


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["agent.max_tokens=4"], "agent.max_tokens=4 (prompt and answer of one step) leaves no"),
        (["agent.max_tokens=1024"], "more than the new model can see (model.create.context_tokens"),
        (["sampling.top_p=0.9"], "sampling.top_p=0.9 and sampling.top_k=0 cut the distribution"),
        (["sampling.top_k=20"], "learns from the whole of it"),
        (["engine.name=scripted"], "the engine 'scripted' does not sample from the model"),
        (["engine.name=tests.test_preflight:Fixed"], "does not sample from the model"),
        (["env.options.action_format=tagged"], "another form of action than agent.action_format"),
        (["evaluation.early_stop_success=0.9", "evaluation.every=0"], "needs validations"),
        (["learner.schedule=linear", "learner.warmup_updates=2"], "stages.0: learner.warmup_upd"),
        (["learner.distillation={}"], "stages.1.learner.distillation draws towards a teacher's"),
        (["rollout.tokens_in_flight=255"], "less than one step may need (agent.max_tokens=256)"),
        (["rollout.episode_timeout_s=600"], "makes a failure of what agent.max_seconds=600 would"),
        (["rollout.quorum=4"], "rollout.quorum=4 is more than stages.1.group_size=3"),
        (
            ["learner.distillation={}", "stages.1.annotators=[{name: hidden_states}]"],
            "no annotator of the stage gives them (step_teacher_logprobs or episode_teacher",
        ),
        (["deterministic=true", "threads=2"], "deterministic needs one thread, got threads=2"),
        (["deterministic=true", "model.device=cuda"], "deterministic holds on a CPU only"),
        (["deterministic=true", "engine.options.deterministic=false"], "remove one"),
        (["evaluation.tasks=5"], "split 'test' of environment 'toy' has 4 tasks, and 5 are wanted"),
        (["evaluation.validation_tasks=99"], "split 'validation' of environment 'toy' has"),
        (["env.train_split=trian"], "has no split 'trian'; did you mean 'train'? It has: train"),
        (["env.name=tyo"], "unknown env 'tyo'; did you mean 'toy'?"),
        (["env.options.max_room=3"], "has no option 'max_room'; did you mean 'max_rooms'?"),
        (["engine.name=hff"], "unknown engine 'hff'; did you mean 'hf'?"),
        (["agent.renderer.name=plane"], "unknown renderer 'plane'; did you mean 'plain'?"),
        (["agent.tool_dialect=hermse"], "unknown dialect 'hermse'; did you mean 'hermes'?"),
        (["agent.memory.name=windw"], "unknown memory 'windw'; did you mean 'window'?"),
        (["stages.1.credit.name=gigp"], "unknown credit 'gigp'; did you mean 'gigpo'?"),
        (["stages.1.credit={name: gigpo, options: {discont: 1}}"], "has no option 'discont'"),
        (["model.create=null", "model.path=no/such/folder"], "no model folder at"),
        (["model.create=null", "model.path=builtin:nothing"], "unknown built-in model"),
    ],
)
def test_what_cannot_work_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], words: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    assert words in refusal(tmp_path / "run", *overrides)


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    text = refusal(tmp_path / "run", "agent.max_tokens=4", "sampling.top_k=20")
    assert text.startswith("this run cannot work:\n- agent.max_tokens=4")
    assert text.count("\n- ") == 2


def test_faults_of_every_kind_are_said_together_and_once(tmp_path: Path) -> None:
    taken = tmp_path / "run"
    taken.mkdir()
    (taken / "thesis.txt").touch()
    config = tiny_run(
        taken,
        [
            *("agent.max_tokens=4", "env.test_split=tset", "engine.name=hff"),
            *("agent.renderer.name=plane", "agent.memory={name: window, options: {stepz: 2}}"),
            *("stages.1.credit.name=gigp", "stages.1.strategies=[{name: adaptiv}]"),
            *("trackers=[{name: tensorbord}]", "evaluation.validation_tasks=99"),
            "learner.distillation={}",
        ],
    )
    with pytest.raises(ConfigError) as caught:
        train(config, console=Console(quiet=True))
    text = str(caught.value)
    heading, *said = text.split("\n- ")
    assert heading == "this run cannot work:"
    for words in (
        "already holds files that are not a run's",
        "agent.max_tokens=4 (prompt and answer",
        "did you mean 'test'?",
        "did you mean 'hf'?",
        "did you mean 'plain'?",
        "has no option 'stepz'",
        "did you mean 'gigpo'?",
        "did you mean 'adaptive'?",
        "did you mean 'tensorboard'?",
        "and 99 are wanted",
        "draws towards a teacher's log-probabilities",
    ):
        assert sum(words in one for one in said) == 1, (words, text)
    assert len(said) == 11


def test_a_factory_that_was_made_is_closed_if_the_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    plugin = "env={name: 'tests.test_preflight:Closing', options: {log: '%s'}}" % (tmp_path / "log")
    assert "leaves no room" in refusal(tmp_path / "run", plugin, "agent.max_tokens=4")
    assert (tmp_path / "log").read_text() == "closed"


def test_a_place_that_cannot_hold_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f"cannot write run_dir '{tmp_path}/file/run': '{tmp_path}/file' is a file"
    with pytest.raises(ConfigError, match=re.escape(text)):
        check_training(tiny_run(tmp_path / "file" / "run"), new=True)
    check_training(tiny_run(tmp_path / "new" / "run"), new=True)
    assert not (tmp_path / "new").exists()


def test_a_deterministic_run_takes_the_cpu_by_itself(tmp_path: Path) -> None:
    check_training(tiny_run(tmp_path / "run", ["deterministic=true", "model.device=auto"]))


def test_cloning_needs_an_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    plugin = ("env={name: 'tests.test_preflight:NoExpert'}",)
    assert "(clone) needs an expert" in refusal(tmp_path / "run", *plugin)
    assert "trains a tokenizer on an expert's episodes" in refusal(tmp_path / "run", *plugin, RL)
    check_training(tiny_run(tmp_path / "run", [*plugin, RL, *EXISTING]))


def test_a_narrowed_distribution_is_fine_for_playing(tmp_path: Path) -> None:
    check_playing(tiny_run(tmp_path / "run", ["sampling.top_p=0.9", *SCRIPTED]))
    with pytest.raises(ConfigError, match="leaves no room"):
        check_playing(tiny_run(tmp_path / "run", ["agent.max_tokens=4"]))
    with pytest.raises(ConfigError, match="no split 'tset'; did you mean 'test'"):
        rollout(
            tiny_run(tmp_path / "run"),
            split="tset",
            tasks=1,
            group_size=1,
            console=Console(quiet=True),
        )
    assert not (tmp_path / "run").exists()


def alfworld(source: Path) -> tuple[str, ...]:
    return (
        f"env={{name: alfworld, options: {{source: '{source}', action_format: bare}},"
        " validation_split: valid_seen, test_split: valid_unseen}",
    )


def test_missing_and_damaged_games_are_named(tmp_path: Path) -> None:
    data = tmp_path / "games"
    assert "it does not exist" in refusal(tmp_path / "run", *alfworld(data))
    data.mkdir()
    (data / "notes.txt").touch()
    assert "it holds notes.txt; expected 'json_2.1.1'" in refusal(tmp_path / "run", *alfworld(data))
    for split in ("train", "valid_seen", "valid_unseen"):
        (data / split).mkdir()
    assert f"no games in {data / 'train'}" in refusal(tmp_path / "run", *alfworld(data))
    game = data / "train" / "look_at_obj_in_light-Mug-None-DeskLamp-1" / "trial" / "game.tw-pddl"
    game.parent.mkdir(parents=True)
    game.write_bytes(b'{"pddl_problem": "(define (prob')
    assert str(game) in refusal(tmp_path / "run", *alfworld(data))


@pytest.mark.parametrize(
    ("overrides", "code", "words"),
    [
        ((), 2, "already holds files that are not a run's; nothing was overwritten"),
        (("run_dri=x",), 2, "unknown key 'run_dri'; did you mean 'run_dir'?"),
        (("run_dir=other", "sampling.top_k=5"), 2, "this run cannot work"),
        (
            ("run_dir=other", "env={name: alfworld, options: {source: nowhere}}"),
            1,
            "it does not exist",
        ),
    ],
)
def test_the_command_line_refuses_at_once_without_loading_torch(
    tmp_path: Path, overrides: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("precious")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_run_data(Path("taken"))))
    program = (
        "import sys\nfrom agentrl.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    arguments = [sys.executable, "-c", program, "train", "run.yaml", *overrides]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.yaml", "taken"]
    assert (tmp_path / "taken" / "thesis.txt").read_text() == "precious"


class SameTasksEverywhere(NoExpert):
    """Trains on what it is tested on: its splits differ in name only."""

    def tasks(self, split: str) -> Sequence[Task]:
        return super().tasks("train")


def test_a_test_panel_that_holds_training_tasks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    plugin = "env={name: 'tests.test_preflight:SameTasksEverywhere'}"
    config = tiny_run(tmp_path / "run", (plugin, RL, *EXISTING))
    with pytest.raises(DataError, match="what is trained on measures nothing") as caught:
        check_training(config)
    for split in ("validation", "test"):
        assert f"split '{split}' are also in 'train'" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_credit_that_needs_annotations_is_refused_without_an_annotator(tmp_path: Path) -> None:
    stage = RL.replace("group_size: 2", "group_size: 2, credit: {name: bipace}")
    with pytest.raises(ConfigError, match=r"hidden.*annotators"):
        check_training(tiny_run(tmp_path / "run", (stage,)))
    given = "{name: bipace}, annotators: [{name: hidden_states}]"
    annotated = stage.replace("{name: bipace}", given)
    check_training(tiny_run(tmp_path / "run", (annotated,)))
    wrong = annotated.replace("hidden_states", "hiden_states")
    with pytest.raises(ConfigError, match="unknown annotator 'hiden_states'; did you mean"):
        check_training(tiny_run(tmp_path / "run", (wrong,)))
    optioned = annotated.replace("{name: hidden_states}", "{name: hidden_states, options: {x: 1}}")
    with pytest.raises(ConfigError, match="annotator 'hidden_states' has no option 'x'"):
        check_training(tiny_run(tmp_path / "run", (optioned,)))


class Giver:
    """An annotator that does not say what it gives."""

    def __init__(self, learner: object) -> None:
        """Take what every annotator is given."""

    def annotate(self, groups: Sequence[Group]) -> Sequence[Group]:
        return groups


class Judge(Giver):
    """An annotator that says what it gives."""

    gives = ("votes",)


def test_an_annotator_counts_for_what_it_says_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])

    def stage(credit: str, annotator: str) -> str:
        annotators = f"[{{name: 'tests.test_preflight:{annotator}'}}]"
        more = f"group_size: 2, credit: {{name: {credit}}}, annotators: {annotators}"
        return RL.replace("group_size: 2", more)

    check_training(tiny_run(tmp_path / "run", (stage("rlanything", "Judge"),)))
    check_training(tiny_run(tmp_path / "run", (stage("spa", "Giver"),)))
    with pytest.raises(ConfigError, match=r"needs progress on the steps.*no annotator of"):
        check_training(tiny_run(tmp_path / "run", (stage("spa", "Judge"),)))


def test_strategies_that_do_not_fit_the_stage_are_refused(tmp_path: Path) -> None:
    def told(strategies: str) -> str:
        return refusal(tmp_path / "run", f"stages.1.strategies={strategies}")

    first = told("[{name: adaptive, options: {first: 3}}]")
    assert "stages.1.strategies: strategy 'adaptive': first=3 must be below" in first
    assert "'adaptive' has no option 'frist'" in told("[{name: adaptive, options: {frist: 2}}]")
    assert "unknown strategy 'adaptiv'; did you mean 'adaptive'" in told("[{name: adaptiv}]")
    assert "names replay twice" in _invalid("[{name: replay}, {name: replay}]")
    graded = "[{name: difficulty, options: {highest: 3, key: %s}}]"
    assert "no whole number under 'room' in its payload; did you mean 'rooms'" in told(
        graded % "room"
    )
    both = refusal(
        tmp_path / "run", "stages.1.strategies=[{name: replay}]", "rollout.max_staleness=2"
    )
    assert "stages.1.strategies (replay) are asked by synchronous rollouts only" in both
    empty = "[{name: difficulty, options: {lowest: 7, highest: 9, key: rooms}}]"
    assert "none of the 24 tasks of 'train' is admitted" in told(empty)


def _invalid(strategies: str) -> str:
    with pytest.raises(ConfigError) as caught:
        tiny_run(Path("unused"), [f"stages.1.strategies={strategies}"])
    return str(caught.value)
