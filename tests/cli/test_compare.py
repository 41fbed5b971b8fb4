"""``agentrl compare``: tables, JSON, a picture, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Agentrl
from tests.comparing.making import make_run

CURVE = [(100, 1_000, 10.0, 0.2), (200, 2_000, 20.0, 0.6)]


def panel(count: int) -> dict[str, list[bool | None]]:
    return {f"t{place}": [place < count] for place in range(10)}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs of one kind, one of them unfinished, and one of another."""
    return [
        make_run(tmp_path / "a1", seed=1, curve=CURVE, after=panel(2)),
        make_run(tmp_path / "a2", seed=2, curve=CURVE, after=panel(3)),
        make_run(tmp_path / "a3", seed=3, curve=CURVE, finished=False),
        make_run(tmp_path / "b1", "learner.loss=cispo", seed=1, curve=CURVE, after=panel(10)),
    ]


def test_tables_say_what_differs(agentrl: Agentrl, runs: list[Path]) -> None:
    ended = agentrl("compare", *runs)
    assert ended.code == 0
    for words in (
        "Validation success by episodes",
        "Validation success by sampled tokens",
        "Validation success by seconds",
        "Final success on the test panel",
        "unfinished",
        "learner.loss=cispo against learner.loss=dapo, sampled: better; +75.0 points",
        "is not finished",
    ):
        assert words in " ".join(ended.out.split()), words


def test_json_has_all_numbers(agentrl: Agentrl, runs: list[Path]) -> None:
    data = agentrl("compare", *runs, "--json").json()
    assert [group["label"] for group in data["groups"]] == [
        "learner.loss=dapo",
        "learner.loss=cispo",
    ]
    assert [run["finished"] for run in data["groups"][0]["runs"]] == [True, True, False]
    assert data["groups"][0]["runs"][0]["success"] == {"sampled": 0.2}
    assert [one["axis"] for one in data["curves"]] == ["episodes", "tokens", "wall_s"]
    first = data["curves"][0]["groups"][0]["estimates"]
    assert (first[-1]["value"], first[-1]["seeds"]) == (pytest.approx(0.6), 3)
    (pair,) = data["pairs"]
    assert pair["over_tasks"]["difference"] == pytest.approx(0.75)
    assert pair["verdict"] == "better"
    assert data["picture"] is None


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_a_picture_is_drawn(
    suffix: str, begins: bytes, agentrl: Agentrl, runs: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / f"curves{suffix}"
    ended = agentrl("compare", *runs, "--picture", path)
    assert ended.code == 0
    assert f"wrote {path}" in ended.out
    assert path.read_bytes().startswith(begins)


def test_a_picture_of_no_format_is_refused(agentrl: Agentrl, runs: list[Path]) -> None:
    ended = agentrl("compare", *runs, "--picture", "curves.txt")
    assert ended.code == 2
    assert "must end with .png, .svg, .pdf" in ended.err


def test_other_panels_exit_with_1(agentrl: Agentrl, runs: list[Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "c", "learner.loss=loop", after={"t0": [True]})
    ended = agentrl("compare", *runs, other)
    assert ended.code == 1
    assert "were tested on different panels" in ended.err


def test_misuse_exits_with_2(agentrl: Agentrl, runs: list[Path]) -> None:
    assert agentrl("compare", runs[0]).code == 2
    assert agentrl("compare").code == 2
    assert agentrl("compare", runs[0], runs[0]).code == 2
