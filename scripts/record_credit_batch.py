"""Writes the recorded batch that docs/explanation/credit.md compares estimators on.

    agentrl rollout examples/quickstart.yaml run_dir=runs/batch --tasks 12 --group-size 8
    python scripts/record_credit_batch.py runs/batch

Kept is what an estimator without a model of its own reads: states, actions, rewards, whether an
action was valid and how many tokens were sampled. ``groups_of`` makes groups of it again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.core.trajectory import Group, Step
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import act, episode, group

FILE = Path(__file__).resolve().parents[1] / "docs" / "assets" / "credit-batch.json"


def recorded(run_dir: Path) -> dict[str, Any]:
    """The groups of a run as plain data; a state is a position in ``states``."""
    states: dict[Any, int] = {}
    groups: dict[str, dict[str, Any]] = {}
    with SqliteStore(run_dir, read_only=True) as store:
        for line in sorted(store.find(), key=lambda line: (line.group_id, line.trial)):
            stored = store.trajectory(line.id)
            instruction = stored.task.payload["game"]["instruction"]
            one = groups.setdefault(line.group_id, {"task": instruction, "episodes": []})
            steps = [_step(step, states) for step in stored.trajectory.steps]
            one["episodes"].append(steps)
    return {"states": list(states), "groups": list(groups.values())}


def _step(step: Step, states: dict[Any, int]) -> list[Any]:
    assert step.result is not None
    state = states.setdefault(step.anchor, len(states))
    valid = int(step.result.action_valid)
    return [state, step.action.content, step.result.reward, valid, len(step.sample.token_ids)]


def groups_of(data: Mapping[str, Any]) -> list[Group]:
    """The recorded groups as credit reads them."""
    states = data["states"]
    return [
        group(
            f"{number}",
            *(
                episode(
                    str(trial),
                    *(
                        act(states[state], reward, action, valid=bool(valid), tokens=tokens)
                        for state, action, reward, valid, tokens in steps
                    ),
                )
                for trial, steps in enumerate(one["episodes"])
            ),
        )
        for number, one in enumerate(data["groups"])
    ]


def main() -> None:
    """Record the run named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    data = recorded(parser.parse_args().run)
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in data["groups"])
    states = json.dumps(data["states"], indent=0)
    FILE.write_text(f'{{"states": {states},\n"groups": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
