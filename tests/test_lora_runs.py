"""Whole runs that train an adapter: what they learn, write and go on from."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from agentrl.assembly import assemble
from agentrl.checkpoints import CHECKPOINTS
from agentrl.cli.running import _source
from agentrl.config import load_config
from agentrl.core.errors import ConfigError, LearnerError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.models.loading import load_model
from agentrl.models.lora import adapter_tensors
from agentrl.preflight import check_training
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.tiny_runs import tiny_run
from agentrl.train import resume, train

QUIET = Console(quiet=True)
LORA = ("model.lora={rank: 8, alpha: 16}", "learner.learning_rate=0.01")
CREDIT = "stages.1.credit={name: 'tests.test_lora_runs:Alternating'}"
CLONING = ("stages.0.updates=30", "stages.0.episodes_per_update=8")
DETERMINISTIC = ("deterministic=true", "checkpoints={every: 1, every_updates: 1}")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Alternating:
    """A credit estimator that finds a signal in everything, and fails once where it is told to."""

    calls_left: float = math.inf

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        type(self).calls_left -= 1
        if type(self).calls_left < 0:
            type(self).calls_left = math.inf
            raise LearnerError("stopped here")
        played = [one for group in groups for one in group.trajectories]
        return CreditResult(
            [[1.0 - 2.0 * (place % 2)] * len(one.steps) for place, one in enumerate(played)]
        )


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(Path(__file__).parents[1])
        yield


@pytest.fixture(scope="module")
def shown() -> Console:
    return Console(record=True, width=300, file=io.StringIO())


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory, shown: Console) -> Path:
    path = tmp_path_factory.mktemp("lora") / "run"
    train(tiny_run(path, (*LORA, *CLONING, CREDIT)), console=shown)
    return path


def test_both_stages_train_the_adapter_and_it_learns(run_dir: Path, shown: Console) -> None:
    with SqliteStore(run_dir, read_only=True) as store:
        updates = [one.metrics for one in store.updates()]
    assert len(updates) == 30 + 2 * 2
    # Embeddings and head are random and stay so, and yet the expert's words become likelier.
    assert updates[29]["nll"] < updates[0]["nll"] - 0.3
    assert all(one["grad_norm"] > 0 for one in updates[30:])
    assert "an adapter is trained (model.lora): " in shown.export_text(clear=False)


def test_the_model_is_merged_and_the_adapter_beside_it_over_the_same_base(run_dir: Path) -> None:
    merged = load_model(run_dir / "model", device="cpu")
    words = run_dir / "model"
    with assemble(tiny_run(run_dir, LORA), tokenizer=words) as parts:
        base = {n: one.clone() for n, one in parts.model.state_dict().items() if "lora_" not in n}
        parts.load_weights(run_dir / "adapter")
        after = parts.model.state_dict()
        assert all(torch.equal(one, after[name]) for name, one in base.items())
        assert any(one.abs().max() > 0 for one in adapter_tensors(parts.model).values())
        ids = torch.arange(30)[None] * 5 % 256
        with torch.no_grad():
            one, other = (
                model(input_ids=ids).logits.log_softmax(-1) for model in (merged, parts.model)
            )
    torch.testing.assert_close(one, other, rtol=0, atol=2e-5)
    for name in ("model.embed_tokens.weight", "model.norm.weight"):  # nothing else has moved
        assert torch.equal(merged.state_dict()[name], base[name])


def test_a_finished_run_is_evaluated_without_an_adapter(run_dir: Path) -> None:
    config = _source(run_dir, [])
    assert config.model.lora is None
    assert config.model.path == str(run_dir / "model")


def test_a_run_begins_with_the_adapter_of_another(run_dir: Path, tmp_path: Path) -> None:
    given = f"model.adapter={run_dir / 'adapter'}"
    with assemble(tiny_run(tmp_path / "run", (*LORA, given)), tokenizer=run_dir / "model") as parts:
        saved = load_file(run_dir / "adapter" / "adapter_model.safetensors")
        own = adapter_tensors(parts.model)
        assert len(own) == len(saved)
        for name, one in own.items():
            key = f"base_model.model.{name.replace('.default.', '.')}"
            assert torch.equal(one, saved[key])
    other = ["model.lora.rank=4"]
    with (
        pytest.raises(ConfigError, match=r"model\.adapter: .*has r=8, and 4 is expected"),
        assemble(tiny_run(tmp_path / "run", (*LORA, given, *other)), tokenizer=run_dir / "model"),
    ):
        pass


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    from tests.test_lora_runs import Alternating as Loaded

    dropout, kl = "model.lora.dropout=0.1", "learner.kl_coefficient=0.05"
    settings = (*LORA, *DETERMINISTIC, CREDIT, dropout, kl, "stages.0.updates=4")
    train(tiny_run(tmp_path / "steady", settings), console=QUIET)
    Loaded.calls_left = 1
    with pytest.raises(LearnerError, match="stopped here"):
        train(tiny_run(tmp_path / "run", settings), console=QUIET)
    checkpoint = sorted((tmp_path / "run" / CHECKPOINTS).glob("[0-9]*"))[-1]
    assert (checkpoint / "learner" / "model" / "adapter_model.safetensors").is_file()
    assert (checkpoint / "learner" / "reference" / "adapter_model.safetensors").is_file()
    assert not list(checkpoint.rglob("model.safetensors"))
    torch.manual_seed(5)
    resume(tmp_path / "run", console=QUIET)
    for file in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        expected, found = (load_file(tmp_path / run / file) for run in ("steady", "run"))
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_rollouts_beside_the_learner_sample_from_the_merged_weights(tmp_path: Path) -> None:
    beside = ("rollout.max_staleness=1", "stages.0.updates=10", "stages.1.iterations=3")
    run_dir = tmp_path / "run"
    train(tiny_run(run_dir, (*LORA, *beside)), console=QUIET)
    with SqliteStore(run_dir, read_only=True) as store:
        played = [one for group in store.groups(purpose="train") for one in group.trajectories]
        after = [one for group in store.groups(purpose="after") for one in group.trajectories]
    assert played
    model = load_model(run_dir / "model", device="cpu")
    # What the last version sampled is scored by the model that was saved as it would score it.
    differences = [
        abs(logprob - expected)
        for one in after
        for step in one.steps
        for logprob, expected in zip(step.sample.logprobs, scored(model, step), strict=True)
    ]
    assert max(differences) < 1e-4


def scored(model: Any, step: Any) -> list[float]:
    ids = [*step.prompt_ids, *step.sample.token_ids]
    with torch.no_grad():
        every = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    start = len(step.prompt_ids)
    return [float(every[place - 1, ids[place]]) for place in range(start, len(ids))]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.adapter=somewhere"], "adapter is given without lora"),
        (["model.lora={target_modules: []}"], "target_modules is empty"),
        (["model.lora={rank: 0}"], "greater than or equal to 1"),
        (["model.lora={dropout: 1}"], "less than 1"),
        (["model.lora={r: 8}"], r"unknown key 'model\.lora\.r'"),
        (["model={path: none, lora: {}}"], "path=none has no weights"),
    ],
)
def test_settings_that_cannot_work_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny_run(Path("run"), overrides)


def test_an_adapter_that_is_not_there_is_said_before_the_run(tmp_path: Path) -> None:
    wrong = f"model.adapter={tmp_path / 'none'}"
    with pytest.raises(ConfigError, match=r"model\.adapter: no adapter in"):
        check_training(tiny_run(tmp_path / "run", (*LORA, wrong)))


def test_the_defaults_are_said_by_the_resolved_configuration(tmp_path: Path) -> None:
    data = tiny_run(tmp_path, ["model.lora={}"]).model_dump(mode="json")
    assert data["model"]["lora"] == {
        "rank": 16,
        "alpha": 32.0,
        "dropout": 0.0,
        "target_modules": "all-linear",
        "dtype": "float32",
    }
    assert load_config(data).model.lora == load_config(data).model.lora
