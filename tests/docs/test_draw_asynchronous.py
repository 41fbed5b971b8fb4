"""The picture of what the benchmark of asynchronous runs measured says what it was given."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def one_run(seed: int, staleness: int, wall_s: float, success: float) -> dict[str, Any]:
    validation = [[wall_s / 2, 0.5], [wall_s, success]]
    return {
        "seed": seed,
        "staleness": staleness,
        "wall_s": wall_s,
        "after": success,
        "validation": validation,
    }


def test_it_draws_every_run_and_the_means(tmp_path: Path) -> None:
    runs = [
        one_run(seed, staleness, wall_s, 0.9)
        for seed in (0, 1)
        for staleness, wall_s in ((0, 200.0 + 10 * seed), (1, 100.0), (2, 80.0))
    ]
    source, target = tmp_path / "measured.txt", tmp_path / "picture.svg"
    source.write_text(f"seed 0\n{json.dumps({'runs': runs})}\n", encoding="utf-8")
    script = runpy.run_path(str(ROOT / "scripts" / "draw_asynchronous.py"))
    assert script["main"]([str(source), str(target)]) == 0
    root = ElementTree.parse(target).getroot()
    names = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert names.count("polyline") == len(runs)
    words = [one.text for one in root.iter() if one.text and one.text.strip()]
    assert "205 s (1.00)" in words
    assert "100 s (0.49)" in words
    assert "80 s (0.39)" in words
    assert words.count("success 90.0%") == 3
    assert {"synchronous", "staleness 1", "staleness 2"} <= set(words)
