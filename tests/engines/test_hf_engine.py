"""The in-process engine against the plain forward pass of its model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedModel

from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sample
from agentrl.engines.hf import HfEngine
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.engine import CHECKS, EngineSubject
from agentrl.testing.driving import VOCABULARY, forward_logprobs, prompt_of, run, sample, until
from agentrl.testing.tiny_models import tiny_model

STOP = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model(VOCABULARY, hidden_size=32, layers=2, seed=3, max_length=512)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_contract_holds(model: PreTrainedModel, deterministic: bool) -> None:
    subject = EngineSubject(
        make=lambda: HfEngine(model, max_batch_size=8, deterministic=deterministic),
        prompt_ids=tuple(prompt_of(0, 40)),
        vocabulary_size=VOCABULARY,
        stop_token_ids=STOP,
    )
    assert_contract(CHECKS, subject)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass(
    model: PreTrainedModel, temperature: float
) -> None:
    engine = HfEngine(model, max_batch_size=8)
    prompts = [prompt_of(number, 3 + 17 * number) for number in range(12)]

    async def play() -> list[Sample]:
        calls = [
            sample(engine, one, episode=str(number), seed=number, temperature=temperature)
            for number, one in enumerate(prompts)
        ]
        return await asyncio.gather(*calls)

    for prompt, answer in zip(prompts, run(engine, play), strict=True):
        expected = forward_logprobs(model, prompt, answer, temperature)
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_greedy_answers_are_the_argmax_with_logprobs_at_temperature_1(
    model: PreTrainedModel,
) -> None:
    engine, prompt = HfEngine(model), prompt_of(1, 30)
    answer = run(engine, lambda: sample(engine, prompt, temperature=0.0))
    tokens = list(prompt)
    for token in answer.token_ids:
        with torch.no_grad():
            assert token == int(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax())
        tokens.append(token)
    assert answer.logprobs == pytest.approx(forward_logprobs(model, prompt, answer), abs=1e-4)


def test_sampling_follows_the_model(model: PreTrainedModel) -> None:
    engine, prompt, count = HfEngine(model), prompt_of(2, 12), 4000

    async def play() -> list[Sample]:
        calls = [
            sample(engine, prompt, episode=str(seed), seed=seed, max_tokens=1)
            for seed in range(count)
        ]
        return await asyncio.gather(*calls)

    counts = torch.zeros(VOCABULARY)
    for answer in run(engine, play):
        counts[answer.token_ids[0]] += 1
    with torch.no_grad():
        expected = torch.softmax(model(input_ids=torch.tensor([prompt])).logits[0, -1], -1) * count
    common = expected >= 5  # the rest is pooled
    seen = torch.cat([counts[common], counts[~common].sum()[None]])
    wanted = torch.cat([expected[common], expected[~common].sum()[None]])
    assert 10 < len(wanted) <= 49
    # the upper 0.1 % point of chi-square with 48 degrees of freedom, the most there can be
    assert float(((seen - wanted) ** 2 / wanted).sum()) < 84.04


async def play_turns(
    engine: HfEngine, episode: str, *, turns: int = 4, names: Iterator[str] | None = None
) -> list[Sample]:
    """An episode of several turns; ``names`` gives each turn an episode id of its own."""
    prompt, answers = prompt_of(derive_seed(episode), 30), []
    for turn in range(turns):
        name = episode if names is None else next(names)
        answer = await sample(engine, prompt, episode=name, seed=turn, max_tokens=5)
        answers.append(answer)
        prompt = [*prompt, *answer.token_ids, *prompt_of(turn, 6)]
    return answers


def test_what_is_kept_between_turns_changes_cost_and_nothing_else(model: PreTrainedModel) -> None:
    keeping, forgetting = HfEngine(model), HfEngine(model)
    kept = run(keeping, lambda: play_turns(keeping, "a"))
    names = iter("abcd")

    async def play() -> list[Sample]:
        answers = []
        prompt = prompt_of(derive_seed("a"), 30)
        for turn in range(4):
            answers.append(await sample(forgetting, prompt, seed=turn, max_tokens=5))
            forgetting.release("a")
            prompt = [*prompt, *answers[-1].token_ids, *prompt_of(turn, 6)]
        return answers

    fresh = run(forgetting, play)
    assert [one.token_ids for one in kept] == [one.token_ids for one in fresh]
    for one, other in zip(kept, fresh, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    # a first prompt of 30; then the last token sampled and 6 new ones, three times
    assert keeping.stats.prefilled_tokens == 30 + 3 * 7
    assert forgetting.stats.prefilled_tokens == 30 + 41 + 52 + 63
    assert next(names) == "a"


def test_a_rewritten_prompt_keeps_the_common_prefix(model: PreTrainedModel) -> None:
    engine, first = HfEngine(model), prompt_of(0, 40)
    rewritten = [*first[:25], *prompt_of(9, 20)]

    async def play() -> Sample:
        await sample(engine, first)
        return await sample(engine, rewritten, seed=1)

    answer = run(engine, play)
    assert engine.stats.prefilled_tokens == 40 + 20
    assert engine.stats.reused_tokens == 25
    assert answer.logprobs == pytest.approx(forward_logprobs(model, rewritten, answer), abs=1e-4)


def test_more_episodes_than_slots_cost_time_and_nothing_else(model: PreTrainedModel) -> None:
    few, many = HfEngine(model, max_batch_size=3), HfEngine(model)
    names = [f"episode{number}" for number in range(8)]
    crowded = run(few, lambda: asyncio.gather(*(play_turns(few, one) for one in names)))
    roomy = run(many, lambda: asyncio.gather(*(play_turns(many, one) for one in names)))
    for one, other in zip(crowded, roomy, strict=True):
        assert [answer.token_ids for answer in one] == [answer.token_ids for answer in other]
    assert few.stats.evictions > 0
    assert many.stats.evictions == 0


def test_a_group_shares_its_first_prompt(model: PreTrainedModel) -> None:
    engine, prompt = HfEngine(model), prompt_of(0, 100)

    async def play() -> list[Sample]:
        calls = [sample(engine, prompt, episode=str(one), seed=one) for one in range(8)]
        return await asyncio.gather(*calls)

    for answer in run(engine, play):
        assert answer.logprobs == pytest.approx(forward_logprobs(model, prompt, answer), abs=1e-4)
    assert engine.stats.prefilled_tokens == 100 + 7


def test_an_answer_of_the_stop_token_alone_is_one_token(model: PreTrainedModel) -> None:
    engine, prompt = HfEngine(model), prompt_of(0, 10)
    first = run(engine, lambda: sample(engine, prompt)).token_ids[0]
    again = HfEngine(model)
    answer = run(again, lambda: sample(again, prompt, stop=(first,)))
    assert answer.token_ids == (first,)
    assert len(answer.logprobs) == 1
    assert answer.finish_reason == "stop"


def test_a_model_that_never_stops_is_cut_at_max_tokens(model: PreTrainedModel) -> None:
    engine = HfEngine(model)
    answer = run(engine, lambda: sample(engine, [5], max_tokens=300))
    assert (len(answer.token_ids), answer.finish_reason) == (300, "length")
    assert answer.logprobs == pytest.approx(forward_logprobs(model, [5], answer), abs=1e-4)


def test_new_weights_in_mid_answer_open_a_second_span() -> None:
    live = tiny_model(VOCABULARY, seed=1)
    old, new = tiny_model(VOCABULARY, seed=1), tiny_model(VOCABULARY, seed=2)
    engine, prompt = HfEngine(live, policy_version=7), prompt_of(0, 12)

    async def play() -> tuple[Sample, Sample]:
        await sample(engine, prompt, episode="idle")
        call = asyncio.ensure_future(sample(engine, prompt, max_tokens=40))
        await until(lambda: engine.stats.sampled_tokens >= 20)
        with engine.changing_weights(8):
            live.load_state_dict(new.state_dict())
        return await call, await sample(engine, prompt, episode="idle")

    mixed, after = run(engine, play)
    assert [version for _, version in mixed.versions] == [7, 8]
    turn = mixed.versions[1][0]
    assert 0 < turn < 40
    before_turn, behind_turn = (forward_logprobs(one, prompt, mixed) for one in (old, new))
    assert mixed.logprobs[:turn] == pytest.approx(before_turn[:turn], abs=1e-4)
    assert mixed.logprobs[turn:] == pytest.approx(behind_turn[turn:], abs=1e-4)
    assert mixed.policy_version == 7
    assert after.versions == ((0, 8),)
    assert after.logprobs == pytest.approx(forward_logprobs(new, prompt, after), abs=1e-4)


def test_the_learners_model_is_left_as_it_was() -> None:
    shared = tiny_model(VOCABULARY, seed=1)
    shared.train()
    shared.model.layers[1].eval()
    modes = [module.training for module in shared.modules()]
    weights = {name: one.clone() for name, one in shared.state_dict().items()}
    engine = HfEngine(shared)
    run(engine, lambda: sample(engine, prompt_of(0, 20)))
    assert [module.training for module in shared.modules()] == modes
    assert all(torch.equal(weights[name], one) for name, one in shared.state_dict().items())
    loss = shared(input_ids=torch.tensor([prompt_of(0, 9)]), labels=torch.tensor([prompt_of(0, 9)]))
    loss.loss.backward()  # what the engine computed is in nobody's way
    assert all(one.grad is not None for one in shared.parameters())


def test_statistics_count_what_was_done(model: PreTrainedModel) -> None:
    ticks = iter(range(1000))
    engine = HfEngine(model, clock=lambda: float(next(ticks)))
    run(engine, lambda: sample(engine, prompt_of(0, 10), max_tokens=3))
    stats = engine.stats
    assert (stats.requests, stats.sampled_tokens, stats.prefilled_tokens) == (1, 3, 10)
    assert (stats.forwards, stats.busy_s, stats.mean_batch) == (3, 3.0, 1.0)
