"""``agentrl credit explain``: for people and for machines, with its exit codes."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Agentrl


def test_it_says_who_was_compared_and_where_the_advantage_came_from(
    agentrl: Agentrl, run_dir: Path
) -> None:
    shown = agentrl("credit", "explain", run_dir, "--group", "mixed")
    assert shown.code == 0
    for words in (
        "group mixed",
        "none: infra failure at step: EnvError: the world is gone",
        "compared by anchor  2 steps were compared with one another in 1 clusters, 2 with nothing",
        "anchor 0  hall",
        "trial 1 step 0  go attic",
        "step 1  dance  reward 0, invalid  advantage -1.000",
        "the parts sum to +0.500; the rest has no name",
    ):
        assert words in shown.out, words


def test_a_machine_gets_one_document(agentrl: Agentrl, run_dir: Path) -> None:
    found = agentrl("credit", "explain", run_dir, "--json").json()
    assert found["group"] == "mixed"
    assert "newest with signal" in found["chosen"]
    assert found["agrees"] is None
    assert [one["takes_part"] for one in found["members"]] == [True, True, False]
    step = found["members"][0]["steps"][0]
    assert (step["advantage"], step["parts"][0]["name"]) == (0.75, "episode")
    assert found["partitions"][0]["clusters"][0]["members"][1]["action"] == "go attic"


def test_exit_codes(agentrl: Agentrl, run_dir: Path, tmp_path: Path) -> None:
    assert agentrl("credit", "explain", run_dir, "--group", "mix").code == 0
    unknown = agentrl("credit", "explain", run_dir, "--group", "mixt")
    assert (unknown.code, "did you mean 'mixed'?" in unknown.err) == (2, True)
    no_credit = agentrl("credit", "explain", run_dir, "--group", "late")
    assert (no_credit.code, "has no credit" in no_credit.err) == (1, True)
    nowhere = agentrl("credit", "explain", tmp_path / "nowhere")
    assert (nowhere.code, "no store at" in nowhere.err) == (1, True)
