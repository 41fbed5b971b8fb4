"""Training rows made again from the stored tokens, by code of its own.

What an update learnt from is held against it: token for token, so that nothing but what the policy
sampled can have been trained on. Spans are half open: (3, 5) are the tokens 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl.store.evidence import TokenStep
from agentrl.store.trained import TrainedRow, ids_digest

__all__ = ["StoredRow", "differences", "sample_faults", "stored_rows", "version_faults"]

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as the store's tokens give it; the fields as of ``TrainedRow``."""

    tokens: int
    spans: Spans
    digest: str
    policy_version: int

    @property
    def action_tokens(self) -> int:
        return sum(end - start for start, end in self.spans)


def stored_rows(steps: Sequence[TokenStep]) -> tuple[StoredRow, ...]:
    """The rows of an episode: a new one begins where a prompt does not begin with all before it.

    Rows in which nothing was sampled are left out.
    """
    rows: list[StoredRow] = []
    held: list[int] = []
    sampled: set[int] = set()
    versions: list[int] = []

    def close() -> None:
        if sampled:
            spans = tuple(_runs(sampled))
            rows.append(StoredRow(len(held), spans, ids_digest(held), min(versions, default=0)))
        held.clear()
        sampled.clear()
        versions.clear()

    for step in steps:
        if held and list(step.prompt_ids[: len(held)]) != held:
            close()
        held[:] = step.prompt_ids
        sampled.update(range(len(held), len(held) + len(step.token_ids)))
        held.extend(step.token_ids)
        # A step that sampled nothing was sampled by no version.
        versions += [version for _, version in step.versions] or [0]
    close()
    return tuple(rows)


def _runs(places: set[int]) -> Iterator[tuple[int, int]]:
    ordered = sorted(places)
    start = 0
    for number, place in enumerate(ordered):
        if number + 1 == len(ordered) or ordered[number + 1] != place + 1:
            yield ordered[start], place + 1
            start = number + 1


def differences(trained: Sequence[TrainedRow], stored: Sequence[StoredRow]) -> Iterator[str]:
    """How the rows that one update had of a trajectory differ from those of its tokens.

    Rows that are there too often are not named here: that is for ``learning`` to do.
    """
    by_digest = {one.digest: one for one in stored}
    seen = {row.digest for row in trained}
    left_out = [one for one in stored if one.digest not in seen]
    if left_out:
        tokens = sum(one.action_tokens for one in left_out)
        yield f"{tokens} of its sampled tokens, in {len(left_out)} rows, are not in the update"
    for row in trained:
        twin = by_digest.get(row.digest)
        if twin is None:
            yield (
                f"a row of {row.tokens} tokens, {row.action_tokens} of them trained, is none of "
                f"the {len(stored)} that its stored tokens make"
            )
            continue
        extra = _places(row.spans) - _places(twin.spans)
        left = _places(twin.spans) - _places(row.spans)
        if extra:
            yield f"{len(extra)} tokens were trained and not sampled: {_words(extra)}"
        if left:
            yield f"{len(left)} sampled tokens have no action mask: {_words(left)}"


def _places(spans: Spans) -> set[int]:
    return {place for start, end in spans for place in range(start, end)}


def _words(places: set[int]) -> str:
    return ", ".join(f"{start}..{end - 1}" for start, end in _runs(places))


def sample_faults(steps: Sequence[TokenStep]) -> Iterator[str]:
    """Samples whose ids, log-probabilities and version spans are not of one length."""
    for number, step in enumerate(steps):
        count, starts = len(step.token_ids), [start for start, _ in step.versions]
        if step.logprobs != count:
            yield f"step {number}: {count} sampled tokens, {step.logprobs} log-probabilities"
        fits = starts == sorted(set(starts)) and starts[:1] == [0] and starts[-1] < count
        if count and not fits:
            yield f"step {number}: {count} sampled tokens, version spans that begin at {starts}"


def version_faults(steps: Sequence[TokenStep]) -> Iterator[str]:
    """Versions that go back in the course of an episode."""
    newest = 0
    for number, step in enumerate(steps):
        for _, version in step.versions if step.token_ids else ():
            if version < newest:
                yield f"step {number} was sampled by version {version}, after version {newest}"
            newest = max(newest, version)
