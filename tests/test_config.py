"""A run file is read whole or refused in words that say which key and what would be right."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from agentrl.config import LOSS_SETTINGS, load_config
from agentrl.core.errors import ConfigError
from agentrl.testing.tiny_runs import tiny_run

MINIMAL: dict[str, Any] = {"model": {"path": "some/model"}, "env": {"name": "toy"}}


def run_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(source: Any, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return str(caught.value)


def stages(*given: dict[str, Any]) -> dict[str, Any]:
    return {**MINIMAL, "stages": list(given)}


def test_a_file_and_a_mapping_read_the_same(tmp_path: Path) -> None:
    path = run_file(tmp_path, "model: {path: some/model}\nenv: {name: toy}\nstages: [{kind: rl}]\n")
    assert load_config(path) == load_config(stages({"kind": "rl"}))


def test_the_resolved_configuration_reads_back_to_itself() -> None:
    config = load_config(stages({"kind": "clone"}, {"kind": "rl", "learner": {"loss": "cispo"}}))
    assert load_config(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))) == config


def test_sections_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_config(MINIMAL).seed = 3  # type: ignore[misc]


def test_overrides_are_yaml_values_at_dotted_places() -> None:
    config = load_config(
        stages({"kind": "rl"}),
        [
            "sampling.temperature=0.7",
            "env.options={max_rooms: 3}",
            "env.options.max_steps=12",
            "stages.0.iterations=5",
            "learner.learning_rate=3e-4",
            "evaluation.early_stop_success=null",
            "run_dir=runs/a=b",
        ],
    )
    assert config.sampling.temperature == 0.7
    assert config.env.options == {"max_rooms": 3, "max_steps": 12}
    assert config.stages[0].model_dump()["iterations"] == 5
    assert config.learner.learning_rate == 3e-4
    assert config.run_dir == Path("runs/a=b")


def test_the_callers_mapping_is_not_changed() -> None:
    source = stages({"kind": "rl"})
    before = copy.deepcopy(source)
    load_config(source, ["env.name=alfworld", "stages.0.iterations=5"])
    assert source == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "override 'seed' must look like a.b=value"),
        ("=3", "override '=3' must look like a.b=value"),
        ("seed=[", "the value of override 'seed=[' is not valid YAML"),
        ("stages.1.iterations=5", "'1' must be a number below 1 (a list item)"),
        ("stages.-1.iterations=5", "'-1' must be a number below 1"),
        ("stages.rl.iterations=5", "'rl' must be a number below 1"),
        ("rollot.retries=1", "unknown key 'rollot'; did you mean 'rollout'? Known here: agent,"),
        ("seed.x=1", "seed: Input should be a valid integer"),
    ],
)
def test_a_wrong_override_is_explained(override: str, message: str) -> None:
    assert message in refusal(stages({"kind": "rl"}), override)


def test_an_override_below_a_plain_list_item_is_explained() -> None:
    assert "override 'stages.0.x=1': '0' is 'rl', with no keys" in refusal(
        {**MINIMAL, "stages": ["rl"]}, "stages.0.x=1"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {**MINIMAL, "env": {"name": "toy", "optoins": {}}},
            "unknown key 'env.optoins'; did you mean 'options'? "
            "Known here: name, options, test_split, train_split, validation_split, workers.",
        ),
        (
            {**MINIMAL, "agent": {"memory": {"name": "window", "option": {}}}},
            "unknown key 'agent.memory.option'; did you mean 'options'? Known here: name, options.",
        ),
        (
            {**MINIMAL, "model": {"create": {"hiden_size": 64}}},
            "unknown key 'model.create.hiden_size'; did you mean 'hidden_size'?",
        ),
        (
            stages({"kind": "rl", "group_sise": 4}),
            "unknown key 'stages.0.group_sise'; did you mean 'group_size'?",
        ),
        (
            stages({"kind": "clone"}, {"kind": "rl", "learner": {"lerning_rate": 1}}),
            "unknown key 'stages.1.learner.lerning_rate'; did you mean 'learning_rate'?",
        ),
        (
            stages({"kind": "rl", "credit": {"name": "grpo", "opts": {}}}),
            "unknown key 'stages.0.credit.opts'; did you mean 'options'? Known here: name, options",
        ),
        ({**MINIMAL, "zzz": 1}, "unknown key 'zzz'. Known here: agent, checkpoints, "),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(source: dict[str, Any], message: str) -> None:
    assert message in refusal(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"env": {"name": "toy"}}, "missing key 'model'"),
        ({**MINIMAL, "seed": "many"}, "seed: Input should be a valid integer"),
        ({**MINIMAL, "sampling": {"temperature": 0}}, "temperature: Input should be greater than"),
        ({**MINIMAL, "sampling": {"temperature": float("nan")}}, "should be a finite number"),
        ({**MINIMAL, "learner": {"learning_rate": float("inf")}}, "should be a finite number"),
        ({**MINIMAL, "model": {}}, "give exactly one of path"),
        ({**MINIMAL, "model": {"path": "x", "create": {}}}, "give exactly one of path"),
        (stages({"kind": "ppo"}), "'ppo' found using 'kind' does not match"),
        (
            stages({"kind": "rl", "learner": {"loss": "x"}}),
            "stages.0.learner.loss: Input should be",
        ),
        (
            {**MINIMAL, "learner": {"loss": "cispo", "epsilon_low": 0.2}},
            "learner: Value error, loss=cispo has no epsilon_low (it reads epsilon_high), so "
            "epsilon_low=0.2 would change nothing: remove it (null in a stage), or choose a loss "
            "that reads it (dapo, gspo_token, cpgd, decoupled)",
        ),
        (
            stages({"kind": "rl", "learner": {"loss": "dapo", "tau": 1.0}}),
            "stages.0.learner: Value error, loss=dapo has no tau",
        ),
        (
            {**MINIMAL, "learner": {"loss": "no_ratio", "epsilon_high": 0.2}},
            "loss=no_ratio has no epsilon_high (it reads tau)",
        ),
        (
            {**MINIMAL, "learner": {"distillation": {"clip": 1.0}}},
            "kind=gated has no clip, got 1: remove it",
        ),
        (
            {**MINIMAL, "rollout": {"straggler_timeout_s": 5}},
            "rollout: Value error, straggler_timeout_s abandons what comes after a quorum",
        ),
        (
            {**MINIMAL, "rollout": {"stall_timeout_s": 600}},
            "stall_timeout_s=600 must exceed the longest deadline, 600 s",
        ),
        ({**MINIMAL, "store": {"synchronous": "off"}}, "store.synchronous: Input should be"),
        (
            stages({"kind": "rl", "tasks_per_iteration": 2, "updates_per_iteration": 3}),
            "updates_per_iteration=3 exceeds tasks_per_iteration=2: a group is never split",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place(source: dict[str, Any], message: str) -> None:
    assert message in refusal(source)


def test_every_fault_of_a_file_is_told_at_once() -> None:
    told = refusal({**MINIMAL, "sed": 1, "threads": -1})
    assert "unknown key 'sed'; did you mean 'seed'?" in told
    assert "threads: Input should be greater than or equal to 0; got -1" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping of keys, got NoneType"),
        ("- a\n- b\n", "must be a mapping of keys, got list"),
        ("a: [1\n", "is not valid YAML"),
        ("env: {name: toy}\nseed: 1\nseed: 2\n", "the key 'seed' appears twice"),
        ("env: {name: toy, name: alfworld}\n", "the key 'name' appears twice"),
        ("env: {name: !!python/name:os.system x}\n", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_run_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = run_file(tmp_path, text)
    told = refusal(path)
    assert message in told
    assert str(path) in told


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    assert "no run file at" in refusal(tmp_path / "none.yaml")
    assert "cannot read run file" in refusal(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read run file" in refusal(tmp_path / "binary.yaml")


def test_a_long_wrong_value_is_shown_short() -> None:
    assert len(refusal({**MINIMAL, "seed": "x" * 10_000})) < 300


def test_a_loss_has_its_published_settings_unless_given_others() -> None:
    for loss, settings in LOSS_SETTINGS.items():
        learner = load_config({**MINIMAL, "learner": {"loss": loss}}).learner
        assert {name: learner.of_loss(name) for name in settings} == settings
        with pytest.raises(KeyError):
            learner.of_loss("learning_rate")
    given = load_config({**MINIMAL, "learner": {"loss": "loop", "epsilon_high": 0.3}}).learner
    assert given.of_loss("epsilon_high") == 0.3


def test_a_stage_may_choose_another_loss_than_the_run() -> None:
    source = {**MINIMAL, "learner": {"epsilon_low": 0.1, "epsilon_high": 0.3}}
    stage = {"kind": "rl", "learner": {"loss": "loop"}}
    assert "loss=loop has no epsilon_low" in refusal({**source, "stages": [stage]})
    stage = {"kind": "rl", "learner": {"loss": "loop", "epsilon_low": None}}
    assert load_config({**source, "stages": [stage]}).stages


def test_what_is_wrong_in_stages_is_said_with_the_rest(tmp_path: Path) -> None:
    stages = (
        "stages=[{kind: clone, learner: {warmup: 3}}, "
        "{kind: rl, learner: {learning_rate: -1, los: dapo}}]"
    )
    with pytest.raises(ConfigError) as caught:
        tiny_run(tmp_path / "run", ["learner.loss=dap", "env.nam=toy", stages])
    said = str(caught.value).splitlines()[1:]
    assert [line.split("; ")[0].split(":")[0].strip() for line in said] == [
        "unknown key 'env.nam'",
        "learner.loss",
        "unknown key 'stages.0.learner.warmup'",
        "stages.1.learner.learning_rate",
        "unknown key 'stages.1.learner.los'",
    ]
    with pytest.raises(ConfigError) as caught:
        tiny_run(tmp_path / "run", [stages])
    assert len(str(caught.value).splitlines()) == 4
