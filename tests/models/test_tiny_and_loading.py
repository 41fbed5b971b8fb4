"""Tiny policies, and where policies come from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentrl.core.errors import ConfigError, UnknownPluginError
from agentrl.models import (
    load_model,
    load_tokenizer,
    loading,
    save_policy,
    tiny_policy,
    train_tokenizer,
)

TOKENIZER = train_tokenizer(["go to desk 1", "go to desk 2", "take mug 1"], 320)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_the_same_seed_gives_the_same_weights_and_no_global_state_moves() -> None:
    before = torch.random.get_rng_state()
    one, two = tiny_policy(TOKENIZER, seed=5), tiny_policy(TOKENIZER, seed=5)
    other = tiny_policy(TOKENIZER, seed=6)
    assert torch.equal(before, torch.random.get_rng_state())
    for name, value in weights(one).items():
        assert torch.equal(value, two.state_dict()[name])
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])


def test_a_tiny_policy_fits_its_tokenizer() -> None:
    model = tiny_policy(TOKENIZER, hidden_size=64, layers=2, heads=2)
    config = model.config
    assert config.vocab_size == len(TOKENIZER) == model.get_input_embeddings().weight.shape[0]
    assert config.eos_token_id == TOKENIZER.eos_token_id
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.dtype == torch.float32
    logits = model(input_ids=torch.arange(7)[None]).logits
    assert logits.shape == (1, 7, len(TOKENIZER))
    assert bool(torch.isfinite(logits).all())


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="hidden_size=100 must be a multiple"):
        tiny_policy(TOKENIZER, hidden_size=100, heads=4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_saved_policy_comes_back_as_float32(tmp_path: Path, dtype: str) -> None:
    model = tiny_policy(TOKENIZER, hidden_size=32, layers=1, heads=2)
    original = weights(model)
    save_policy(tmp_path, model, TOKENIZER, dtype)
    loaded, tokenizer = load_model(tmp_path, device="cpu"), load_tokenizer(tmp_path)
    for name, value in original.items():
        assert torch.equal(value, model.state_dict()[name])  # saving changes nothing
        expected = value.to(getattr(torch, dtype)).float()
        assert torch.equal(expected, loaded.state_dict()[name])
    assert loaded.dtype == torch.float32
    assert not loaded.training
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert tokenizer.eos_token_id == TOKENIZER.eos_token_id
    assert tokenizer.pad_token_id == TOKENIZER.pad_token_id


def test_half_precision_halves_the_file(tmp_path: Path) -> None:
    model = tiny_policy(TOKENIZER)
    save_policy(tmp_path / "full", model, TOKENIZER)
    save_policy(tmp_path / "half", model, TOKENIZER, "bfloat16")
    full, half = (
        (tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")
    )
    assert half < 0.55 * full
    assert half < 2_000_000


def test_a_builtin_is_found_by_name_and_an_unknown_one_gets_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_policy(tmp_path / "tiny-house", tiny_policy(TOKENIZER), TOKENIZER, "bfloat16")
    monkeypatch.setattr(loading, "BUILTIN_FOLDER", tmp_path)
    assert load_model("builtin:tiny-house", device="cpu").dtype == torch.float32
    assert len(load_tokenizer("builtin:tiny-house")) == len(TOKENIZER)
    with pytest.raises(UnknownPluginError, match="did you mean 'tiny-house'"):
        load_model("builtin:tiny-hose")


def test_a_missing_folder_names_itself_and_what_was_expected(tmp_path: Path) -> None:
    for path in (tmp_path / "none", f"{tmp_path}/none", "./none", "a/b/c"):
        with pytest.raises(ConfigError, match=r"no model folder at .*config\.json"):
            load_model(path)


def test_a_hub_id_that_cannot_be_had_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="cannot load the model 'nobody/nothing-at-all'"):
        load_model("nobody/nothing-at-all")
    with pytest.raises(ConfigError, match="cannot load the model 'nobody/nothing-at-all'"):
        load_tokenizer("nobody/nothing-at-all")


def test_a_folder_without_weights_says_what_it_holds(tmp_path: Path) -> None:
    save_policy(tmp_path, tiny_policy(TOKENIZER, hidden_size=32, layers=1), TOKENIZER)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"holds no weights .* only config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"is no model: it has no config\.json"):
        load_model(tmp_path)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


def test_unknown_dtype_and_device_are_named(tmp_path: Path) -> None:
    save_policy(tmp_path, tiny_policy(TOKENIZER, hidden_size=32, layers=1), TOKENIZER)
    with pytest.raises(ConfigError, match="dtype 'int4' is unknown"):
        load_model(tmp_path, dtype="int4")
    with pytest.raises(ConfigError, match="device 'gpu0' is unknown"):
        load_model(tmp_path, device="gpu0")


def test_importing_the_parts_loads_no_heavy_package() -> None:
    code = (
        "import sys, agentrl.models, agentrl.renderers.chat, agentrl.renderers.plain, "
        "agentrl.memory.window, agentrl.agents.actions; "
        "print([one for one in ('torch', 'transformers', 'tokenizers') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
