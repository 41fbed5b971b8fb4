"""Five credit estimators on one recorded batch, and one group explained: the tables of the docs.

    python scripts/compare_credit.py            prints them
    python scripts/compare_credit.py --write    puts them into docs/explanation/credit.md

The batch (docs/assets/credit-batch.json) was played by the quickstart's untrained model, see
record_credit_batch.py. A test says when the page is out of date.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from record_credit_batch import FILE, groups_of
from rich.console import Console

from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import Group, Trajectory
from agentrl.credit import GRPO, HGPO, RLOO, GiGPO, REINFORCEPlusPlus
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.credit.functional import Array
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.explain import explain
from agentrl.viewer.explain_view import show_explanation
from agentrl.viewer.wording import signed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "credit.md"
ESTIMATORS: Mapping[str, CreditEstimator] = {
    "grpo": GRPO(),
    "rloo": RLOO(),
    "reinforce_plus_plus": REINFORCEPlusPlus(discount=0.95),
    "gigpo": GiGPO(),
    "hgpo": HGPO(),
}
NAME, DISCOUNT = "gigpo", 0.95  # of the group that is explained


def advantages(groups: Sequence[Group]) -> dict[str, Array]:
    """The advantage of every step of the batch, by estimator."""
    return {
        name: np.array([x for row in one.assign(groups).step_advantages for x in row or ()])
        for name, one in ESTIMATORS.items()
    }


def sizes(groups: Sequence[Group]) -> str:
    """How large credit is, where it is and how it differs inside a trajectory."""
    lengths = [len(one.steps) for group in groups for one in group.trajectories]
    won = [bool(one.success) for group in groups for one in group.trajectories]
    of_won = np.repeat(won, lengths)
    rows = []
    for name, found in advantages(groups).items():
        inside = [
            np.ptp(one) > 1e-9 for one in np.split(found, np.cumsum(lengths)[:-1]) if one.any()
        ]
        rows.append(
            [
                f"`{name}`",
                f"{np.abs(found).mean():.3f}",
                _percent((found != 0.0).mean()),
                _percent(float(np.mean(inside))),
                _percent((found[of_won] < -1e-9).mean()),
                _percent((found[~of_won] > 1e-9).mean()),
            ]
        )
    return _table(
        [
            "estimator",
            "mean size",
            "steps with signal",
            "trajectories with different credit inside",
            "steps of successes below 0",
            "steps of failures above 0",
        ],
        rows,
    )


def agreement(groups: Sequence[Group]) -> str:
    """Above the diagonal correlations, below it how often two estimators differ in sign."""
    found = advantages(groups)
    rows = []
    for i, (name, one) in enumerate(found.items()):
        row = [f"`{name}`"]
        for j, other in enumerate(found.values()):
            if i == j:
                row.append("")
            elif i < j:
                row.append(f"{np.corrcoef(one, other)[0, 1]:.2f}")
            else:
                differ = (one * other < 0.0) & (np.minimum(np.abs(one), np.abs(other)) > 1e-9)
                row.append(f"{100 * differ.mean():.1f} %")
        rows.append(row)
    return _table(["", *(f"`{name}`" for name in found)], rows)


def one_trajectory(groups: Sequence[Group]) -> str:
    """The success with the step that HGPO likes least, step by step."""
    results = {name: one.assign(groups).step_advantages for name, one in ESTIMATORS.items()}
    members = [one for group in groups for one in group.trajectories]
    wins = [k for k, one in enumerate(members) if one.success]
    chosen = min(wins, key=lambda k: round(min(results["hgpo"][k] or ()), 9))
    rows = [
        [
            str(step.index),
            str(step.anchor),
            step.action.content,
            *(signed((rows[chosen] or ())[position]) for rows in results.values()),
        ]
        for position, step in enumerate(members[chosen].steps)
    ]
    heads = ["step", "state", "action", *(f"`{name}`" for name in results)]
    return f"Task: {_task(members[chosen])}\n\n{_table(heads, rows)}"


def _task(one: Trajectory) -> str:
    task: str = json.loads(FILE.read_text(encoding="utf-8"))["groups"][int(one.group_id)]["task"]
    return task


def explained() -> str:
    """What ``agentrl credit explain`` prints of the toy group of the pictures."""
    from draw_credit import toy

    played, estimator = toy(), GiGPO(discount=DISCOUNT)
    with tempfile.TemporaryDirectory() as folder:
        with SqliteStore(Path(folder)) as store:
            for one in played.trajectories:
                store.append(one, task=played.task, iteration=1, purpose="train")
            result = estimator.assign([played])
            store.add_credit([played], with_diagnostics([played], result))
        with SqliteStore(Path(folder), read_only=True) as store:
            options = {"discount": DISCOUNT}
            found = explain(store, played.id, estimator=estimator, name=NAME, options=options)
    console = Console(width=110, record=True, file=io.StringIO())
    show_explanation(found, console)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    shown = lines[: next(k for k, line in enumerate(lines) if line.startswith("trial 2  "))]
    return "\n".join(["```text", "$ agentrl credit explain RUN --group toy", *shown, "...", "```"])


def blocks() -> dict[str, str]:
    """The made parts of the page by name."""
    groups = groups_of(json.loads(FILE.read_text(encoding="utf-8")))
    return {
        "sizes": sizes(groups),
        "agreement": agreement(groups),
        "trajectory": one_trajectory(groups),
        "explain": explained(),
    }


def filled(page: str) -> str:
    """The page with its made parts as they should be."""
    for name, text in blocks().items():
        begin, end = f"<!-- made: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{PAGE}: no place for '{name}'; expected {begin} ... {end}")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put them into the page")
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for text in blocks().values():
        print(text, end="\n\n")


if __name__ == "__main__":
    main()
