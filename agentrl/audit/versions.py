"""Policy versions go up, and what is learnt from is no older than the bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentrl.audit.findings import Finding, judged, unchecked
from agentrl.audit.learning import WHY_NOT, Walk
from agentrl.audit.record import RunRecord
from agentrl.audit.splits import role_of
from agentrl.config import RunConfig
from agentrl.core.strategy import is_replay, original_id

__all__ = ["check_staleness", "check_versions", "staleness_bound"]

VERSIONS = "policy versions only go up, and every evaluation is of one"
STALENESS = "nothing that is learnt from is older than the bound"


def staleness_bound(config: RunConfig) -> int:
    """Versions that may lie between sampling and update; 0: none, the run is on-policy."""
    return config.rollout.max_staleness


def check_versions(record: RunRecord, found: Walk) -> Finding:
    """Within each episode, from update to update, from evaluation to evaluation."""
    updates = [(event.data["update"], event.data["policy_version"]) for event in record.updates]
    versions = {version for _, version in updates}
    versions |= {line.newest_version for line in record.lines.values() if line.sampled_tokens}
    offenders = [*found.versions, *found.misdated]
    newest = 0
    for number, version in updates:
        if version < newest:
            offenders.append(f"update {number} was made at version {version}, after {newest}")
        newest = max(newest, version)
    offenders += _from_the_future(record)
    measured = list(_evaluated(record))
    offenders += _evaluations(measured)
    counts = {
        "versions": len(versions),
        "updates": len(updates),
        "evaluations": len(measured),
        "attempts": found.episodes,
    }
    words = (
        f"{len(versions):,} versions up to {max(versions, default=0):,} in {found.episodes:,} "
        f"attempts, {len(updates):,} updates and {len(measured):,} evaluations"
    )
    return judged("versions", VERSIONS, words, offenders, counts)


def _from_the_future(record: RunRecord) -> Iterator[str]:
    """Nobody samples with weights that have yet to be made."""
    for batch in record.trained:
        for name in dict.fromkeys(row.trajectory_id for row in batch.rows):
            line = record.lines.get(original_id(name))
            if line is not None and line.newest_version > batch.policy_version:
                yield (
                    f"update {batch.id} was made at version {batch.policy_version}, and learnt "
                    f"from '{name}', sampled by version {line.newest_version}"
                )


def _evaluated(record: RunRecord) -> Iterator[tuple[str, list[int]]]:
    """Evaluations in the order they were finished, with the versions that were played."""
    played: dict[str, set[int]] = {}
    for line in record.lines.values():
        if role_of(line.purpose) in ("validation", "test") and line.sampled_tokens:
            played.setdefault(line.purpose, set()).update(
                (line.oldest_version, line.newest_version)
            )
    for event in record.evaluations:
        purpose = event.data["purpose"]
        if purpose in played:
            yield purpose, sorted(played[purpose])


def _evaluations(measured: list[tuple[str, list[int]]]) -> Iterator[str]:
    newest = 0
    for purpose, versions in measured:
        if len(versions) > 1:
            words = ", ".join(map(str, versions))
            yield f"the evaluation '{purpose}' was played by the versions {words}"
        elif versions[0] < newest:
            yield (
                f"the evaluation '{purpose}' was played by version {versions[0]}, after one of "
                f"version {newest}"
            )
        newest = max(newest, *versions)


def check_staleness(record: RunRecord) -> Finding | None:
    """Of every fresh trajectory: the version of the update less the oldest that sampled it.

    A replay is old by intention; the greatest age of one is told, not judged. ``None``: the run
    made no update.
    """
    if not record.trains:
        return None
    if not record.trained:
        return unchecked("staleness", STALENESS, WHY_NOT)
    bound = staleness_bound(record.config)
    ages: Counter[int] = Counter()
    oldest_replay, offenders = None, []
    for batch in record.trained:
        for name in dict.fromkeys(row.trajectory_id for row in batch.rows):
            line = record.lines.get(original_id(name))
            if line is None:
                continue
            age = batch.policy_version - line.oldest_version
            if is_replay(name):
                oldest_replay = max(age, oldest_replay or 0)
                continue
            ages[age] += 1
            if age > bound:
                offenders.append(
                    f"update {batch.id} was made at version {batch.policy_version} and learnt from "
                    f"'{name}', which version {line.oldest_version} sampled: {age} behind"
                )
    counts = {"bound": bound, "oldest": max(ages, default=0), "trajectories": ages.total()}
    spread = ", ".join(f"{count:,} of {age}" for age, count in sorted(ages.items()))
    words = f"bound {bound}; versions behind: {spread or 'nothing was learnt from'}"
    if oldest_replay is not None:
        counts["oldest replay"] = oldest_replay
        words += f"; replays, which are old by intention, of up to {oldest_replay}"
    return judged("staleness", STALENESS, words, offenders, counts, missing=record.silent)
