from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl.core.trajectory import Group
from agentrl.credit import HGPO, GiGPO
from agentrl.testing.episodes import act, episode, group
from agentrl.testing.golden import check_file, main

COPIES = sorted((Path(__file__).parent / "credit").glob("*.json"))


@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)
def test_reference_values_come_out(path: Path) -> None:
    assert check_file(path) == []


def test_the_command_passes_on_the_shared_files(shared: Path) -> None:
    names = {path.name for path in COPIES}
    files = [str(path) for path in sorted((shared / "golden" / "credit").iterdir())]
    chosen = [path for path in files if Path(path).name in names]
    assert len(chosen) == len(names), "a copied file has no original"
    done = subprocess.run(
        [sys.executable, "-m", "agentrl.testing.golden", *chosen],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == f"{len(names)} passed, 0 failed"
    assert done.returncode == 0, done.stderr


def as_groups(inputs: dict[str, Any]) -> tuple[list[Group], list[tuple[str, int]]]:
    """The rows of a case as groups of trajectories, and where each row went."""
    steps: dict[tuple[str, str], list[Any]] = {}
    places = []
    for row, key in enumerate(zip(inputs["group"], inputs["traj"], strict=True)):
        played = steps.setdefault(key, [])
        places.append((f"{key[0]}/{key[1]}", len(played)))
        played.append(
            act(
                inputs["anchor_obs"][row],
                inputs["env_step_reward"][row],
                valid=inputs["is_action_valid"][row],
            )
        )
    names = list(dict.fromkeys(g for g, _ in steps))
    groups = [
        group(name, *(episode(t, *played) for (g, t), played in steps.items() if g == name))
        for name in names
    ]
    return groups, places


# Not the drawn batches, nor rows given twice, which no record of play can hold.
RECORDED = [
    path
    for path in COPIES
    if path.stem.startswith(("gigpo", "hgpo"))
    and not any(word in path.stem for word in ("large", "long_text", "duplicated"))
]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_records_of_play_lead_to_the_same_values(path: Path) -> None:
    case = json.loads(path.read_text())
    inputs, config = case["inputs"], case["config"]
    common: dict[str, Any] = {
        "discount": config["gamma"],
        "normaliser": config["mode"].removesuffix("_norm"),
        "invalid_action_penalty": config.get("invalid_action_penalty_coef", 0.0),
        "reference": True,
    }
    estimator: GiGPO | HGPO
    if case["algo"] == "gigpo":
        similar = config["similarity_thresh"] if config["enable_similarity"] else None
        estimator = GiGPO(**common, step_weight=config["step_advantage_w"], similarity=similar)
        expected = [row[0] for row in case["expected"]["advantages"]]
    else:
        estimator = HGPO(
            **common,
            history_length=config["history_length"],
            alpha=config["length_weight_alpha"],
            base_group=config["base_group"],
        )
        expected = case["expected"]["row_advantage"]
    groups, places = as_groups(inputs)
    found = dict(
        zip(
            [one.id for each in groups for one in each.trajectories],
            estimator.assign(groups).step_advantages,
            strict=True,
        )
    )
    got = [(found[trajectory] or ())[step] for trajectory, step in places]
    np.testing.assert_allclose(got, expected, **case["tolerance"])


def write(path: Path, **changes: Any) -> Path:
    """A small gigpo case with changes at ``section__key``."""
    source = Path(__file__).parent / "credit" / "gigpo_basic_mean_norm.json"
    case = json.loads(source.read_text())
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            case[section][key] = value
        else:
            case[section] = value
    path.write_text(json.dumps(case))
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algo": "gigpoo"}, "unknown family 'gigpoo'; did you mean 'gigpo'?"),
        ({"expected__novelty": 1.0}, "expected key 'novelty' is not computed"),
        ({"expected__n_step_groups": 3}, "n_step_groups: got"),
        ({"expected__episode_adv": [1.0] * 13}, "episode_adv[0]: got"),
        ({"expected__episode_adv": [1.0]}, "episode_adv: got length 13, expected 1"),
        ({"expected__step_group_id": [0.5] * 13}, "step_group_id[0]"),
        ({"config__new_option": True}, "config 'new_option' is not used"),
        ({"inputs__new_input": []}, "input 'new_input' is not used"),
        ({"inputs__env_step_reward": None}, "failed"),
        ({"inputs__episode_reward": [1.0] * 13}, "not the sum"),
        ({"expected": {}}, "missing expected values"),
        ({"tolerance": {"atol": 0.0}}, "cannot read it"),
    ],
)
def test_a_wrong_case_fails_in_words(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "case.json", **changes)
    assert any(words in line for line in check_file(path)), check_file(path)


def test_digests_are_compared_in_every_number(tmp_path: Path) -> None:
    source = Path(__file__).parent / "credit" / "gigpo_large_mean_std_norm.json"
    for key in ("n", "sum", "abs_sum", "sq_sum", "dot_cos", "first16", "last16"):
        case = json.loads(source.read_text())
        digest = case["expected"]["step_returns"]
        digest[key] = [9.0] * 16 if key.endswith("16") else digest[key] + 1000
        path = tmp_path / f"{key}.json"
        path.write_text(json.dumps(case))
        # a larger abs_sum also widens what its neighbours may differ by, so it alone must fail
        assert check_file(path), key


def test_exit_codes_and_closing_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    write(good / "one.json")
    write(bad / "two.json", algo="nobody")
    (bad / "three.json").write_text("{")
    assert main([str(good)]) == 0
    assert capsys.readouterr().out.splitlines() == ["ok   one.json", "1 passed, 0 failed"]
    assert main([str(good / "one.json"), str(bad)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 2 failed"
    assert main([str(tmp_path / "nowhere")]) == 2
    assert main([]) == 2
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
