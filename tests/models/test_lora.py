"""An adapter in a model: what it changes, what stays, what its files say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import GPT2Config, GPT2LMHeadModel

from agentrl.config import LoraConfig
from agentrl.core.errors import ConfigError, DataError, MissingDependencyError
from agentrl.engines.hf.hosted import hosted
from agentrl.models.loading import load_model
from agentrl.models.lora import (
    adapter_tensors,
    add_adapter,
    has_adapter,
    load_adapter,
    parameter_counts,
    plain_state,
    save_adapter,
    using_adapter,
)
from agentrl.testing.tiny_models import tiny_model

IDS = torch.arange(20)[None] * 7 % 128
# Of log-probabilities: W x + B A x and (W + B A) x are sums in another order.
TOLERANCE = 2e-5


def adapted(seed: int = 0, *, model: Any = None, **settings: Any) -> Any:
    """A tiny model with an adapter that does something, as after training."""
    model = model or tiny_model(seed=1)
    add_adapter(model, LoraConfig.model_validate({"rank": 4} | settings), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in adapter_tensors(model).values():
            one.add_(0.1 * torch.randn(one.shape, generator=generator))
    return model


def logprobs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=IDS).logits.float(), -1)


def gradient(one: torch.Tensor) -> torch.Tensor:
    assert one.grad is not None
    return one.grad


def test_a_new_adapter_changes_nothing_and_alone_is_trained() -> None:
    model, plain = tiny_model(seed=1), tiny_model(seed=1)
    state = torch.get_rng_state()
    add_adapter(model, LoraConfig(rank=4), seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert type(model) is type(plain)
    assert torch.equal(logprobs(model), logprobs(plain))
    # q, o: 32 -> 32; k, v: 32 -> 16; gate, up: 32 -> 64; down: 64 -> 32; two layers, rank 4.
    trained = 2 * 4 * (2 * (32 + 32) + 2 * (32 + 16) + 2 * (32 + 64) + (64 + 32))
    whole = sum(one.numel() for one in plain.parameters())
    assert parameter_counts(model) == (trained, whole + trained)
    assert {name for name, one in model.named_parameters() if one.requires_grad} == set(
        adapter_tensors(model)
    )
    other = tiny_model(seed=1)
    add_adapter(other, LoraConfig(rank=4), seed=5)
    for name, one in adapter_tensors(other).items():
        assert torch.equal(one, adapter_tensors(model)[name])


def test_the_plain_state_is_the_same_policy_and_the_model_is_left_alone() -> None:
    model, plain = adapted(), tiny_model(seed=1)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    assert (logprobs(model) - logprobs(plain)).abs().max() > 0.05
    plain.load_state_dict(plain_state(model))
    torch.testing.assert_close(logprobs(plain), logprobs(model), rtol=0, atol=TOLERANCE)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert plain_state(plain).keys() == plain.state_dict().keys()


def test_layers_with_transposed_weights_are_merged_too() -> None:
    def small() -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 128}
            return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval()

    model, plain = adapted(model=small()), small()
    plain.load_state_dict(plain_state(model))
    torch.testing.assert_close(logprobs(plain), logprobs(model), rtol=0, atol=TOLERANCE)


def test_the_folder_is_pefts_own_format_and_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model = adapted(target_modules=["q_proj", "v_proj"], alpha=3)
    save_adapter(model, tmp_path)
    wrapped = PeftModel.from_pretrained(tiny_model(seed=1), tmp_path).eval()
    torch.testing.assert_close(logprobs(wrapped), logprobs(model), rtol=0, atol=1e-6)
    again = adapted(7, target_modules=["q_proj", "v_proj"], alpha=3)
    load_adapter(again, tmp_path)
    assert torch.equal(logprobs(again), logprobs(model))
    with pytest.raises(ConfigError, match=r"holds an adapter and no model.*model\.adapter"):
        load_model(tmp_path)


def test_other_matrices_may_stand_in_for_a_while_without_disturbing_a_gradient() -> None:
    model = adapted()
    zeros = {
        name: torch.nn.Parameter(torch.zeros_like(one), requires_grad=False)
        for name, one in adapter_tensors(model).items()
    }
    expected = logprobs(model)
    loss = model(input_ids=IDS).logits.sum()
    with using_adapter(model, zeros):
        assert torch.equal(logprobs(model), logprobs(tiny_model(seed=1)))
    loss.backward()
    inside = {name: gradient(one).clone() for name, one in adapter_tensors(model).items()}
    model.zero_grad()
    model(input_ids=IDS).logits.sum().backward()
    for name, one in adapter_tensors(model).items():
        assert torch.equal(gradient(one), inside[name])
    assert torch.equal(logprobs(model), expected)


@pytest.mark.parametrize("dtype", ["float32", "model"])
def test_beside_a_bfloat16_model_it_is_float32_or_of_the_same_dtype(dtype: str) -> None:
    model = adapted(model=tiny_model(seed=1, dtype=torch.bfloat16), dtype=dtype)
    kinds = {one.dtype for one in adapter_tensors(model).values()}
    assert kinds == {torch.float32 if dtype == "float32" else torch.bfloat16}
    assert model.dtype == torch.bfloat16
    model(input_ids=IDS).logits.float().sum().backward()
    assert {one.dtype for one in plain_state(model).values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("q_prj", r"no linear layer 'q_prj'; did you mean 'q_proj'\? It has: down_proj, gate_proj"),
        ("lm_head", r"no linear layer 'lm_head'.*the head are not adapted"),
        ("embed_tokens", r"no linear layer 'embed_tokens'"),
    ],
)
def test_unknown_target_modules_are_refused_with_what_there_is(name: str, words: str) -> None:
    model = tiny_model()
    with pytest.raises(ConfigError, match=words):
        add_adapter(model, LoraConfig(target_modules=["q_proj", name]), seed=0)
    assert not has_adapter(model)


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = adapted()
    with pytest.raises(DataError, match=r"no adapter in .*adapter_config\.json"):
        load_adapter(model, tmp_path)
    save_adapter(model, tmp_path)
    with pytest.raises(DataError, match=r"has r=4, and 8 is expected: set model\.lora\.rank"):
        load_adapter(adapted(rank=8), tmp_path)
    with pytest.raises(DataError, match=r"has lora_alpha=32"):
        load_adapter(adapted(alpha=1), tmp_path)
    with pytest.raises(DataError, match=r"does not fit model\.lora.*8 differ"):
        load_adapter(
            adapted(target_modules=["down_proj", "up_proj", "gate_proj", "q_proj", "k_proj"]),
            tmp_path,
        )
    with pytest.raises(DataError, match="trained on another model"):
        load_adapter(adapted(model=tiny_model(seed=2)), tmp_path)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_dora": True}))
    with pytest.raises(DataError, match="use_dora=True"):
        load_adapter(model, tmp_path)
    save_adapter(model, tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\0" * 10)
    with pytest.raises(DataError, match="cannot read the adapter"):
        load_adapter(model, tmp_path)


def test_an_engine_in_another_process_is_not_given_an_adapter_that_it_would_lose() -> None:
    with pytest.raises(ConfigError, match="state=plain_state"):
        hosted(adapted())


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[lora\]'"):
        add_adapter(tiny_model(), LoraConfig(), seed=0)
    assert plain_state(tiny_model()).keys() == tiny_model().state_dict().keys()
