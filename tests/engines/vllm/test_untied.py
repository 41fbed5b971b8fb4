"""A model with tied weights is served with a head of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrl.engines.vllm.untied import HEAD_FILE, add_head, is_tied, untied
from agentrl.models.loading import save_policy
from agentrl.models.tiny import tiny_policy
from agentrl.testing.tiny_tokenizers import tiny_tokenizer


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_policy_with_a_head_of_its_own(tmp_path: Path, dtype: str) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_policy(tokenizer, hidden_size=16, layers=1, heads=1, seed=3)
    save_policy(tmp_path / "tied", model, tokenizer, dtype=dtype)
    assert is_tied(tmp_path / "tied")
    made = untied(tmp_path / "tied", tmp_path / "untied")
    assert made == tmp_path / "untied"
    assert not is_tied(made)
    assert (made / "tokenizer.json").read_bytes() == (tmp_path / "tied/tokenizer.json").read_bytes()
    weights = load_file(made / "model.safetensors") | load_file(made / HEAD_FILE)
    head = weights.pop("lm_head.weight")
    assert head.dtype == getattr(torch, dtype)
    assert torch.equal(head, weights["model.embed_tokens.weight"])
    assert weights.keys() == load_file(tmp_path / "tied" / "model.safetensors").keys()


def test_weights_in_several_files_get_one_head(tmp_path: Path) -> None:
    embedding = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file(
        {"a": torch.ones(5), "model.embed_tokens.weight": embedding, "z": torch.ones(1)},
        tmp_path / "model-00002-of-00002.safetensors",
    )
    assert add_head(tmp_path)
    (name,) = head = load_file(tmp_path / HEAD_FILE)
    assert name == "lm_head.weight"
    assert torch.equal(head[name], embedding)
    assert add_head(tmp_path)  # there is one already
    assert len(list(tmp_path.glob("*.safetensors"))) == 3


def test_what_has_no_embedding_by_its_usual_name_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"text_config": {"tie_word_embeddings": True}}))
    (folder / "model.safetensors").write_bytes(b"no weights at all")
    assert is_tied(folder)
    assert not add_head(folder)
    assert untied(folder, tmp_path / "served") == folder
    assert not is_tied(tmp_path / "nowhere")
