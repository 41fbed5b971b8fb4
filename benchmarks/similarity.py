"""Grouping similar observations: ours beside the plain loop of difflib, in one run.

    python benchmarks/similarity.py [--observations N] [--json]

32 groups of observations of 400 characters, each group with 20 texts of which every observation is
a copy with up to six letters changed. Threshold 0.95, autojunk off, CPU seconds. The partitions
must be equal.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from difflib import SequenceMatcher

from agentrl.credit.functional import similarity_partition

GROUPS, CLUSTERS, LENGTH, THRESHOLD = 32, 20, 400, 0.95
LETTERS = "abcdefghijklmnopqrstuvwxyz     "


def observations(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Texts and the group of each."""
    rng = random.Random(seed)
    roots = [
        ["".join(rng.choices(LETTERS, k=LENGTH)) for _ in range(CLUSTERS)] for _ in range(GROUPS)
    ]
    texts, owners = [], []
    for row in range(count):
        letters = list(rng.choice(roots[row % GROUPS]))
        for _ in range(rng.randint(0, 6)):
            letters[rng.randrange(LENGTH)] = rng.choice(LETTERS)
        texts.append("".join(letters))
        owners.append(row % GROUPS)
    return texts, owners


def plain(texts: list[str], owners: list[int]) -> list[int]:
    """The definition: difflib on every pair of a row and a cluster's first member."""
    clusters: dict[int, list[tuple[int, str]]] = {}
    labels, opened = [], 0
    for text, owner in zip(texts, owners, strict=True):
        mine = clusters.setdefault(owner, [])
        for label, first in mine:
            if SequenceMatcher(None, text, first, autojunk=False).ratio() >= THRESHOLD:
                labels.append(label)
                break
        else:
            mine.append((opened, text))
            labels.append(opened)
            opened += 1
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--observations", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    texts, owners = observations(arguments.observations, seed=0)
    started = time.process_time()
    ours = similarity_partition(texts, owners, THRESHOLD).tolist()
    between = time.process_time()
    theirs = plain(texts, owners)
    seconds = (between - started, time.process_time() - between)
    result = {
        "observations": len(texts),
        "clusters": len(set(ours)),
        "equal": ours == theirs,
        "ours_cpu_s": seconds[0],
        "plain_cpu_s": seconds[1],
        "times_as_fast": seconds[1] / seconds[0],
    }
    print(
        f"{len(texts):,} observations in {result['clusters']} clusters: ours {seconds[0]:.2f} s, "
        f"the plain loop {seconds[1]:.1f} s: {result['times_as_fast']:.0f} times as fast; "
        f"the partitions are {'equal' if result['equal'] else 'DIFFERENT'}"
    )
    if arguments.json:
        print(json.dumps(result))
    if not result["equal"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
