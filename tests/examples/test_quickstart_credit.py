"""The quickstart runs with every estimator that needs no model of its own, by changing one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

from agentrl.config import load_config
from agentrl.core.errors import ConfigError
from agentrl.preflight import check_training
from agentrl.registry import make, names
from agentrl.store.sqlite import SqliteStore
from agentrl.train import train
from agentrl.viewer.explain import explain
from agentrl.viewer.explain_choice import instructive_group, run_estimator

ROOT = Path(__file__).resolve().parents[2]
TERMS = "combined, options: {terms: [{name: grpo}, {name: hgpo, weight: 0.5}]}"
# The same run in a second: few short episodes, small panels.
SMALL = (
    "threads=1",
    "env.options.tasks_per_split={train: 16, validation: 4, test: 4}",
    "env.options.max_steps=4",
    "agent.max_steps=4",
    "stages.0.iterations=2",
    "stages.0.tasks_per_iteration=2",
    "stages.0.group_size=3",
    "stages.0.updates_per_iteration=1",
    "learner.warmup_updates=0",
    "evaluation={tasks: 1, validation_tasks: 1, every: 0, greedy: false}",
)
NEEDS = {
    name: tuple(getattr(make("credit", name), "needs", ()))
    for name in names("credit")
    if name != "combined"
}
ALONE = [name for name, needs in NEEDS.items() if not needs]


def quickstart_with(credit: str, tmp_path: Path) -> Path:
    """The quickstart's run file with its one line about credit changed."""
    text = (ROOT / "examples" / "quickstart.yaml").read_text(encoding="utf-8")
    changed, lines = re.subn(r"^( *credit: ).*$", rf"\1{{name: {credit}}}", text, flags=re.M)
    assert lines == 1
    path = tmp_path / "quickstart.yaml"
    path.write_text(changed, encoding="utf-8")
    return path


@pytest.mark.parametrize("credit", [*ALONE, TERMS], ids=[*ALONE, "combined"])
def test_one_changed_line_is_enough(credit: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    run_dir = tmp_path / "run"
    config = load_config(quickstart_with(credit, tmp_path), [f"run_dir={run_dir}", *SMALL])
    train(config, console=Console(quiet=True))
    with SqliteStore(run_dir, read_only=True) as store:
        recorded = store.events("credit")
        assert [one.data["groups"] for one in recorded] == [2, 2]
        assert all("without_signal_share" in one.data for one in recorded)
        assert len(store.updates()) == 2
        group, _ = instructive_group(store)
        used = run_estimator(run_dir, group)
        found = explain(store, group, estimator=used.estimator, name=used.name)
    assert found.agrees is True, found.check
    assert found.rules


@pytest.mark.parametrize("credit", [name for name in NEEDS if name not in ALONE])
def test_what_needs_more_says_what_before_the_run_starts(credit: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    config = load_config(quickstart_with(credit, tmp_path), [f"run_dir={run_dir}", *SMALL])
    with pytest.raises(ConfigError) as caught:
        train(config, console=Console(quiet=True))
    text = str(caught.value)
    assert f"stages.0: credit '{credit}' needs {', '.join(NEEDS[credit])} on the steps" in text
    if credit == "bipace":
        assert "set stages.0.annotators: [{name: hidden_states}]" in text
    else:
        assert "no installed annotator gives it" in text
    assert not run_dir.exists()


def test_a_sum_needs_what_its_terms_need(tmp_path: Path) -> None:
    terms = "combined, options: {terms: [{name: gigpo}, {name: spa}, {name: bipace}]}"
    small = [f"run_dir={tmp_path / 'run'}", *SMALL]
    with pytest.raises(ConfigError, match=r"credit 'combined' needs progress, hidden on the"):
        check_training(load_config(quickstart_with(terms, tmp_path), small))
    small.append("stages.0.annotators=[{name: hidden_states}]")
    with pytest.raises(ConfigError, match=r"credit 'combined' needs progress on the"):
        check_training(load_config(quickstart_with(terms, tmp_path), small))


def test_a_sum_without_terms_is_refused(tmp_path: Path) -> None:
    path = quickstart_with("combined", tmp_path)
    with pytest.raises(ConfigError, match="credit 'combined' needs the option 'terms'"):
        check_training(load_config(path, [f"run_dir={tmp_path / 'run'}", *SMALL]))


@pytest.mark.parametrize("credit", ALONE)
def test_with_the_name_alone_changed_an_option_in_the_way_is_named(
    credit: str, tmp_path: Path
) -> None:
    """The quickstart's penalty stays in the file: most estimators know it, the others say so."""
    changes = [f"run_dir={tmp_path / 'run'}", f"stages.0.credit.name={credit}", *SMALL]
    config = load_config(ROOT / "examples" / "quickstart.yaml", changes)
    if credit in ("loop", "r3l", "treerl"):
        words = f"credit '{credit}' has no option 'invalid_action_penalty'. Accepted: "
        with pytest.raises(ConfigError, match=re.escape(words)):
            check_training(config)
        changes.append("stages.0.credit.options={}")
        config = load_config(ROOT / "examples" / "quickstart.yaml", changes)
    check_training(config)
