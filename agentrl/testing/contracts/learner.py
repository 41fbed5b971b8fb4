"""What every learner must do. The subject is a ``LearnerSubject``: what makes it, and its ids.

``assert_contract(CHECKS, LearnerSubject(make=lambda publish: MyLearner(publish), ...))``.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl.core.errors import DataError, LearnerError
from agentrl.core.protocols import Learner
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.testing.contract import ContractViolation, require

__all__ = ["CHECKS", "LearnerSubject", "random_rows"]

CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class LearnerSubject:
    """A learner under test.

    Attributes:
        make: Makes a fresh learner, every time with the same weights, from what it is to call when
            it publishes. Its learning rate must be large enough for one update to be seen
            (about 1e-2 for a tiny model), without warm-up and weight decay.
        vocabulary_size: Token ids of the rows lie in ``range(vocabulary_size)``.
    """

    make: Callable[[Callable[[int], None]], Learner]
    vocabulary_size: int


def random_rows(
    rng: random.Random,
    *,
    count: int,
    vocabulary_size: int,
    longest: int = 24,
    advantage: float | None = None,
) -> tuple[Row, ...]:
    """Rows of several steps each, of unequal lengths, one trajectory a row, on no one's policy.

    Args:
        rng: Source of randomness.
        count: How many rows.
        vocabulary_size: Token ids lie below it.
        longest: Most tokens of a row; at least 8.
        advantage: Advantage of every sampled token; ``None``: one per step, from -1 to 1.
    """
    return tuple(_random_row(rng, one, vocabulary_size, longest, advantage) for one in range(count))


def _random_row(
    rng: random.Random, number: int, vocabulary_size: int, longest: int, advantage: float | None
) -> Row:
    length = rng.randrange(8, longest + 1)
    mask, advantages = [0] * length, [0.0] * length
    position = rng.randrange(1, 4)
    while position < length:
        end = min(length, position + rng.randrange(1, 5))
        mask[position:end] = [1] * (end - position)
        value = rng.uniform(-1, 1) if advantage is None else advantage
        advantages[position:end] = [value] * (end - position)
        position = end + rng.randrange(1, 5)
    return Row(
        token_ids=tuple(rng.randrange(vocabulary_size) for _ in range(length)),
        action_mask=tuple(mask),
        behaviour_logprobs=None,
        advantages=tuple(advantages),
        weight=1.0,
        trajectory_id=f"trajectory/{number}",
        group_id="group",
        policy_version=0,
    )


def _rows(subject: LearnerSubject, *, seed: int = 0, advantage: float | None = None) -> Batch:
    rng = random.Random(seed)
    rows = random_rows(rng, count=5, vocabulary_size=subject.vocabulary_size, advantage=advantage)
    return Batch(rows, id=f"batch{seed}")


def _make(subject: LearnerSubject) -> Learner:
    return subject.make(lambda version: None)


def _scores(learner: Learner, rows: Sequence[Row]) -> list[list[float]]:
    return [list(one) for one in learner.score(rows).logprobs]


def _mean_action_logprob(learner: Learner, rows: Sequence[Row]) -> float:
    total = [
        value
        for row, scores in zip(rows, _scores(learner, rows), strict=True)
        for value, sampled in zip(scores, row.action_mask, strict=True)
        if sampled
    ]
    return sum(total) / len(total)


def one_update_per_batch(subject: LearnerSubject) -> None:
    """Each batch is one update, reported once, before the next batch is asked for."""
    learner, events = _make(subject), list[str]()

    def batches() -> Iterator[Batch]:
        for number in range(3):
            events.append(f"ask {number}")
            yield _rows(subject, seed=number)

    learner.fit(batches(), on_update=lambda stats: events.append(f"update {stats.update}"))
    expected = [text for k in range(3) for text in (f"ask {k}", f"update {k + 1}")]
    require(events == expected, f"expected {expected}, got {events}")
    learner.fit(iter([_rows(subject)]), on_update=lambda stats: events.append(str(stats.update)))
    require(events[-1] == "4", f"a second call of fit must go on with update 4, got {events[-1]}")


def no_batches_no_change(subject: LearnerSubject) -> None:
    """Without batches nothing happens."""
    learner, rows = _make(subject), _rows(subject).rows
    before = _scores(learner, rows)
    updates: list[UpdateStats] = []
    learner.fit(iter(()), on_update=updates.append)
    require(not updates, f"no batch was given, but {len(updates)} updates were reported")
    require(_scores(learner, rows) == before, "no batch was given, but the scores changed")


def advantages_have_a_sign(subject: LearnerSubject) -> None:
    """Positive advantages make tokens likelier, negative ones less likely, zeros do nothing."""
    for advantage in (1.0, -1.0, 0.0):
        learner, batch = _make(subject), _rows(subject, advantage=advantage)
        before = _mean_action_logprob(learner, batch.rows)
        learner.fit(iter([batch]), on_update=lambda stats: None)
        change = _mean_action_logprob(learner, batch.rows) - before
        right = change == 0 if advantage == 0 else change * advantage > 0
        require(right, f"advantage {advantage:+g} changed the mean log-probability by {change:+g}")


def statistics_are_numbers(subject: LearnerSubject) -> None:
    """Every metric of an update is a finite number."""
    learner, updates = _make(subject), list[UpdateStats]()
    learner.fit(iter([_rows(subject)]), on_update=updates.append)
    bad = {name: value for name, value in updates[0].metrics.items() if not math.isfinite(value)}
    require(not bad, f"metrics that are not finite: {bad}")


def errors_pass_through(subject: LearnerSubject) -> None:
    """An exception of the batches comes out unchanged, and the learner still works."""
    learner, error = _make(subject), RuntimeError("the rollout broke")

    def batches() -> Iterator[Batch]:
        yield _rows(subject)
        raise error

    try:
        learner.fit(batches(), on_update=lambda stats: None)
    except RuntimeError as caught:
        require(caught is error, f"expected the very exception raised, got {caught!r}")
    else:
        raise ContractViolation("an exception raised by the batches was swallowed")
    updates: list[UpdateStats] = []
    learner.fit(iter([_rows(subject)]), on_update=updates.append)
    require([one.update for one in updates] == [2], "after an exception fit must go on")


def nonsense_is_refused(subject: LearnerSubject) -> None:
    """A gradient that is not finite raises LearnerError, no rows DataError; weights stay."""
    learner, batch = _make(subject), _rows(subject)
    before = _scores(learner, batch.rows)
    poisoned = replace(batch.rows[0], advantages=(math.nan,) * len(batch.rows[0].token_ids))
    for bad, expected in (
        (Batch((poisoned, *batch.rows[1:]), id="poisoned"), LearnerError),
        (Batch((), id="empty"), DataError),
    ):
        try:
            learner.fit(iter([bad]), on_update=lambda stats: None)
        except expected:
            pass
        else:
            raise ContractViolation(f"batch '{bad.id}' must raise {expected.__name__}")
        require(_scores(learner, batch.rows) == before, f"batch '{bad.id}' changed the weights")


def scores_belong_to_their_row(subject: LearnerSubject) -> None:
    """A row's scores do not depend on its neighbours; one per token, none above 0, entry 0 is 0."""
    learner, rows = _make(subject), _rows(subject).rows
    together = _scores(learner, rows)
    for row, scores in zip(rows, together, strict=True):
        alone = _scores(learner, [row])[0]
        require(
            len(scores) == len(row.token_ids),
            f"a row of {len(row.token_ids)} tokens got {len(scores)} scores",
        )
        require(scores[0] == 0.0, f"nothing precedes token 0, so its score is 0; got {scores[0]}")
        require(max(scores) <= 0.0, f"a log-probability of {max(scores)} is above 0")
        worst = max(abs(one - other) for one, other in zip(scores, alone, strict=True))
        require(worst <= CLOSE, f"scored with other rows a row differs by {worst:g}")


