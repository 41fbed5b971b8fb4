"""The learner keeps the contract of its seam, and the contract can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.config import LearnerConfig
from agentrl.core.protocols import Scores
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.contract import assert_contract, run_checks
from agentrl.testing.contracts.learner import CHECKS, LearnerSubject
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 64


def make(publish: Callable[[int], None], **settings: Any) -> TrlLearner:
    torch.set_num_threads(1)
    config = LearnerConfig(learning_rate=1e-2, micro_batch_tokens=64, **settings)
    model = tiny_model(vocab_size=VOCABULARY)
    return TrlLearner(model, None, config, temperature=0.7, publish=publish)


def test_the_learner_keeps_the_contract() -> None:
    assert_contract(CHECKS, LearnerSubject(make, VOCABULARY))


def test_it_keeps_the_contract_with_the_other_loss_and_a_reference_model() -> None:
    # Advantage 0 does change weights here once the policy has left the reference; it has not yet.
    subject = LearnerSubject(
        lambda publish: make(publish, loss="cispo", kl_coefficient=0.1), VOCABULARY
    )
    assert_contract(CHECKS, subject)


@pytest.mark.parametrize("loss", ["loop", "no_ratio", "gspo_token", "cpgd", "decoupled"])
def test_it_keeps_the_contract_with_every_loss(loss: str) -> None:
    assert_contract(CHECKS, LearnerSubject(lambda publish: make(publish, loss=loss), VOCABULARY))


class _Careless(TrlLearner):
    """Asks for all batches at once, forgets the optimiser, and what it is to score."""

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        return super().score(rows, hidden_layer=hidden_layer)

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        super().fit(iter(list(batches)), on_update=on_update)

    def load(self, path: Path) -> None:
        super().load(path)
        self._optimizer.state.clear()


def test_the_contract_finds_a_careless_learner() -> None:
    def careless(publish: Callable[[int], None]) -> TrlLearner:
        config = LearnerConfig(learning_rate=1e-2)
        model = tiny_model(vocab_size=VOCABULARY)
        return _Careless(model, None, config, temperature=1.0, publish=publish)

    findings = asyncio.run(run_checks(CHECKS, LearnerSubject(careless, VOCABULARY)))
    broken = {check.__name__ for check, one in zip(CHECKS, findings, strict=True) if not one.ok}
    assert broken == {
        "actions_alone_score_the_same",
        "errors_pass_through",
        "one_update_per_batch",
        "resuming_equals_not_stopping",
    }
