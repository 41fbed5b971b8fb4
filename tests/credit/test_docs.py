from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

import agentrl.credit
from agentrl.testing.golden import golden_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "credit.md").read_text(encoding="utf-8")
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
