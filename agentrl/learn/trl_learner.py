"""The learner: weights, optimiser and schedule; TRL's trainer makes the steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from agentrl.config import LearnerConfig
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.protocols import Scores
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.learn.checkpoint import load_checkpoint, load_weights, save_checkpoint
from agentrl.learn.options import check_options
from agentrl.learn.reference import AdapterFolder, reference_of
from agentrl.learn.schedule import check_schedule, learning_rate_factor
from agentrl.learn.scoring import score_rows
from agentrl.learn.trl_trainer import StepTrainer, make_trainer, token_scorer
from agentrl.models.lora import has_adapter

__all__ = ["TrlLearner"]


class TrlLearner:
    """Owns the weights of ``model`` and trains them with TRL's loss.

    The model is trained in place, in the dtype and on the device it has. Outside an optimiser step
    it is in eval mode and exactly the object given (nothing stays patched onto it), so an engine in
    the same process may sample from it between updates. Dropout is switched off in it: the ratio
    to the behaviour policy would otherwise compare different networks. Of a model with an adapter
    (``models.lora``) the adapter alone is trained, and its own dropout, if it was asked for, is on
    in updates.

    Args:
        model: A causal language model of transformers.
        tokenizer: Saved with checkpoints, if it is one; the id of the pad token is also accepted.
            Pads are never seen by a real token, so nothing else depends on it.
        config: Optimiser and loss.
        temperature: Temperature of sampling; log-probabilities are compared at it.
        total_updates: Updates the schedule falls over; needed unless it is constant.
        work_dir: TRL's output directory. Nothing is written into it.
        publish: Called with the new version by ``publish``; brings the weights to the engine.
        policy_version: Version of the weights given.
        options: Further fields of TRL's GRPOConfig; only the safe ones (``options``).
        clock: Seconds, for the timings reported.

    Raises:
        ConfigError: settings that cannot work, with the reason.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: LearnerConfig,
        *,
        temperature: float,
        total_updates: int | None = None,
        work_dir: Path | None = None,
        publish: Callable[[int], None] | None = None,
        policy_version: int = 0,
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        _check_surroundings(model, temperature)
        check_options(config, options or {})
        check_schedule(config.schedule, config.warmup_updates, total_updates)
        self.policy_version = policy_version
        self.updates = 0
        self._model = model
        self._tokenizer = tokenizer if hasattr(tokenizer, "save_pretrained") else None
        self._config = config
        self._publish = publish
        _disable_dropout(model)
        self._reference = reference_of(model) if config.kl_coefficient > 0 else None
        self._score = token_scorer(model, temperature)
        self._optimizer = _optimizer(model, config)
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer,
            partial(
                learning_rate_factor,
                schedule=config.schedule,
                warmup_updates=config.warmup_updates,
                total_updates=total_updates,
            ),
        )
        self._trainer: StepTrainer = make_trainer(
            model,
            config,
            optimizer=self._optimizer,
            scheduler=self._scheduler,
            temperature=temperature,
            options=options or {},
            work_dir=work_dir,
        )
        reference = None
        if self._reference is not None:
            reference = self._reference.scorer(self._score, temperature)
        self._trainer.equip(
            config, score=self._score, reference=reference, on_step=self._after_step, clock=clock
        )
        self._on_update: Callable[[UpdateStats], None] | None = None

    def fit(self, batches: Iterator[Batch], *, on_update: Callable[[UpdateStats], None]) -> None:
        """Make one optimiser step per batch until ``batches`` ends.

        A batch in which nothing can have a gradient (all advantages 0, no KL term or drift, no
        teacher) makes no step: the weights stay, the schedule goes on, and the update is reported
        with ``no_signal`` 1.

        Batches are pulled one at a time, each after the step before it and its ``on_update``; the
        number need not be known. May be called again: optimiser and schedule go on. Nothing is
        published: that is for the caller to do, in ``batches`` or ``on_update``.

        Raises:
            DataError: a batch without rows or with a row that does not fit.
            LearnerError: loss or gradient is not finite; the weights are those before the step.
            Exception: whatever ``batches`` or ``on_update`` raise, unchanged.
        """
        self._on_update = on_update
        try:
            self._trainer.run(batches)
        finally:
            self._on_update = None
            self._optimizer.zero_grad()
            self._model.eval()

    def score(
        self, rows: Sequence[Row], *, hidden_layer: int | None = None, actions_only: bool = False
    ) -> Scores:
        """Log-probabilities of all tokens of rows, at the temperature, without gradient.

        Args:
            rows: Only ``token_ids`` are read, and ``action_mask`` for ``actions_only``.
            hidden_layer: Which hidden state to give too: 0 is the embedding, n the output of layer
                n, -1 the last; ``None``: none.
            actions_only: Score only actions, which spares the vocabulary head; others get 0.

        Returns:
            Per row, ``logprobs[k]`` of token k given those before it, entry 0 being 0; and
            ``hidden``, a float32 array (tokens, width) whose row k is the state before token k
            (row 0 is 0).
        """
        self._model.eval()
        return score_rows(
            self._model,
            rows,
            score=self._score,
            budget_tokens=self._config.micro_batch_tokens,
            hidden_layer=hidden_layer,
            actions_only=actions_only,
        )

    def publish(self) -> int:
        """Hand the weights to the engine as the next version; returns it."""
        self.policy_version += 1
        if self._publish is not None:
            self._publish(self.policy_version)
        return self.policy_version

    def save(self, path: Path) -> None:
        """Write a checkpoint to the folder ``path``, whole or not at all.

        ``path / "model"`` is an ordinary model folder, or an adapter's. Training on after ``load``
        equals never having stopped, bit for bit on the same machine and thread count.
        """
        adapted = has_adapter(self._model)
        models: dict[str, Any] = {"model": AdapterFolder(self._model) if adapted else self._model}
        if self._reference is not None:
            models["reference"] = self._reference
        state = {
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if self._on_gpu else [],
        }
        counters = {"policy_version": self.policy_version, "updates": self.updates}
        save_checkpoint(
            path, models=models, state=state, counters=counters, tokenizer=self._tokenizer
        )

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of a learner with the same model and configuration.

        The version is that of the checkpoint; publish before anything is sampled.

        Raises:
            DataError: there is no checkpoint, it is damaged, or it does not fit.
        """
        folder, state, counters = load_checkpoint(path)
        load_weights(self._model, folder / "model")
        if self._reference is not None:
            if not (folder / "reference").is_dir():
                raise DataError(
                    f"the checkpoint '{folder}' was written with learner.kl_coefficient=0 and has "
                    f"no reference model; this run has {self._config.kl_coefficient}"
                )
            self._reference.load(folder / "reference")
        self._optimizer.load_state_dict(state["optimizer"])
        self._scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] and self._on_gpu:
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        self.policy_version, self.updates = counters["policy_version"], counters["updates"]

    @property
    def _on_gpu(self) -> bool:
        return bool(self._model.device.type == "cuda")

    def _after_step(self, metrics: dict[str, float]) -> None:
        self.updates += 1
        self._model.eval()
        if self._on_update is not None:
            self._on_update(UpdateStats(self.updates, self.policy_version, metrics))


def _check_surroundings(model: Any, temperature: float) -> None:
    if not isinstance(model, PreTrainedModel):
        raise ConfigError(
            f"TrlLearner trains a transformers PreTrainedModel in place, got {type(model).__name__}"
            "; adapters are trained with model.lora (agentrl.models.lora), a PeftModel is not: "
            "merge it into its model first"
        )
    if temperature <= 0:
        raise ConfigError(
            f"sampling.temperature={temperature} must be above 0 for training: greedy sampling "
            "has no log-probabilities to compare with"
        )
    processes = os.environ.get("WORLD_SIZE", "1")
    if processes not in ("", "1"):
        raise ConfigError(
            f"WORLD_SIZE={processes}: TrlLearner runs in one process. Start it without torchrun "
            "or accelerate launch"
        )
    if model.device.type == "cuda" and model.device.index not in (None, 0):
        raise ConfigError(
            f"the model is on {model.device}, and the trainer uses the first visible GPU only: set "
            f"CUDA_VISIBLE_DEVICES={model.device.index} and model.device=cuda"
        )
    if not any(one.requires_grad for one in model.parameters()):
        raise ConfigError("the model has no parameter that requires a gradient")


def _disable_dropout(model: Any) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and ".lora_dropout." not in name:
            module.p = 0.0
        if getattr(module, "attention_dropout", 0.0):
            module.attention_dropout = 0.0


def _optimizer(model: Any, config: LearnerConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only, not on norms and biases."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [one for one in parameters if one.ndim >= 2]},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(0.9, config.adam_beta2),
        weight_decay=config.weight_decay,
        fused=True,
    )
