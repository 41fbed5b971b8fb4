"""CPU time of the credit estimators, beside published code and a plain transcription.

Groups of 8 episodes of 5 to 25 steps, 20 states of about 110 characters a group, one text object
and 16 sampled tokens per step. Measured is ``assign(groups)``, the reading of the records included,
in process CPU seconds: the least of several calls (what else runs on the machine only adds), each
on records made anew, so that no call finds hashes or caches warmed by another. ``growth`` is the
time at N steps over the mean time of the ten tenths of the same records: both sizes are then read
from memory, and not the small one from the processor's cache.

Beside it: the CPU seconds that public reference code took for the same setting on arrays (recorded
on another machine, so an order of magnitude), and a plain transcription of the formula in Python
over the same records, timed in the same run and compared number by number.

    python benchmarks/credit.py [--steps 100000] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.core.trajectory import CreditResult, Group, Trajectory
from agentrl.credit import GRPO, HGPO, LOOP, RLOO, GiGPO, REINFORCEPlusPlus, TreeRL
from agentrl.testing.episodes import act, episode, group

DISCOUNT = 0.95
Advantages = dict[str, list[float]]
ESTIMATORS: dict[str, Callable[[Sequence[Group]], CreditResult]] = {
    "grpo": GRPO().assign,
    "rloo": RLOO().assign,
    "loop": LOOP().assign,
    "reinforce_plus_plus": REINFORCEPlusPlus().assign,
    "gigpo": GiGPO(discount=DISCOUNT).assign,
    "gigpo_mean_std": GiGPO(normaliser="mean_std", invalid_action_penalty=0.1).assign,
    "hgpo_k2": HGPO(history_length=2, discount=DISCOUNT).assign,
    "treerl": TreeRL().assign,
}
# CPU seconds of one thread, by number of steps.
REFERENCE_CPU_S: dict[str, dict[int, float]] = {
    "grpo": {1_000: 0.015, 5_000: 0.079, 10_000: 0.155, 20_000: 0.322, 100_000: 1.508},
    "rloo": {1_000: 0.023, 5_000: 0.189, 10_000: 0.252, 20_000: 0.470, 100_000: 2.419},
    "gigpo": {1_000: 0.068, 5_000: 0.670, 10_000: 1.991, 20_000: 7.311, 100_000: 176.5},
    "hgpo_k2": {1_000: 0.142, 5_000: 0.671, 10_000: 1.513, 20_000: 2.914, 100_000: 14.3},
}
TARGETS_CPU_S = {"grpo": 0.1, "gigpo": 0.5, "hgpo_k2": 0.5}  # at 100,000 steps
LARGEST_GROWTH = 12.0


def batch(steps: int, seed: int = 0) -> list[Group]:
    """Random groups with at least ``steps`` steps together; the last episode reaches the number."""
    rng = random.Random(seed)
    groups: list[Group] = []
    count = 0
    while count < steps:
        name = f"g{len(groups)}"
        episodes = []
        for number in range(8):
            length = 5 + rng.randrange(21)
            count += length
            won = float(rng.random() < 0.4)
            played = [
                # the text is made for this step alone, as an environment would
                act(
                    f"{name} state {rng.randrange(20):02} " + "room " * 20,
                    won if k == length - 1 else 0.0,
                    valid=rng.random() < 0.9,
                    tokens=16,
                )
                for k in range(length)
            ]
            episodes.append(episode(f"e{number}", *played, fork=True))
        groups.append(group(name, *episodes))
    return groups


def by_trajectory(groups: Sequence[Group], result: CreditResult) -> Advantages:
    """Advantages by trajectory id."""
    ids = [one.id for each in groups for one in each.trajectories]
    return {
        name: list(values or ()) for name, values in zip(ids, result.step_advantages, strict=True)
    }


def centred(scores: Sequence[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    return [one - mean for one in scores]


def plain_grpo(groups: Sequence[Group]) -> Advantages:
    """``(E - mean) / (std + 1e-6)``, on every step of the episode."""
    found: Advantages = {}
    for each in groups:
        scores = [sum(step.reward or 0.0 for step in one.steps) for one in each.trajectories]
        spread = statistics.stdev(scores)
        for one, value in zip(each.trajectories, centred(scores), strict=True):
            found[one.id] = [value / (spread + 1e-6)] * len(one.steps)
    return found


def plain_rloo(groups: Sequence[Group]) -> Advantages:
    """``E`` minus the mean of the others."""
    found: Advantages = {}
    for each in groups:
        scores = [sum(step.reward or 0.0 for step in one.steps) for one in each.trajectories]
        for one, score in zip(each.trajectories, scores, strict=True):
            others = (sum(scores) - score) / (len(scores) - 1)
            found[one.id] = [score - others] * len(one.steps)
    return found


def plain_returns(one: Trajectory) -> list[float]:
    """``G_t = r_t + discount * G_{t+1}``."""
    running, found = 0.0, []
    for step in reversed(one.steps):
        running = (step.reward or 0.0) + DISCOUNT * running
        found.append(running)
    return found[::-1]


def plain_levels(each: Group, deepest: int) -> list[dict[tuple[str, int], float]]:
    """Per context length the centred returns of the steps that share it with another."""
    levels = []
    returns = {one.id: plain_returns(one) for one in each.trajectories}
    for k in range(1, deepest + 1):
        clusters: defaultdict[Any, list[tuple[str, int]]] = defaultdict(list)
        for one in each.trajectories:
            states = [step.anchor for step in one.steps]
            for t in range(k - 1, len(states)):
                clusters[tuple(states[t - k + 1 : t + 1])].append((one.id, t))
        level: dict[tuple[str, int], float] = {}
        for members in clusters.values():
            if len(members) > 1:
                values = centred([returns[name][t] for name, t in members])
                level.update(zip(members, values, strict=True))
        levels.append(level)
    return levels


def plain_gigpo(groups: Sequence[Group]) -> Advantages:
    """``E - mean(E)`` plus ``G - mean(G)`` among the steps of one state."""
    found: Advantages = {}
    for each in groups:
        scores = [sum(step.reward or 0.0 for step in one.steps) for one in each.trajectories]
        (level,) = plain_levels(each, 1)
        for one, value in zip(each.trajectories, centred(scores), strict=True):
            found[one.id] = [value + level.get((one.id, t), 0.0) for t in range(len(one.steps))]
    return found


def plain_hgpo(groups: Sequence[Group]) -> Advantages:
    """The mean over contexts of 0 to 3 states, weighted by their length plus 1."""
    found: Advantages = {}
    for each in groups:
        scores = [sum(step.reward or 0.0 for step in one.steps) for one in each.trajectories]
        levels = plain_levels(each, 3)
        for one, value in zip(each.trajectories, centred(scores), strict=True):
            row = []
            for t in range(len(one.steps)):
                items = [(1, value)]
                items += [
                    (k, level[one.id, t])
                    for k, level in enumerate(levels, start=2)
                    if (one.id, t) in level
                ]
                row.append(sum(w * a for w, a in items) / sum(w for w, _ in items))
            found[one.id] = row
    return found


PLAIN: dict[str, Callable[[Sequence[Group]], Advantages]] = {
    "grpo": plain_grpo,
    "rloo": plain_rloo,
    "gigpo": plain_gigpo,
    "hgpo_k2": plain_hgpo,
}


def cpu_seconds(work: Callable[[list[Group]], Any], groups: list[Group]) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    work(groups)
    return time.process_time() - started


def times(work: Callable[[list[Group]], Any], steps: int, repeats: int) -> tuple[float, float]:
    """Least CPU seconds at ``steps`` and at a tenth of them, on records made anew each time."""
    whole, tenth = [], []
    for repeat in range(repeats):
        groups = batch(steps, seed=repeat)
        gc.collect()
        whole.append(cpu_seconds(work, groups))
        groups = batch(steps, seed=repeats + repeat)
        gc.collect()
        parts = [groups[k * len(groups) // 10 : (k + 1) * len(groups) // 10] for k in range(10)]
        tenth.append(statistics.mean(cpu_seconds(work, one) for one in parts))
    return min(whole), min(tenth)


def largest_difference(name: str, groups: Sequence[Group]) -> float:
    """Between an estimator and its plain transcription, over all steps."""
    ours, plain = by_trajectory(groups, ESTIMATORS[name](groups)), PLAIN[name](groups)
    return max(
        abs(a - b) for one, row in plain.items() for a, b in zip(row, ours[one], strict=True)
    )


def measure(steps: int, repeats: int) -> dict[str, Any]:
    """All numbers of the report, and whether the targets are met."""
    found = {name: times(one, steps, repeats) for name, one in ESTIMATORS.items()}
    cpu_s = {name: whole for name, (whole, _) in found.items()}
    growth = {name: whole / max(tenth, 1e-9) for name, (whole, tenth) in found.items()}
    exact = batch(min(steps, 10_000))
    difference = {name: largest_difference(name, exact) for name in PLAIN}
    limits = {name: limit * steps / 100_000 for name, limit in TARGETS_CPU_S.items()}
    missed = [name for name, limit in limits.items() if cpu_s[name] > limit]
    missed += [f"growth of {name}" for name in limits if growth[name] > LARGEST_GROWTH]
    missed += [f"{name} is not its formula" for name, one in difference.items() if one > 1e-9]
    return {
        "steps": sum(len(one.steps) for each in batch(steps) for one in each.trajectories),
        "cpu_s": cpu_s,
        "cpu_s_at_a_tenth": {name: tenth for name, (_, tenth) in found.items()},
        "growth": growth,
        "plain_cpu_s": {name: cpu_seconds(one, batch(steps)) for name, one in PLAIN.items()},
        "reference_cpu_s": {name: one.get(steps) for name, one in REFERENCE_CPU_S.items()},
        "largest_difference_from_plain": difference,
        "target_cpu_s": limits,
        "missed": missed,
    }


def main() -> int:
    """Print a table, or one line of JSON last; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5, help="calls per time (default 5)")
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    found = measure(arguments.steps, arguments.repeats)
    print(f"{found['steps']:,} steps; CPU seconds, growth from a tenth of them")
    print(f"{'':20}{'ours':>9}{'growth':>8}{'plain':>9}{'reference':>11}")
    for name, ours in found["cpu_s"].items():
        plain, reference = found["plain_cpu_s"].get(name), found["reference_cpu_s"].get(name)
        print(
            f"{name:20}{ours:9.4f}{found['growth'][name]:7.1f}x"
            f"{'' if plain is None else f'{plain:.3f}':>9}"
            f"{'' if reference is None else f'{reference:.3f}':>11}"
        )
    for one in found["missed"]:
        print(f"missed: {one}")
    if arguments.json:
        print(json.dumps(found))
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
