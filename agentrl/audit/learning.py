"""What updates learnt from: only sampled tokens, of stored episodes, each of them once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.audit.findings import Finding, judged, unchecked
from agentrl.audit.record import RunRecord
from agentrl.audit.rows import (
    StoredRow,
    differences,
    sample_faults,
    stored_rows,
    version_faults,
)
from agentrl.audit.splits import role_of
from agentrl.config import LearnerConfig
from agentrl.core.strategy import is_replay, original_id
from agentrl.store.trained import TrainedBatch, TrainedRow

__all__ = ["Walk", "check_learning", "check_samples", "walk"]

SAMPLES = "ids, log-probabilities and versions of every sample are of one length"
SAMPLED = "no trained token was unsampled"
STORED = "every trained trajectory is stored, was played for training and took part in credit"
ONCE = "no trajectory is trained on twice"
COUNTS = "every trajectory of an update counts as its weighting says, in one optimiser step"
WHY_NOT = (
    "the store does not say what its updates learnt from: a release that did not record it made "
    "this run"
)
EQUAL = 1e-6


@dataclass(slots=True)
class Walk:
    """One pass over the tokens of all episodes.

    Attributes:
        episodes: Attempts that were read, failed ones too. samples: their steps that sampled.
        tokens: Sampled in them.
        faulty: What is wrong with samples. versions: versions that go back.
        differing: Rows of updates that the stored tokens do not make.
        misdated: Rows whose oldest version the learner was told wrongly.
        repeated: Trajectories more than once in one update.
        trained: Action tokens of all rows that were compared.
    """

    episodes: int = 0
    samples: int = 0
    tokens: int = 0
    trained: int = 0
    rows: int = 0
    faulty: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    misdated: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


def walk(record: RunRecord) -> Walk:
    """Read the tokens of every episode once, and hold what was learnt from against them."""
    uses: dict[str, list[tuple[TrainedBatch, str, list[TrainedRow]]]] = defaultdict(list)
    for batch in record.trained:
        for name, rows in _by_trajectory(batch).items():
            uses[original_id(name)].append((batch, name, rows))
    found = Walk()
    for id in record.lines:
        steps = record.store.token_steps(id)
        found.episodes += 1
        found.samples += sum(bool(step.token_ids) for step in steps)
        found.tokens += sum(len(step.token_ids) for step in steps)
        found.faulty += [f"trajectory '{id}', {fault}" for fault in sample_faults(steps)]
        found.versions += [f"trajectory '{id}': {fault}" for fault in version_faults(steps)]
        stored = stored_rows(steps) if id in uses else ()
        for batch, name, rows in uses.get(id, ()):
            _compare(found, batch, name, rows, stored)
    return found


def _compare(
    found: Walk,
    batch: TrainedBatch,
    name: str,
    rows: Sequence[TrainedRow],
    stored: Sequence[StoredRow],
) -> None:
    where = f"update {batch.id}, trajectory '{name}'"
    found.rows += len(rows)
    found.trained += sum(row.action_tokens for row in rows)
    found.differing += [f"{where}: {one}" for one in differences(rows, stored)]
    ages = {one.digest: one.policy_version for one in stored}
    known = sum(row.digest in ages for row in rows)
    if known > len(stored):
        found.repeated.append(f"{where} has {known} rows in it, and its tokens make {len(stored)}")
    for row in rows:
        if row.policy_version != ages.get(row.digest, row.policy_version):
            found.misdated.append(
                f"{where}: the learner was told that version {row.policy_version} was the oldest, "
                f"and it was version {ages[row.digest]}"
            )


def _by_trajectory(batch: TrainedBatch) -> dict[str, list[TrainedRow]]:
    rows: dict[str, list[TrainedRow]] = defaultdict(list)
    for row in batch.rows:
        rows[row.trajectory_id].append(row)
    return rows


def check_samples(found: Walk) -> Finding:
    """Of every attempt on record, also those that a fault ended or a resumed run went on with."""
    counts = {"attempts": found.episodes, "samples": found.samples, "tokens": found.tokens}
    words = (
        f"{found.samples:,} samples of {found.tokens:,} tokens in {found.episodes:,} attempts, "
        f"failed ones included; {len(found.faulty):,} do not fit"
    )
    return judged("samples", SAMPLES, words, found.faulty, counts)


def check_learning(record: RunRecord, found: Walk) -> Iterator[Finding]:
    """``sampled``, ``stored``, ``once``, ``counts``; a run without updates has none of them."""
    checks = {"sampled": SAMPLED, "stored": STORED, "once": ONCE, "counts": COUNTS}
    if not record.trains:
        return
    if not record.trained:
        yield from (unchecked(check, claim, WHY_NOT) for check, claim in checks.items())
        return
    missing = record.silent
    yield _sampled(record, found, missing)
    yield _stored(record, missing)
    yield _once(record, found, missing)
    yield _counts(record, missing)


def _sampled(record: RunRecord, found: Walk, missing: str) -> Finding:
    demonstrations = sum(one.demonstrations for one in record.trained)
    cloned = sum(bool(one.demonstrations) for one in record.trained)
    counts = {
        "updates": len(record.trained),
        "rows": found.rows,
        "trained tokens": found.trained,
        "demonstrated rows": demonstrations,
    }
    words = (
        f"{len(record.trained) - cloned:,} updates on {found.rows:,} rows with {found.trained:,} "
        "trained tokens, made again from the stored ones"
    )
    if cloned:
        words += f"; {cloned:,} cloned {demonstrations:,} rows of an expert, which nobody sampled"
    offenders = [*found.differing, *_learners_own_counts(record)]
    return judged("sampled", SAMPLED, words, offenders, counts, missing=missing)


def _learners_own_counts(record: RunRecord) -> Iterator[str]:
    """The learner counts rows and action tokens itself; its numbers are with the update."""
    updates = {event.sequence: event.data for event in record.updates}
    for batch in record.trained:
        told = updates.get(batch.sequence - 1, {"update": None})
        if told["update"] != batch.update or batch.demonstrations:
            continue
        ours = {
            "rows": len(batch.rows),
            "action_tokens": sum(row.action_tokens for row in batch.rows),
        }
        for name, count in ours.items():
            learner = told["metrics"].get(name, count)
            if learner != count:
                yield f"update {batch.id}: the learner counted {learner:g} {name}, its rows {count}"


def _stored(record: RunRecord, missing: str) -> Finding:
    offenders: list[str] = []
    fresh: set[str] = set()
    replays: set[str] = set()
    for batch in record.trained:
        for name in _by_trajectory(batch):
            (replays if is_replay(name) else fresh).add(name)
            offenders += [
                f"update {batch.id} learnt from '{name}', which {fault}"
                for fault in _provenance(record, name)
            ]
    credited = [one for one in record.lines.values() if one.takes_part and one.sampled_tokens]
    unused = sum(one.id not in fresh for one in credited)
    silent = _never_credited(record)
    counts = {
        "trajectories": len(fresh),
        "replays": len(replays),
        "credited, not trained": unused,
        "groups never credited": silent,
    }
    words = f"{len(fresh):,} trajectories"
    if replays:
        words += f" and {len(replays):,} replays of stored ones"
    if unused:
        words += f"; {unused:,} that took part in credit were not (yet) learnt from"
    if silent:
        words += (
            f"; {silent:,} groups never came to credit (below their quorum, too old, left out by a "
            "strategy, or still to come)"
        )
    return judged("stored", STORED, words, offenders, counts, missing=missing)


def _never_credited(record: RunRecord) -> int:
    """Training groups that were played and of which no trajectory was looked at for credit."""
    looked_at: dict[str, bool] = defaultdict(bool)
    for line in record.lines.values():
        if role_of(line.purpose) == "train":
            looked_at[line.group_id] |= line.takes_part is not None
    return sum(not one for one in looked_at.values())


def _provenance(record: RunRecord, name: str) -> Iterator[str]:
    line = record.lines.get(original_id(name))
    if line is None:
        yield "is not in the store"
        return
    if role_of(line.purpose) != "train":
        yield f"was played for '{line.purpose}', not for training"
    if line.outcome == "infra":
        error = line.failure.error if line.failure else "unknown"
        yield f"ended in an infra failure ({error})"
    elif not line.takes_part and not is_replay(name):
        yield "took no part in credit"


def _once(record: RunRecord, found: Walk, missing: str) -> Finding:
    """A replay is a use of its own, under an id that says so; that use is made once, too."""
    updates: dict[str, list[str]] = defaultdict(list)
    groups: dict[str, set[str]] = defaultdict(set)
    for batch in record.trained:
        for name in _by_trajectory(batch):
            updates[name].append(batch.id)
            line = record.lines.get(name)
            if line is not None:
                groups[line.group_id].add(batch.id)
    offenders = [
        f"trajectory '{name}' was learnt from in {len(some)} updates: {', '.join(some)}"
        for name, some in updates.items()
        if len(some) > 1
    ]
    torn = {name: some for name, some in groups.items() if len(some) > 1}
    counts = {"trajectories": len(updates), "groups": len(groups)}
    words = f"{len(updates):,} trajectories of {len(groups):,} groups, in one update each"
    if not offenders:  # a trajectory in two updates tears its group as well: named once
        offenders += [
            f"group '{name}' was split over {len(some)} updates: {', '.join(sorted(some))}"
            for name, some in torn.items()
        ]
    offenders += found.repeated
    return judged("once", ONCE, words, offenders, counts, missing=missing)


def _counts(record: RunRecord, missing: str) -> Finding:
    offenders = list(_numbering(record))
    total = 0
    for batch in record.trained:
        if batch.rows:
            total += len(_by_trajectory(batch))
            offenders += _weights(batch, _settings(record, batch.id))
    counts = {"updates": len(record.updates), "trajectories": total}
    words = (
        f"{len(record.updates):,} optimiser steps, numbered without a gap; weights of {total:,} "
        "trajectories"
    )
    return judged("counts", COUNTS, words, offenders, counts, missing=missing)


def _numbering(record: RunRecord) -> Iterator[str]:
    """Updates are numbered from 1 in each stage."""
    before = 0
    for event in record.updates:
        number = event.data["update"]
        if number not in (before + 1, 1):
            yield f"update {number} follows update {before} (iteration {event.iteration})"
        before = number


def _settings(record: RunRecord, batch_id: str) -> str:
    """How the stage that made a batch weights trajectories."""
    config = record.config
    found = re.match(r"stage(\d+)-", batch_id)
    given: Mapping[str, object] = {}
    if found and int(found[1]) < len(config.stages):
        given = config.stages[int(found[1])].learner
    settings = LearnerConfig.model_validate({**config.learner.model_dump(), **given})
    return settings.trajectory_weighting


def _weights(batch: TrainedBatch, weighting: str) -> Iterator[str]:
    """``equal``: weight times tokens is N / M for each of M trajectories; ``tokens``: weights 1."""
    by_name = _by_trajectory(batch)
    if weighting == "tokens":
        for name, rows in by_name.items():
            if any(abs(row.weight - 1) > EQUAL for row in rows):
                yield f"update {batch.id}, trajectory '{name}': a token weighs {rows[0].weight:g}"
        return
    wanted = sum(row.action_tokens for row in batch.rows) / len(by_name)
    for name, rows in by_name.items():
        counted = sum(row.weight * row.action_tokens for row in rows)
        if abs(counted - wanted) > EQUAL * wanted:
            yield (
                f"update {batch.id}, trajectory '{name}' counts {counted / wanted:.3f} times, "
                "expected once"
            )
