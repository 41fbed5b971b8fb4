"""What a model's chat template does is said before any weights are loaded."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from agentrl.cli.dry_run import plan
from agentrl.core.errors import ConfigError
from agentrl.testing.chat_families import family_tokenizer, template_files
from agentrl.testing.tiny_runs import tiny_run
from tests.cli.conftest import Agentrl


def model_folder(path: Path, template: str) -> Path:
    """A folder that looks like a model's, as far as its tokenizer."""
    tokenizer = copy.deepcopy(family_tokenizer(template))
    tokenizer.chat_template = template_files()[template].read_text()
    tokenizer.save_pretrained(path)
    (path / "config.json").write_text('{"model_type": "qwen3"}')
    (path / "model.safetensors").write_bytes(b"")
    return path


def test_check_says_where_the_template_breaks_the_prefix(agentrl: Agentrl, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "qwen3", "qwen3")
    ended = agentrl("check", "renderer", "chat", f"model={model}", "history=template")
    assert ended.code == 0
    (note,) = (line for line in ended.out.splitlines() if "drops the thinking" in line)
    assert note.startswith("note the chat template of")
    assert "when a user message follows an answer with thinking: at character 63" in note
    assert note.endswith("begins a new segment there, one training row more, counted")
    assert ended.out.endswith("8 passed, 0 failed\n")
    findings = agentrl("check", "renderer", "chat", f"model={model}", "--json").json()
    assert [one["note"] for one in findings].count(True) == 2  # and where results of tools stand
    assert not any("note" in line[:4] for line in agentrl("check", "memory", "window").out.split())


def test_a_dry_run_says_it_too_and_refuses_a_template_that_cannot_be_used(tmp_path: Path) -> None:
    def planned(template: str) -> tuple[str, ...]:
        model = model_folder(tmp_path / template, template)
        overrides = [
            f"model={{path: {model}, device: cpu}}",
            "agent.renderer.name=chat",
            "stages=[]",
        ]
        return plan(tiny_run(tmp_path / "run", overrides)).template

    assert planned("qwen2_5") == ()
    (gemma,) = planned("gemma")
    assert "knows no system message: it is put before the first message of the user" in gemma
    with pytest.raises(ConfigError, match="before what the assistant says: an answer is made of"):
        planned("gptoss")
