"""What the learner promises beyond the gradient: quiet, exact, and honest about what it refuses."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentrl.config import LearnerConfig
from agentrl.core.errors import ConfigError, DataError, LearnerError, SchemaVersionError
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.contracts.learner import random_rows
from agentrl.testing.tiny_models import tiny_model

VOCABULARY = 32


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def learner(model: Any = None, *, temperature: float = 1.0, **settings: Any) -> TrlLearner:
    total, options = settings.pop("total_updates", None), settings.pop("options", None)
    publish = settings.pop("publish", None)
    return TrlLearner(
        model or tiny_model(vocab_size=VOCABULARY),
        settings.pop("tokenizer", None),
        LearnerConfig.model_validate({"learning_rate": 1e-2} | settings),
        temperature=temperature,
        total_updates=total,
        options=options,
        publish=publish,
    )


def batch(seed: int = 0) -> Batch:
    return Batch(random_rows(random.Random(seed), count=4, vocabulary_size=VOCABULARY), str(seed))


def fit(one: TrlLearner, *batches: Batch) -> list[UpdateStats]:
    updates: list[UpdateStats] = []
    one.fit(iter(batches), on_update=updates.append)
    return updates


def weights(one: TrlLearner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in one._model.state_dict().items()}


def test_the_learning_rate_follows_the_schedule() -> None:
    one = learner(learning_rate=1.0e-3, warmup_updates=2, schedule="linear", total_updates=4)
    rates = [update.metrics["learning_rate"] for update in fit(one, *map(batch, range(5)))]
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3, 0.5e-3, 0.0])


def silent(seed: int = 0) -> Batch:
    """A batch in which no episode did better than another."""
    rows = batch(seed).rows
    return Batch(tuple(replace(row, advantages=(0.0,) * len(row.token_ids)) for row in rows), "s")


def test_an_update_without_signal_moves_nothing_but_the_schedule() -> None:
    one = learner(
        learning_rate=1.0e-3, weight_decay=0.5, schedule="linear", warmup_updates=1, total_updates=5
    )
    silences = fit(one, silent(), silent(), batch())[:2]
    after = weights(one)
    silences += fit(one, silent())  # momentum and weight decay would move them now
    assert all(torch.equal(value, after[name]) for name, value in weights(one).items())
    last = fit(one, batch(1))[0]
    assert (last.update, one.updates) == (5, 5)
    assert last.metrics["learning_rate"] == pytest.approx(0.25e-3)
    assert last.metrics["no_signal"] == 0
    assert [update.update for update in silences] == [1, 2, 4]
    rates = [update.metrics["learning_rate"] for update in silences]
    assert rates == pytest.approx([1e-3, 1e-3, 0.5e-3])
    for update in silences:
        metrics = update.metrics
        assert metrics["no_signal"] == 1
        assert metrics["loss"] == metrics["grad_norm"] == metrics["micro_batches"] == 0
        assert metrics["rows"] == metrics["rows_skipped"] == 4
        assert metrics["action_tokens"] > 0


def test_resuming_after_a_silent_update_keeps_the_schedule(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"schedule": "cosine", "total_updates": 6}
    steady = learner(**settings)
    expected = fit(steady, silent(), batch(0), silent(), batch(1), batch(2))[3:]
    stopped = learner(**settings)
    fit(stopped, silent(), batch(0), silent())
    stopped.save(tmp_path / "c")
    resumed = learner(**settings)
    resumed.load(tmp_path / "c")
    actual = fit(resumed, batch(1), batch(2))
    for one, other in zip(actual, expected, strict=True):
        assert one.update == other.update
        assert one.metrics["learning_rate"] == other.metrics["learning_rate"]
        assert one.metrics["loss"] == other.metrics["loss"]


def test_without_signal_a_kl_term_still_pulls_back() -> None:
    one = learner(kl_coefficient=1.0)
    fit(one, batch(), batch())
    before = weights(one)
    (update,) = fit(one, silent())
    assert update.metrics["no_signal"] == 0
    assert update.metrics["grad_norm"] > 0
    assert not all(torch.equal(value, before[name]) for name, value in weights(one).items())


def test_a_falling_schedule_needs_an_end() -> None:
    with pytest.raises(ConfigError, match="needs total_updates"):
        learner(schedule="cosine")


def test_the_first_step_is_adamws() -> None:
    # After one step Adam moves every entry with a gradient by learning_rate (its sign).
    model = tiny_model(vocab_size=VOCABULARY)
    before = copy.deepcopy(model.state_dict())
    fit(learner(model, learning_rate=1e-3), batch())
    moved = (model.state_dict()["model.norm.weight"] - before["model.norm.weight"]).abs()
    assert torch.allclose(moved, torch.full_like(moved, 1e-3), rtol=1e-3)


def test_weight_decay_spares_norms() -> None:
    model = tiny_model(vocab_size=VOCABULARY)
    before = copy.deepcopy(model.state_dict())
    # The KL to the weights themselves has the gradient 0, so nothing but the decay moves them.
    rows = [Row((1, 2, 3), (0, 1, 1), None, (0.0,) * 3, 1.0, "t", "g", 0)]
    settings = {"learning_rate": 0.1, "weight_decay": 0.5, "kl_coefficient": 1.0}
    fit(learner(model, **settings), Batch(tuple(rows)))
    after = model.state_dict()
    assert torch.equal(after["model.norm.weight"], before["model.norm.weight"])
    embedding = "model.embed_tokens.weight"
    assert torch.allclose(after[embedding], before[embedding] * 0.95)


def test_batches_may_end_at_any_time_and_see_the_newest_weights() -> None:
    one = learner()
    seen: list[float] = []

    def batches() -> Iterator[Batch]:
        for _ in range(3):
            seen.append(one.score(batch().rows).logprobs[0][1])
            yield batch()

    one.fit(batches(), on_update=lambda stats: None)
    assert len(set(seen)) == 3
    assert one.updates == 3


def test_an_update_may_publish_save_and_score(tmp_path: Path) -> None:
    one = learner()

    def on_update(stats: UpdateStats) -> None:
        assert not one._model.training
        one.publish()
        one.save(tmp_path / "checkpoint")
        one.score(batch().rows)

    one.fit(iter([batch(0), batch(1)]), on_update=on_update)
    assert one.policy_version == 2
    other = learner()
    other.load(tmp_path / "checkpoint")
    assert all(torch.equal(one, weights(other)[name]) for name, one in weights(one).items())


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.1])
def test_resuming_is_bit_for_bit_with_schedule_and_reference(
    tmp_path: Path, kl_coefficient: float
) -> None:
    settings: dict[str, Any] = {
        "kl_coefficient": kl_coefficient,
        "warmup_updates": 3,
        "schedule": "cosine",
        "weight_decay": 0.01,
    }
    batches = [batch(seed) for seed in range(4)]
    steady = learner(total_updates=5, **settings)
    expected = fit(steady, *batches)[2:]
    stopped = learner(total_updates=5, **settings)
    fit(stopped, *batches[:2])
    stopped.save(tmp_path / "c")
    # Resuming starts from whatever weights the run file names, not from those of the first run.
    resumed = learner(tiny_model(vocab_size=VOCABULARY, seed=9), total_updates=5, **settings)
    resumed.load(tmp_path / "c")
    actual = fit(resumed, *batches[2:])
    for one, other in zip(actual, expected, strict=True):
        assert one.update == other.update
        for name in ("loss", "grad_norm", "learning_rate", "nll"):
            assert one.metrics[name] == other.metrics[name]
    assert all(torch.equal(one, weights(resumed)[name]) for name, one in weights(steady).items())


def test_a_checkpoint_is_an_ordinary_model_folder(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = tiny_model(vocab_size=VOCABULARY)
    one = learner(model)
    fit(one, batch())
    one.save(tmp_path / "c")
    files = {path.name for path in (tmp_path / "c" / "model").iterdir()}
    assert {"config.json", "model.safetensors"} <= files
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "c" / "model")
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)


def test_a_checkpoint_in_place_survives_a_kill_while_replacing_it(tmp_path: Path) -> None:
    one = learner()
    one.publish()
    one.save(tmp_path / "c")
    # Killed after the old one was moved aside and before the new one was in place.
    (tmp_path / "c").rename(tmp_path / ".c.old")
    (tmp_path / ".c.new").mkdir()
    other = learner()
    other.load(tmp_path / "c")
    assert other.policy_version == 1
    other.save(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one = learner()
    one.save(tmp_path / "c")
    with pytest.raises(DataError, match="no reference model"):
        learner(kl_coefficient=0.1).load(tmp_path / "c")
    with pytest.raises(DataError, match="do not fit the model"):
        learner(tiny_model(vocab_size=2 * VOCABULARY)).load(tmp_path / "c")
    (tmp_path / "c" / "learner.json").write_text('{"schema_version": 99}')
    with pytest.raises(SchemaVersionError, match="schema version 99"):
        learner().load(tmp_path / "c")
    (tmp_path / "c" / "learner.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        learner().load(tmp_path / "c")


def test_nothing_is_printed_written_or_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("telemetry was sent")

    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", forbidden)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    model = tiny_model(vocab_size=VOCABULARY)
    config = LearnerConfig(learning_rate=1e-3)
    one = TrlLearner(model, None, config, temperature=1.0, work_dir=tmp_path)
    fit(one, batch())
    one.score(batch().rows)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    one.save(tmp_path / "c")
    learner().load(tmp_path / "c")
    assert capfd.readouterr() == ("", "")


def test_random_states_and_the_model_are_left_as_they_were() -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    model = tiny_model(vocab_size=VOCABULARY)
    before = (model.config.to_dict(), model.generation_config.to_dict())
    one = learner(model)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
    fit(one, batch())
    assert (model.config.to_dict(), model.generation_config.to_dict()) == before
    assert not model.training


def test_a_copy_of_the_model_has_weights_of_its_own() -> None:
    # TRL patches model.forward with a closure over the model; a copy would follow the original.
    model = tiny_model(vocab_size=VOCABULARY)
    one = learner(model)
    frozen, ids = copy.deepcopy(model), torch.tensor([[1, 2, 3]])
    before = frozen(ids).logits.clone()
    fit(one, batch())
    assert torch.equal(frozen(ids).logits, before)
    assert not torch.equal(model(ids).logits, before)


def test_dropout_is_off_in_training() -> None:
    model = tiny_model(vocab_size=VOCABULARY)
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    model.lm_head = torch.nn.Sequential()  # a place for a dropout module that no one calls
    model.lm_head.append(torch.nn.Dropout(0.5))
    learner(model)
    assert all(layer.self_attn.attention_dropout == 0 for layer in model.model.layers)
    assert model.lm_head[0].p == 0


def test_scores_are_at_the_temperature() -> None:
    model = tiny_model(vocab_size=VOCABULARY)
    rows = batch().rows
    scores = learner(model, temperature=0.5).score(rows)
    for row, given in zip(rows, scores.logprobs, strict=True):
        logits = model(torch.tensor([row.token_ids])).logits[0, :-1].double()
        every = torch.log_softmax(logits / 0.5, dim=-1)
        expected = [every[k, token].item() for k, token in enumerate(row.token_ids[1:])]
        assert given[1:] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("layer", "index"), [(0, 0), (1, 1), (-1, 2)])
def test_hidden_states_are_those_before_each_token(layer: int, index: int) -> None:
    model = tiny_model(vocab_size=VOCABULARY)
    rows = batch().rows
    scores = learner(model, micro_batch_tokens=50).score(rows, hidden_layer=layer)
    assert scores.hidden is not None
    for row, hidden in zip(rows, scores.hidden, strict=True):
        ids = torch.tensor([row.token_ids])
        states = model(ids, output_hidden_states=True).hidden_states[index][0]
        assert hidden.shape == (len(row.token_ids), model.config.hidden_size)
        assert not hidden[0].any()
        np.testing.assert_allclose(hidden[1:], states[:-1].detach().numpy(), atol=1e-5)


def test_a_hidden_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hidden_layer=3 does not exist.*0 \(embedding\) to 2"):
        learner().score(batch().rows, hidden_layer=3)
    with pytest.raises(DataError, match="without tokens"):
        learner().score([Row((), (), None, (), 1.0, "t", "g", 0)])


def test_an_update_that_would_break_the_weights_is_not_made() -> None:
    one = learner()
    before = weights(one)
    row = Row((1, 2), (0, 1), (0.0, -1.0), (0.0, -math.inf), 1.0, "t", "g", 0)
    with pytest.raises(LearnerError, match=r"batch 'x' has loss inf.*weights are those before"):
        fit(one, Batch((row,), "x"))
    assert all(torch.equal(value, before[name]) for name, value in weights(one).items())
    assert one.updates == 0
    assert math.isfinite(fit(one, batch())[0].metrics["loss"])


def test_a_batch_without_actions_is_refused() -> None:
    pad = Row((1,), (0,), None, (0.0,), 1.0, "t", "g", 0)
    with pytest.raises(DataError, match="batch 'x' has no action token"):
        fit(learner(), Batch((pad,), "x"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row((1, 2), (1, 1), None, (1.0, 1.0), 1.0, "t", "g", 0), "first token is an action"),
        (Row((), (), None, (), 1.0, "t", "g", 0), "is empty"),
        (Row((1, 2), (0, 1), None, (1.0,), 1.0, "t", "g", 0), "2 tokens but 1 advantages"),
        (Row((1, 2), (0, 1), (0.0,), (0.0, 1.0), 1.0, "t", "g", 0), "1 behaviour_logprobs"),
    ],
)
def test_rows_that_make_no_sense_are_refused(row: Row, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(learner(), Batch((*batch().rows, row)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"importance_sampling_level": "sequence"}, "averages the advantages of a trajectory"),
        ({"loss_type": "grpo"}, "normalised per pass"),
        ({"delta": 3.0}, r"set learner\.dual_clip"),
        ({"off_policy_mask_threshold": 0.1}, "masks tokens, not sequences"),
        ({"top_entropy_quantile": 0.2}, "quantile of each forward pass"),
        ({"entropy_coef": 0.1}, "averages entropy"),
        ({"use_vllm": True}, "set by the learner or does not act on a token"),
    ],
)
def test_options_that_trl_would_get_wrong_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        learner(options=options)


@pytest.mark.parametrize("loss", ["dapo", "decoupled"])  # TRL's KL term, and the learner's own
def test_the_kl_term_may_do_without_the_ratio(loss: str) -> None:
    # After one step the policy is off the reference; the ratio to the (made up) sampling policy
    # is a factor of the KL term or not, so the losses differ.
    rows = tuple(
        replace(row, behaviour_logprobs=(-3.0,) * len(row.token_ids)) for row in silent().rows
    )
    losses = []
    for corrected in (True, False):
        options = {"use_bias_correction_kl": corrected}
        one = learner(kl_coefficient=1.0, loss=loss, options=options)
        losses.append([update.metrics["loss"] for update in fit(one, batch(), Batch(rows))][1])
    assert min(losses) > 0
    assert abs(losses[0] - losses[1]) > 0.01 * losses[0]


def test_losses_normalised_per_micro_batch_are_refused() -> None:
    config = LearnerConfig.model_construct(**(LearnerConfig().model_dump() | {"loss": "grpo"}))
    model = tiny_model(vocab_size=VOCABULARY)
    with pytest.raises(ConfigError, match=r"learner\.loss=grpo is not one of dapo, cispo"):
        TrlLearner(model, None, config, temperature=1.0)


def test_surroundings_that_cannot_work_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"temperature=0\.0 must be above 0"):
        learner(temperature=0.0)
    with pytest.raises(ConfigError, match="got Linear; adapters"):
        learner(torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="no parameter that requires a gradient"):
        learner(tiny_model(vocab_size=VOCABULARY).requires_grad_(False))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="WORLD_SIZE=2"):
        learner()
