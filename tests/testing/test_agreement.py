"""The check that an engine and the learner see one policy, with engines that do not."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import Sample, Sampling
from agentrl.engines.hf import HfEngine
from agentrl.testing.agreement import check_agreement, compare, split_options

MODEL = "builtin:alfworld-tiny"
SHORT = Sampling(max_tokens=16)


class WithoutTemperature(HfEngine):
    """Gives the log-probabilities of temperature 1, whatever it sampled at."""

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        drawn = await super().sample(prompt_ids, **asked)
        plain = replace(asked["sampling"], temperature=1.0, top_k=0)
        again = [
            await super(WithoutTemperature, self).sample(
                [*prompt_ids, *drawn.token_ids[:place]],
                **{**asked, "sampling": replace(plain, max_tokens=1), "episode_id": "again"},
            )
            for place in range(len(drawn.token_ids))
        ]
        return replace(drawn, logprobs=tuple(one.logprobs[0] for one in again))


class OneSeed(HfEngine):
    """Draws with one seed whatever it is given."""

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        return await super().sample(prompt_ids, **{**asked, "seed": 3})


class NoSeed(HfEngine):
    """Draws with a new seed each time."""

    calls = 0

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        self.calls += 1
        return await super().sample(prompt_ids, **{**asked, "seed": self.calls})


class Deaf(HfEngine):
    """Takes no new weights, and says that it has them."""

    def __init__(self, model: Any) -> None:
        super().__init__(copy.deepcopy(model))


class Silent(HfEngine):
    """Knows no log-probabilities."""

    async def sample(self, prompt_ids: Sequence[int], **asked: Any) -> Sample:
        drawn = await super().sample(prompt_ids, **asked)
        return replace(drawn, logprobs=(math.nan,) * len(drawn.token_ids))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def checked(engine: Any, sampling: Sampling = SHORT) -> Any:
    return check_agreement(engine, MODEL, {}, sampling=sampling, episodes=4)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_engine_in_this_process_agrees_with_the_learner(temperature: float) -> None:
    found = checked("hf", replace(SHORT, temperature=temperature))
    assert found.tokens == 4 * 2 * 16
    assert found.ok
    assert found.outside == 0
    assert found.largest < 1e-4
    assert found.warnings == ()
    assert found.published.largest < 1e-4


def test_log_probabilities_at_another_temperature_are_found() -> None:
    found = checked(WithoutTemperature, replace(SHORT, temperature=0.6))
    assert not found.ok
    assert found.outside > 0.1
    assert "does NOT agree" in found.lines()[-1]


def test_new_weights_that_do_not_arrive_are_found() -> None:
    found = checked(Deaf)
    assert found.outside == 0
    assert found.published.outside > 0.1
    assert not found.ok


def test_a_cut_distribution_is_warned_of_although_the_ratios_look_right() -> None:
    found = checked("hf", replace(SHORT, top_p=0.5, top_k=7))
    assert found.ok
    assert [one.partition(" ")[0] for one in found.warnings] == ["top_p=0.5", "top_k=7"]


def test_greedy_answers_are_compared_at_temperature_one_and_said_to_teach_nothing() -> None:
    found = checked("hf", replace(SHORT, temperature=0.0))
    assert found.largest < 1e-4
    assert "nothing to learn from" in found.warnings[0]


def test_seeds_that_do_not_count_are_warned_of() -> None:
    assert "alike" in checked(OneSeed).warnings[0]
    assert "cannot be repeated" in checked(NoSeed).warnings[0]


def test_an_engine_without_log_probabilities_is_refused() -> None:
    with pytest.raises(ConfigError, match="gives no log-probabilities"):
        checked(Silent)


def test_the_share_outside_is_of_tokens_and_the_limit_is_inclusive() -> None:
    # Ratios 1, 1.05, 1.2 and 0.8: two of four are outside [0.9, 1.1].
    theirs = (-1.0, -2.0, -3.0, -4.0)
    ours = [0.0, *(np.array(theirs) + np.log([1.0, 1.05, 1.2, 0.8]))]
    pair = ((5,), Sample((1, 2, 3, 4), theirs, ((0, 0),), "length"))
    found = compare([pair], [ours], limit=0.5)
    assert found.outside == 0.5
    assert found.ok
    assert found.mean_ratio == pytest.approx(1.0125)
    assert not compare([pair], [ours], limit=0.49).ok


def test_options_of_sampling_are_told_from_the_engines() -> None:
    own, sampling = split_options(["deterministic=true", "sampling.temperature=0.5"])
    assert own == {"deterministic": True}
    assert sampling == Sampling(temperature=0.5, max_tokens=64)
    with pytest.raises(ConfigError, match=r"sampling\.heat: .*Known: sampling\.temperature"):
        split_options(["sampling.heat=2"])


def test_the_command_compares_an_engine_with_the_learner() -> None:
    run = ["check", "engine", "hf", "--model", MODEL, "sampling.max_tokens=4", "--json"]
    good = CliRunner().invoke(app, run)
    assert good.exit_code == 0
    assert json.loads(good.stdout)["ok"] is True
    none = CliRunner().invoke(app, [*run[:-1], "--limit", "0", "sampling.temperature=1.0"])
    assert none.exit_code == 0, "of equal policies no token is outside"
    wrong = CliRunner().invoke(app, ["check", "env", "toy", "--model", MODEL])
    assert wrong.exit_code == 2
    assert "'env' is none" in wrong.output
