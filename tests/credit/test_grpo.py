from __future__ import annotations

import pytest

from agentrl.core.errors import ConfigError
from agentrl.credit import GRPO
from agentrl.testing.episodes import episode, group


def test_every_step_gets_the_score_relative_to_the_group() -> None:
    # Scores 1, 0, 0, 0: mean 1/4, variance (9/16 + 3/16)/3 = 1/4, spread 1/2.
    four = group(
        "g",
        episode("win", ("a", 0.0), ("b", 1.0)),
        *(episode(f"lose{k}", ("a", 0.0)) for k in range(3)),
    )
    found = GRPO(epsilon=0.0).assign([four]).step_advantages
    assert found == ((1.5, 1.5), (-0.5,), (-0.5,), (-0.5,))


def test_groups_are_compared_within_themselves() -> None:
    groups = [
        group("easy", episode("a", ("s", 1.0)), episode("b", ("s", 0.0))),
        group("rich", episode("a", ("s", 11.0)), episode("b", ("s", 9.0))),
    ]
    found = GRPO(normaliser="mean").assign(groups).step_advantages
    assert found == ((0.5,), (-0.5,), (1.0,), (-1.0,))


def test_a_lone_trajectory_can_keep_its_raw_score() -> None:
    lone = [group("g", episode("a", ("s", 3.0)))]
    assert GRPO(normaliser="mean").assign(lone).step_advantages == ((0.0,),)
    assert GRPO(normaliser="mean", singleton="raw").assign(lone).step_advantages == ((3.0,),)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="GRPO: normaliser"):
        GRPO(normaliser="median")  # type: ignore[arg-type]
