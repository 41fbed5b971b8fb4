from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

import agentrl.credit
from agentrl.credit.diagnostics import diagnose
from agentrl.registry import make, names
from agentrl.testing.episodes import episode, group
from agentrl.testing.golden import golden_files

ROOT = Path(__file__).resolve().parents[2]
PAGE_PATH = ROOT / "docs" / "explanation" / "credit.md"
PAGE = PAGE_PATH.read_text(encoding="utf-8")
ONE_BY_ONE = (PAGE_PATH.parent / "credit-estimators.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "scripts"
SOURCES = {"run", "run (its losses)", "read", "described", "proposed", "ours"}
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_runs(number: int, tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES[number], encoding="utf-8")
    runpy.run_path(str(file), run_name="example")


def test_run_file_examples_name_known_estimators() -> None:
    listed = set(re.findall(r"\| ``(\w+)`` \| ``\w+\.py``", agentrl.credit.__doc__ or ""))
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        credit = yaml.safe_load(text)["credit"]
        names = [credit["name"], *(t["name"] for t in credit["options"].get("terms", ()))]
        assert set(names) <= listed


def test_every_estimator_is_explained() -> None:
    listed = re.findall(r"\| ``(\w+)`` \| ``(\w+)\.py``", agentrl.credit.__doc__ or "")
    assert len(listed) >= 19
    for name, file in listed:
        assert f"`{name}`" in PAGE, name
        assert (ROOT / "agentrl" / "credit" / f"{file}.py").is_file()


def test_the_number_of_reference_cases_is_true() -> None:
    count = len(golden_files([ROOT / "tests" / "golden" / "credit"]))
    assert f"values of {count} reference cases" in PAGE


def test_the_tables_and_the_explanation_are_what_the_library_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = runpy.run_path(str(SCRIPTS / "compare_credit.py"), run_name="script")
    made = script["blocks"]()
    assert made.keys() == {"sizes", "agreement", "trajectory", "explain"}
    assert script["filled"](PAGE) == PAGE, "run scripts/compare_credit.py --write"
    assert "gives what is stored" in made["explain"]


def test_the_pictures_are_what_the_library_gives() -> None:
    script = runpy.run_path(str(SCRIPTS / "draw_credit.py"), run_name="script")
    for name, text in script["pictures"]().items():
        committed = (script["FOLDER"] / name).read_text(encoding="utf-8")
        assert committed == text, f"run scripts/draw_credit.py: {name} is out of date"


@pytest.mark.parametrize("name", names("credit"))
def test_every_estimator_has_an_equation_a_picture_and_a_row(name: str) -> None:
    (section,) = re.findall(rf"^### {name}\n(.*?)(?=^##|\Z)", ONE_BY_ONE, re.DOTALL | re.MULTILINE)
    assert re.search(r"^    .*(=|N\()", section, flags=re.MULTILINE), "no equation"
    if name != "combined":  # a sum of others has no groups of its own
        assert re.search(rf"!\[{name}: .+\]\(\.\./assets/credit/{name}\.svg\)", section)
        assert (ROOT / "docs" / "assets" / "credit" / f"{name}.svg").is_file()
    (row,) = [line for line in PAGE.splitlines() if re.match(rf"\|[^|]*`{name}`[^|]*\|", line)][:1]
    cells = [one.strip() for one in row.strip("|").split("|")]
    assert len(cells) == 6
    assert all(cells)
    assert cells[-1] in SOURCES


def test_every_diagnostic_is_explained() -> None:
    estimator = make("credit", "gigpo", {})
    groups = [group("g", episode("a", ("s", 1.0)), episode("b", ("s", 0.0)))]
    section = PAGE.split("## Diagnostics")[1].split("\n## ")[0]
    named = set(re.findall(r"`([\w*]+)`", section))
    shown = {re.sub("^(PART|PARTITION)_", "", one) for one in named}
    listed = {"without_signal_share", "zero_advantage_share", "valid_action_share", "groups_equal"}
    for metric in diagnose(groups, estimator.assign(groups)):
        general = re.sub("^(episode|step|anchor)_", "", metric)
        if general.startswith(("group_size", "size_2", "size_5")) or general in {
            *("groups", "trajectories", "steps"),
        }:
            continue  # said by their names
        assert shown & {metric, general, f"_{general}"}, metric
    assert listed <= named


def test_the_group_of_the_pictures_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the text says of the pictures, by the numbers."""
    script = runpy.run_path(str(SCRIPTS / "draw_credit.py"), run_name="script")
    shown = {name: (one, played) for name, one, played in script["pictured"]()}
    gigpo, played = shown["gigpo"]
    steps = gigpo.assign([played]).parts["step"]
    assert steps[0][0] > 0.0 > steps[2][0] == steps[3][0]  # the kitchen before the cellar
    assert gigpo.assign([played]).step_advantages[1][3] == pytest.approx(0.0)
    hgpo, played = shown["hgpo"]
    assert not any(x for row in hgpo.assign([played]).parts["level_3"] for x in row)
    bipace, played = shown["bipace"]
    groups, parts = bipace.assign([played]).groups["cluster"], bipace.assign([played]).parts["step"]
    assert groups[0][1] == groups[0][2] == groups[1][3]  # kitchen and pantry are one
    assert parts[1][1] == parts[2][3] < 0.0 < parts[0][1] == parts[1][2]
    treerl, played = shown["treerl"]
    assert [row[0] for row in treerl.assign([played]).parts["segment"]] == [0.0] * 4