def actions_alone_score_the_same(subject: LearnerSubject) -> None:
    """Scored only where the policy acted, a token has the same score, and others have 0."""
    learner, rows = _make(subject), _rows(subject).rows
    every = _scores(learner, rows)
    alone = learner.score(rows, actions_only=True).logprobs
    for row, scores, given in zip(rows, every, alone, strict=True):
        wanted = [s if acted else 0.0 for s, acted in zip(scores, row.action_mask, strict=True)]
        require(len(given) == len(wanted), f"{len(wanted)} tokens got {len(given)} scores")
        worst = max(abs(one - other) for one, other in zip(given, wanted, strict=True))
        require(worst <= CLOSE, f"with actions_only the scores of a row are off by {worst:g}")


def publishing_counts(subject: LearnerSubject) -> None:
    """Publishing gives the next version to the engine and returns it; updates report it."""
    published: list[int] = []
    learner = subject.make(published.append)
    returned = [learner.publish(), learner.publish()]
    require(
        returned == published and returned[1] == returned[0] + 1,
        f"publish returned {returned}, the engine was given {published}",
    )
    updates: list[UpdateStats] = []
    learner.fit(iter([_rows(subject)]), on_update=updates.append)
    require(published == returned, "fit must not publish: when to is the caller's to decide")
    require(
        updates[0].policy_version == returned[1],
        f"an update after version {returned[1]} reported version {updates[0].policy_version}",
    )


def resuming_equals_not_stopping(subject: LearnerSubject) -> None:
    """Saving, loading into a fresh learner and going on gives the very same weights."""
    first, second = _rows(subject, seed=1), _rows(subject, seed=2)
    steady, stopped, resumed = (_make(subject) for _ in range(3))
    ignore = lambda stats: None  # noqa: E731
    steady.fit(iter([first, second]), on_update=ignore)
    stopped.fit(iter([first]), on_update=ignore)
    version = stopped.publish()
    updates: list[UpdateStats] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the second time it replaces the first
            stopped.save(Path(folder) / "checkpoint")
        resumed.load(Path(folder) / "checkpoint")
        left = sorted(one.name for one in Path(folder).iterdir())
        require(left == ["checkpoint"], f"saving left {left} behind")
    resumed.fit(iter([second]), on_update=updates.append)
    require(
        _scores(steady, first.rows) == _scores(resumed, first.rows),
        "after load the learner does not go on as if it had not stopped",
    )
    require(
        (updates[0].update, updates[0].policy_version) == (2, version),
        f"expected update 2 at version {version}, got {updates[0]}",
    )


def no_checkpoint_is_an_error(subject: LearnerSubject) -> None:
    """Loading where there is no checkpoint raises DataError."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            _make(subject).load(Path(folder) / "missing")
        except DataError:
            return
    raise ContractViolation("load of a folder that does not exist must raise DataError")


CHECKS = (
    one_update_per_batch,
    no_batches_no_change,
    advantages_have_a_sign,
    statistics_are_numbers,
    errors_pass_through,
    nonsense_is_refused,
    scores_belong_to_their_row,
    actions_alone_score_the_same,
    publishing_counts,
    resuming_equals_not_stopping,
    no_checkpoint_is_an_error,
)
