from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from agentrl.core.errors import DataError
from agentrl.core.protocols import Annotator, Learner, Scores
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.credit import BiPACE
from agentrl.credit.annotations import annotations_of
from agentrl.credit.hidden_states import HiddenStates
from agentrl.testing.episodes import episode, failed_episode, group


class TokenStates:
    """A learner whose hidden state before a token is the token before it."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.rows: list[Row] = []

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        """Scores of 0; hidden states (1, previous token)."""
        self.rows = list(rows)
        hidden = [np.array([(1, t) for t in (0, *row.token_ids[:-1])], float) for row in rows]
        return Scores([[0.0] * len(r.token_ids) for r in rows], None if self.silent else hidden)

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        """Nothing to learn."""

    def publish(self) -> int:
        """Version 0."""
        return 0

    def save(self, path: Path) -> None:
        """Nothing to save."""

    def load(self, path: Path) -> None:
        """Nothing to load."""


@pytest.mark.parametrize("fork", [False, True])
def test_a_step_gets_the_state_of_the_last_token_of_its_prompt(fork: bool) -> None:
    learner = TokenStates()
    assert isinstance(learner, Learner)
    annotator = HiddenStates(learner, layer=-2)
    assert isinstance(annotator, Annotator)
    played = episode("a", ("s", 0.0), ("t", 1.0), fork=fork)
    (found,) = annotator.annotate([group("g", played, failed_episode("b", ("s", 0.0)))])
    first, second = found.trajectories[0].steps
    # the builders end the prompt of step k with the token 100 + k
    assert annotations_of(first) == {"hidden": (1.0, 100.0)}
    assert annotations_of(second) == {"hidden": (1.0, 101.0)}
    assert annotations_of(found.trajectories[1].steps[0]) == {}
    assert len(learner.rows) == (2 if fork else 1)
    assert sum(sum(row.action_mask) for row in learner.rows) == 4


def test_annotated_groups_can_be_credited() -> None:
    pair = group("g", episode("a", ("s", 1.0)), episode("b", ("t", 0.0)))
    result = BiPACE().assign(HiddenStates(TokenStates()).annotate([pair]))
    assert result.groups["cluster"] == ((0,), (0,))


def test_nothing_to_score_and_a_silent_learner() -> None:
    dead = [group("g", failed_episode("a"))]
    assert HiddenStates(TokenStates()).annotate(dead) == dead
    with pytest.raises(DataError, match="TokenStates gave no hidden states for layer -1"):
        HiddenStates(TokenStates(silent=True)).annotate([group("g", episode("a", ("s", 1.0)))])
