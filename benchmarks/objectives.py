"""What an update costs under each objective, relative to dapo, on a tiny model and this machine.

    python benchmarks/objectives.py [--json] [--rounds N] [--rows N] [--hidden-size N]

Objectives take turns, round by round, so that a busy machine slows all of them alike; the numbers
are medians of CPU seconds. ``decoupled`` clips against log-probabilities made beforehand, which
costs a forward pass of its own (``score``) in every update of an iteration but the first.
The last line of ``--json`` holds seconds and ratios by objective.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from agentrl.config import LearnerConfig
from agentrl.core.trajectory import Batch, Row
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.contracts.learner import random_rows
from agentrl.testing.gradients import sampled_by
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 512
OBJECTIVES: dict[str, dict[str, Any]] = {
    "dapo": {},
    "cispo": {"loss": "cispo"},
    "loop": {"loss": "loop"},
    "no_ratio": {"loss": "no_ratio"},
    "gspo_token": {"loss": "gspo_token"},
    "cpgd": {"loss": "cpgd"},
    "decoupled": {"loss": "decoupled"},
    "dapo, kl": {"kl_coefficient": 0.01},
    "decoupled, kl": {"loss": "decoupled", "kl_coefficient": 0.01},
    "dapo, gated distillation": {"distillation": {"kind": "gated"}},
}


def learner(settings: dict[str, Any], hidden_size: int) -> TrlLearner:
    """A learner of its own tiny model."""
    model = tiny_model(vocab_size=VOCABULARY, hidden_size=hidden_size, layers=3)
    config = LearnerConfig.model_validate({"learning_rate": 1e-5, "micro_batch_tokens": 2048})
    config = LearnerConfig.model_validate(config.model_dump() | settings)
    return TrlLearner(model, None, config, temperature=1.0)


def rows(count: int, hidden_size: int) -> tuple[Row, ...]:
    """Rows of several answers each, with a proximal policy and a teacher."""
    drawn = random_rows(random.Random(0), count=count, vocabulary_size=VOCABULARY, longest=160)
    sampled = sampled_by(learner({}, hidden_size), drawn)
    return tuple(
        replace(
            row,
            proximal_logprobs=row.behaviour_logprobs,
            teacher_logprobs=tuple(
                one if is_action else None
                for one, is_action in zip(
                    row.behaviour_logprobs or (), row.action_mask, strict=True
                )
            ),
        )
        for row in sampled
    )


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(rounds: int, count: int, hidden_size: int) -> dict[str, float]:
    """Median CPU seconds of an update by objective, and of scoring the same rows."""
    batch = Batch(rows(count, hidden_size))
    learners = {name: learner(one, hidden_size) for name, one in OBJECTIVES.items()}
    work: dict[str, Callable[[], object]] = {
        name: lambda one=one: one.fit(iter([batch]), on_update=lambda stats: None)  # type: ignore[misc]
        for name, one in learners.items()
    }
    work["score"] = lambda: learners["dapo"].score(batch.rows, actions_only=True)
    work["score, all tokens"] = lambda: learners["dapo"].score(batch.rows)
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, run in work.items():
            spent = cpu_seconds(run)
            if number:  # the first round warms up
                times[name].append(spent)
    return {name: median(one) for name, one in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--hidden-size", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seconds = measure(given.rounds, given.rows, given.hidden_size)
    ratios = {name: one / seconds["dapo"] for name, one in seconds.items()}
    if given.json:
        print(json.dumps({"cpu_s": seconds, "ratio": ratios}))
        return
    for name, one in seconds.items():
        print(f"{name:26} {1000 * one:8.1f} ms  {ratios[name]:5.2f} x dapo")


if __name__ == "__main__":
    main()
