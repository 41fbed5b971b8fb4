"""A learner of an adapter: it learns, its base stays, and it goes on as if never stopped."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.config import LearnerConfig, LoraConfig
from agentrl.core.errors import DataError
from agentrl.core.trajectory import Batch, UpdateStats
from agentrl.learn.oracle import oracle_gradient
from agentrl.learn.trl_learner import TrlLearner
from agentrl.models.lora import adapter_tensors, add_adapter
from agentrl.testing.contracts.learner import random_rows
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 32


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def policy(**settings: Any) -> Any:
    model = tiny_model(vocab_size=VOCABULARY)
    add_adapter(model, LoraConfig.model_validate({"rank": 4} | settings), seed=0)
    return model


def learner(model: Any, **settings: Any) -> TrlLearner:
    config = LearnerConfig.model_validate({"learning_rate": 1e-2} | settings)
    return TrlLearner(model, None, config, temperature=1.0)


def batch(seed: int) -> Batch:
    return Batch(random_rows(random.Random(seed), count=4, vocabulary_size=VOCABULARY), str(seed))


def fit(one: TrlLearner, *seeds: int) -> list[UpdateStats]:
    updates: list[UpdateStats] = []
    one.fit(iter([batch(seed) for seed in seeds]), on_update=updates.append)
    return updates


def tensors(model: Any, *, adapter: bool) -> dict[str, torch.Tensor]:
    own = adapter_tensors(model)
    return {n: p.detach().clone() for n, p in model.named_parameters() if (n in own) is adapter}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


@pytest.mark.parametrize("settings", [{}, {"kl_coefficient": 0.1}, {"weight_decay": 0.5}])
def test_only_the_adapter_is_trained(settings: dict[str, float]) -> None:
    model = policy()
    base, adapter = tensors(model, adapter=False), tensors(model, adapter=True)
    fit(learner(model, **settings), 0, 1, 2)
    assert same(tensors(model, adapter=False), base)
    assert not same(tensors(model, adapter=True), adapter)
    assert model.training is False


def test_the_gradient_is_that_of_the_equations_with_the_kl_to_the_model_without_adapter() -> None:
    model = policy()
    one = learner(model, kl_coefficient=0.3)
    fit(one, 0, 1)  # away from the reference
    reference, moved = tiny_model(vocab_size=VOCABULARY), copy.deepcopy(model)
    config = LearnerConfig(learning_rate=1e-2, kl_coefficient=0.3)
    rows = batch(2).rows
    expected = oracle_gradient(moved, rows, config, temperature=1.0, reference=reference)
    found: dict[str, torch.Tensor] = {}
    step = one._trainer._clip_or_refuse

    def seen(model: Any, batch: Batch, loss: torch.Tensor) -> float:
        for name, parameter in adapter_tensors(model).items():
            assert parameter.grad is not None
            found[name] = parameter.grad.double()
        return step(model, batch, loss)

    one._trainer._clip_or_refuse = seen  # type: ignore[method-assign]
    fit(one, 2)
    norm = sum(float(expected[name].square().sum()) for name in found) ** 0.5
    off = sum(float((expected[n] - found[n]).square().sum()) for n in found) ** 0.5
    assert len(found) == len(adapter_tensors(model)) > 0
    assert off < 1e-5 * norm


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_resumed_learner_equals_one_that_never_stopped(tmp_path: Path, dropout: float) -> None:
    settings = {"kl_coefficient": 0.1}
    steady = policy(dropout=dropout)
    expected = fit(learner(steady, **settings), 0, 1, 2, 3)[2:]
    one = learner(policy(dropout=dropout), **settings)
    fit(one, 0, 1)
    one.save(tmp_path / "c")
    saved = {path.name for path in (tmp_path / "c" / "model").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= saved
    assert "model.safetensors" not in saved
    torch.manual_seed(99)  # another process has another random state
    model = policy(dropout=dropout)
    other = learner(model, **settings)
    other.load(tmp_path / "c")
    actual = fit(other, 2, 3)
    assert [u.metrics["loss"] for u in actual] == [u.metrics["loss"] for u in expected]
    assert same(tensors(model, adapter=True), tensors(steady, adapter=True))


def test_dropout_is_on_in_updates_only() -> None:
    dropped, plain = policy(dropout=0.5), policy()
    one, other = learner(dropped), learner(plain)
    rows = batch(0).rows
    fit(one, 0, 1)
    fit(other, 0, 1)
    assert not same(tensors(dropped, adapter=True), tensors(plain, adapter=True))
    assert one.score(rows).logprobs == one.score(rows).logprobs
    ids = torch.arange(9)[None]
    with torch.no_grad():
        assert torch.equal(dropped(input_ids=ids).logits, dropped(input_ids=ids).logits)


def test_a_checkpoint_over_another_base_model_is_refused(tmp_path: Path) -> None:
    one = learner(policy())
    fit(one, 0)
    one.save(tmp_path / "c")
    model = tiny_model(vocab_size=VOCABULARY, seed=9)
    add_adapter(model, LoraConfig(rank=4), seed=0)
    with pytest.raises(DataError, match="trained on another model"):
        learner(model).load(tmp_path / "c")


def test_the_same_batch_again_and_again_is_learnt() -> None:
    rows = batch(0).rows
    model = policy()
    one = learner(model, loss="no_ratio")
    before = one.score(rows).logprobs
    fit(one, *[0] * 10)
    gained = [
        row.weight * advantage * (new - old)
        for row, olds, news in zip(rows, before, one.score(rows).logprobs, strict=True)
        for mask, advantage, old, new in zip(
            row.action_mask, row.advantages, olds, news, strict=True
        )
        if mask
    ]
    assert sum(gained) > 1.0
