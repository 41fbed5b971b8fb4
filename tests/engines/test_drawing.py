"""Drawing: the distribution is followed, each row has its own stream, the cuts cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentrl.core.trajectory import Sampling
from agentrl.engines.hf.drawing import draw, stream_key, uniforms

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -float("inf")])
# Upper 0.1 % points of chi-square with 1 to 7 degrees of freedom.
CHI_SQUARE = (10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32)


def drawn(sampling: Sampling, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Ids and logprobs of ``count`` draws, each of its own seed."""
    keys = [stream_key(seed) for seed in range(count)]
    ids, logprobs = draw(LOGITS.expand(count, -1), [sampling] * count, uniforms(keys, [0] * count))
    return np.array(ids), np.array(logprobs)


def assert_follows(ids: np.ndarray, expected: np.ndarray) -> None:
    possible = expected > 0
    counts = np.bincount(ids, minlength=len(expected))
    assert counts[~possible].sum() == 0
    wanted = expected[possible] * len(ids)
    statistic = float((((counts[possible] - wanted) ** 2) / wanted).sum())
    assert statistic < CHI_SQUARE[possible.sum() - 2]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_distribution(temperature: float) -> None:
    ids, logprobs = drawn(Sampling(temperature=temperature))
    expected = torch.softmax(LOGITS.double() / temperature, 0).numpy()
    assert_follows(ids, expected)
    np.testing.assert_allclose(logprobs, np.log(expected[ids]), atol=1e-5)


def test_top_k_leaves_the_most_probable_and_the_full_logprobs() -> None:
    ids, logprobs = drawn(Sampling(top_k=3))
    full = torch.softmax(LOGITS.double(), 0).numpy()
    expected = np.where(np.arange(8) < 3, full, 0)
    assert_follows(ids, expected / expected.sum())
    np.testing.assert_allclose(logprobs, np.log(full[ids]), atol=1e-5)


def test_top_p_leaves_the_smallest_set_that_reaches_it() -> None:
    # probabilities .533 .196 .119 .072 ...: 0.72 needs two tokens, 0.74 needs three
    full = torch.softmax(LOGITS.double(), 0).numpy()
    assert full[:2].sum() == pytest.approx(0.729, abs=1e-3)
    two, _ = drawn(Sampling(top_p=0.72))
    three, _ = drawn(Sampling(top_p=0.74))
    assert_follows(two, np.where(np.arange(8) < 2, full, 0) / full[:2].sum())
    assert_follows(three, np.where(np.arange(8) < 3, full, 0) / full[:3].sum())
    least, _ = drawn(Sampling(top_p=1e-9), 100)
    assert set(least) == {0}


def test_top_p_counts_what_top_k_left() -> None:
    # of the two that top_k leaves, the first has .731: alone it reaches 0.7
    ids, _ = drawn(Sampling(top_k=2, top_p=0.7), 1000)
    assert set(ids) == {0}


def test_greedy_takes_the_first_of_the_best_with_its_logprob_at_temperature_1() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0]])
    ids, logprobs = draw(logits, [Sampling(temperature=0.0)], np.array([0.999]))
    assert ids == [1]
    assert logprobs[0] == pytest.approx(float(torch.log_softmax(logits, -1)[0, 1]))


def test_rows_with_different_settings_share_a_draw() -> None:
    settings = [Sampling(temperature=0.0), Sampling(), Sampling(top_k=1), Sampling(temperature=9.0)]
    uniform = np.array([0.9, 0.9, 0.9, 0.9])
    together = draw(LOGITS.expand(4, -1), settings, uniform)
    alone = [draw(LOGITS[None], [one], uniform[:1]) for one in settings]
    assert together[0] == [ids[0] for ids, _ in alone]
    assert together[1] == [logprobs[0] for _, logprobs in alone]


def test_a_token_of_probability_0_is_never_drawn() -> None:
    logits = torch.tensor([[-float("inf"), 0.0, -float("inf"), 0.0, -float("inf")]])
    for number in (0.0, 0.4999, 0.5, 1 - 2.0**-48):
        ids, _ = draw(logits, [Sampling()], np.array([number]))
        assert ids[0] in (1, 3)


def test_logits_that_are_not_numbers_show_as_nan() -> None:
    logits = torch.tensor([[0.0, float("nan")], [float("inf"), 0.0], [0.0, 1.0]])
    for temperature in (0.0, 1.0):
        _, logprobs = draw(logits, [Sampling(temperature=temperature)] * 3, np.full(3, 0.5))
        assert np.isnan(logprobs).tolist() == [True, True, False]


def test_streams_are_uniform_and_unrelated() -> None:
    count = 4096
    by_seed = uniforms([stream_key(seed) for seed in range(count)], [0] * count)
    by_place = uniforms([stream_key(5)] * count, list(range(count)))
    for numbers in (by_seed, by_place):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts = np.histogram(numbers, bins=8, range=(0, 1))[0]
        assert float(((counts - count / 8) ** 2 / (count / 8)).sum()) < CHI_SQUARE[6]
        assert abs(float(np.corrcoef(numbers[1:], numbers[:-1])[0, 1])) < 4 / count**0.5
    assert abs(float(np.corrcoef(by_seed, by_place)[0, 1])) < 4 / count**0.5


def test_a_stream_is_the_same_on_every_machine_and_for_any_integer() -> None:
    # splitmix64 from state 0 gives 16294208416658607535, then 7960286522194355700
    assert stream_key(0) == 16294208416658607535
    assert uniforms([0], [1])[0] == (7960286522194355700 >> 16) / 2**48
    for seed in (-1, 2**63, 2**80):
        assert 0 <= uniforms([stream_key(seed)], [3])[0] < 1
