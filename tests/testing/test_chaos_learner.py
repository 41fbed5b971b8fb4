"""The learner of chaos runs is one: it passes the contract, and says what it learnt from."""

from __future__ import annotations

import random

from agentrl.core.protocols import Learner
from agentrl.core.trajectory import Batch
from agentrl.testing.chaos_learner import LearntRow, LinearLearner
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.learner import CHECKS, LearnerSubject, random_rows


def test_it_passes_the_contract_of_learners() -> None:
    assert isinstance(LinearLearner(), Learner)
    assert_contract(
        CHECKS,
        LearnerSubject(lambda publish: LinearLearner(64, on_publish=publish), vocabulary_size=64),
    )


def test_it_says_which_tokens_of_which_trajectory_made_each_step() -> None:
    rows = random_rows(random.Random(0), count=3, vocabulary_size=99)
    told: list[LearntRow] = []
    learner = LinearLearner(on_learnt=told.extend)
    learner.fit(iter([Batch(rows[:2]), Batch(rows[2:]), Batch(rows[2:])]), on_update=lambda _: None)
    assert [one.trajectory_id for one in told] == [
        *(row.trajectory_id for row in rows),
        rows[2].trajectory_id,
    ]
    for one, row in zip(told, rows, strict=False):
        acted = [place for place, mask in enumerate(row.action_mask) if mask]
        assert one.tokens == tuple((place, row.token_ids[place]) for place in acted)
