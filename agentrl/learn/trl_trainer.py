"""TRL's GRPOTrainer as a maker of optimiser steps: the only file that touches TRL.

One ``Batch`` is one optimiser step. The trainer's generation, rewards, data loading, logging and
checkpoints are bypassed; TRL gives the loss (``_compute_loss``) and the Trainer its loop. All that
an algorithm has to say is folded into a 2-D tensor of advantages and the log-probabilities that
the ratio is taken to (``objectives``)::

    loss = 1/N * sum over action tokens of  -min(r A, clip(r, 1 - low, 1 + high) A),   A = w * a

with r the ratio, a the advantage and w >= 0 the weight of the token (min and clip are positively
homogeneous in A), N the action tokens of the whole batch. So the loss does not depend on how the
batch is cut into micro-batches. What no advantage can say is a term added to it (``terms``).

Refused, because TRL would go wrong without a word: a ratio per sequence (it averages the
advantages of a trajectory), losses normalised per micro-batch, more than one process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from agentrl.config import LearnerConfig
from agentrl.core.errors import LearnerError
from agentrl.core.trajectory import Batch
from agentrl.learn.logprobs import TokenScores, chosen_logprobs, has_plain_head
from agentrl.learn.micro_batch import MicroBatch, cut
from agentrl.learn.objectives import Surrogate, objective_of
from agentrl.learn.restoring import dropout_of, forward_restored, random_states_restored
from agentrl.learn.scoring import ScoreTokens
from agentrl.learn.terms import distillation_losses, kl_losses
from agentrl.learn.update import Update, prepare_update
from agentrl.learn.update_metrics import UpdateSums

__all__ = ["StepTrainer", "make_trainer", "token_scorer"]

# The number of batches is unknown: the source says when to stop.
NO_LIMIT = 2**62


class StepTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer fed with whole batches: one item of its source is one optimiser step."""

    def equip(
        self,
        config: LearnerConfig,
        *,
        score: ScoreTokens,
        reference: ScoreTokens | None,
        on_step: Callable[[dict[str, float]], None],
        clock: Callable[[], float],
    ) -> None:
        """Give what GRPOTrainer's constructor has no place for."""
        # Set here, not in GRPOConfig: there TRL would load a reference model from a hub path.
        objective = self._objective = objective_of(config)
        self.beta = 0.0 if objective.own_kl else config.kl_coefficient
        self._settings, self._scorer, self._reference_scorer = config, score, reference
        self._on_step, self._clock = on_step, clock
        # TRL's cispo takes the cap of the ratio itself where dapo takes the distance from 1.
        self.epsilon_low = objective.low
        self.epsilon_high = objective.high + (objective.trl_loss == "cispo")
        self._pass: _Pass | None = None
        self._distillation: list[torch.Tensor] = []
        self._report: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._mark = 0.0

    def run(self, batches: Iterator[Batch]) -> None:
        """One optimiser step per batch that has something to learn from."""
        updates = self._updates(batches)
        # The Trainer complains about a source that is empty from the start.
        first = next(updates, None)
        if first is not None:
            self._source = self._until_done(chain((first,), updates))
            self.train()

    def _updates(self, batches: Iterator[Batch]) -> Iterator[Update]:
        """Batches to make a step of; the others only move the schedule on."""
        while True:
            start = self._clock()
            batch = next(batches, None)
            if batch is None:
                return
            self._seconds["wait_s"] = self._clock() - start
            update = prepare_update(batch, self._settings)
            if update.rows:
                yield update
            else:
                self._pass_over(update)

    def _until_done(self, updates: Iterator[Update]) -> Iterator[dict[str, Update]]:
        for update in updates:
            yield {"update": update}
        # The Trainer would go on counting to max_steps with nothing to do.
        self.control.should_training_stop = True

    def _pass_over(self, update: Update) -> None:
        """Make no optimiser step, for momentum and weight decay would move the weights."""
        rate = self.lr_scheduler.get_last_lr()[0]
        self.lr_scheduler.optimizer._opt_called = True  # else torch warns of a step left out
        self.lr_scheduler.step()
        zeros = ("loss", "grad_norm", "padded_tokens", "micro_batches", "gradient_s", "optimiser_s")
        report = dict.fromkeys(zeros, 0.0) | update.sizes() | {"learning_rate": float(rate)}
        self._on_step(report | {"no_signal": 1.0, "wait_s": self._seconds["wait_s"]})

    # Public hooks of the Trainer.

    def get_train_dataloader(self) -> Iterator[dict[str, Update]]:
        """Plain iterator: a data loader would fetch the next batch before the step is made."""
        return self._source

    def training_step(
        self, model: Any, inputs: dict[str, Update], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Accumulate the gradient of one batch over its micro-batches, clip it."""
        update, start = inputs["update"], self._clock()
        sums, loss = UpdateSums(), torch.zeros((), device=self.args.device)
        self._distillation.clear()
        micro_batches = padded = 0
        for micro in cut(
            update.rows,
            budget_tokens=self._settings.micro_batch_tokens,
            device=self.args.device,
            dtype=_loss_dtype(model),
        ):
            with dropout_of(model, f"{update.batch.id}/{micro_batches}"):
                part = super().training_step(model, {"micro": micro, "update": update}, None)
            assert self._pass is not None
            sums.add(micro, self._pass.scores, self._pass.surrogate, part)
            loss = loss + part
            micro_batches, padded = micro_batches + 1, padded + micro.token_ids.numel()
        self._pass = None
        self._metrics["train"].clear()
        grad_norm = self._clip_or_refuse(model, update.batch, loss)
        self._report = (
            sums.metrics()
            | update.sizes()
            | {
                "grad_norm": grad_norm,
                "learning_rate": float(self.lr_scheduler.get_last_lr()[0]),
                "padded_tokens": float(padded),
                "micro_batches": float(micro_batches),
                "no_signal": 0.0,
            }
        )
        if self._distillation:
            self._report["distillation"] = float(torch.stack(self._distillation).sum())
        self._mark = self._clock()
        self._seconds["gradient_s"] = self._mark - start
        return loss

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        """TRL's loss of one micro-batch with the objective folded in, and the added terms."""
        micro: MicroBatch = inputs["micro"]
        update: Update = inputs["update"]
        scores = self._scorer(micro.token_ids, micro.chosen, micro.attended)
        scored = TokenScores(scores.logprobs.detach(), scores.entropies.detach())
        blank = scored.logprobs.new_zeros(micro.scored.shape)
        logprobs = blank.masked_scatter(micro.scored, scores.logprobs)
        surrogate = self._objective.surrogate(micro, logprobs.detach())
        self._pass = _Pass(micro, scored, logprobs, surrogate)
        reference = None
        if self._reference_scorer is not None:
            with torch.no_grad():
                of = self._reference_scorer(micro.token_ids, micro.chosen, micro.attended)
            reference = blank.masked_scatter(micro.scored, of.logprobs)
        total = blank.new_tensor(float(update.action_tokens))
        of_trl = self._loss_inputs(total, reference)
        loss: torch.Tensor = super().compute_loss(model, of_trl, return_outputs)
        if surrogate.losses is not None:
            value = surrogate.losses[micro.scored].sum() / total
            loss = loss + (value - loss).detach()
        if self._objective.own_kl and reference is not None:
            kl = kl_losses(
                logprobs,
                reference,
                micro.behaviour,
                corrected=self.args.use_bias_correction_kl,
            )
            loss = loss + self._settings.kl_coefficient * kl[micro.scored].sum() / total
        return loss + self._distilled(logprobs, update)

    def finish_step(self) -> None:
        """Report the step the Trainer has just made."""
        self._seconds["optimiser_s"] = self._clock() - self._mark
        self._on_step(self._report | self._seconds)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Keep silent: what is reported goes through ``on_update``."""

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: it would walk all parameters at each step."""
        return 0

    # Private parts of TRL and transformers.

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs

    def _send_telemetry(self) -> None:
        """Tell nobody."""

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        return self._report["grad_norm"]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *arguments: Any,
        **keywords: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Scores of the action tokens; other positions are 0, which the loss masks."""
        now = self._pass
        assert now is not None
        assert logits_to_keep == now.micro.scored.shape[1]
        blank = torch.zeros_like(now.logprobs)
        return now.logprobs, blank.masked_scatter(now.micro.scored, now.scores.entropies), None

    def _loss_inputs(
        self, total: torch.Tensor, reference: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """The dictionary that ``GRPOTrainer._compute_loss`` reads."""
        assert self._pass is not None
        micro, surrogate = self._pass.micro, self._pass.surrogate
        inputs = {
            "prompt_ids": micro.token_ids[:, :1],
            "prompt_mask": micro.attended[:, :1],
            "completion_ids": micro.token_ids[:, 1:],
            "completion_mask": micro.attended[:, 1:],
            "tool_mask": micro.scored.long(),
            "advantages": surrogate.advantages,
            "num_items_in_batch": total,
        }
        if surrogate.old is not None:
            inputs["old_per_token_logps"] = surrogate.old
        if reference is not None:
            inputs["ref_per_token_logps"] = reference
        return inputs

    def _distilled(self, logprobs: torch.Tensor, update: Update) -> torch.Tensor | float:
        """The distillation term: a mean over the tokens that a teacher scored, as weighted."""
        config = self._settings.distillation
        assert self._pass is not None
        micro = self._pass.micro
        if config is None or micro.taught is None or not update.taught_weight:
            return 0.0
        assert micro.teacher is not None
        losses = distillation_losses(config, logprobs, micro.behaviour, micro.teacher)
        term = (losses * micro.weights)[micro.taught].sum() / update.taught_weight
        self._distillation.append(term.detach())
        return config.coefficient * term

    def _clip_or_refuse(self, model: Any, batch: Batch, loss: torch.Tensor) -> float:
        parameters = [one for one in model.parameters() if one.grad is not None]
        norm = float(
            torch.nn.utils.clip_grad_norm_(parameters, self._settings.max_grad_norm).item()
        )
        if not (np.isfinite(norm) and torch.isfinite(loss)):
            raise LearnerError(
                f"batch '{batch.id}' has loss {loss.item():g} and gradient norm {norm:g}, which "
                "must be finite. The weights are those before this step. Look for extreme "
                "log-probabilities or advantages in it, or lower learner.learning_rate"
            )
        return norm


@dataclass(frozen=True, slots=True)
class _Pass:
    """One forward pass: scores of its action tokens, and the same log-probabilities spread out."""

    micro: MicroBatch
    scores: TokenScores
    logprobs: torch.Tensor
    surrogate: Surrogate


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Tells the trainer of the end of a step and of nothing else."""

    trainer: StepTrainer

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
        """Weights, schedule and gradients are those after the step."""
        self.trainer.finish_step()


def token_scorer(model: Any, temperature: float) -> ScoreTokens:
    """What scores chosen tokens of ``model``: a plain head, or TRL's fused one.

    TRL's head runs in tiles (Triton on a GPU) and knows the model families that scale or cap their
    logits; elsewhere it scores every position, where the plain one scores actions only.
    """
    if model.device.type == "cpu" and has_plain_head(model):

        def plain(ids: torch.Tensor, chosen: torch.Tensor, attended: torch.Tensor) -> TokenScores:
            return chosen_logprobs(model, ids, chosen, temperature=temperature)

        return plain
    with forward_restored(model):
        add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
        forward = model.forward

    def fused(ids: torch.Tensor, chosen: torch.Tensor, attended: torch.Tensor) -> TokenScores:
        labels = ids.masked_fill(~chosen, -100)
        output = forward(input_ids=ids, attention_mask=attended, labels=labels, fused_lm_head=True)
        scored = chosen[:, 1:]
        return TokenScores(output.log_probs[scored], output.entropy[scored].detach())

    return fused


def make_trainer(
    model: Any,
    config: LearnerConfig,
    *,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    temperature: float,
    options: Mapping[str, Any],
    work_dir: Path | None,
) -> StepTrainer:
    """A trainer without data, generation, rewards and output; leaves ``model`` as it was.

    GRPOTrainer's constructor insists on a reward function, a data set and a tokenizer; it seeds
    the global random states and writes ids of its tokenizer into the model's configuration. What
    it is given is never used, and what it changes is put back.
    """
    text, generation = model.config.get_text_config(), model.generation_config
    pads = (text.pad_token_id, generation.pad_token_id if generation else None)
    caches, objective = model.config.use_cache, objective_of(config)
    with forward_restored(model), random_states_restored():
        trainer = StepTrainer(
            model=model,
            args=GRPOConfig(
                # An existing folder: the Trainer would make it. Nothing is written to it.
                output_dir=str(work_dir if work_dir is not None else tempfile.gettempdir()),
                loss_type=objective.trl_loss,
                epsilon=objective.low,
                epsilon_high=objective.high,
                delta=objective.dual_clip,
                temperature=temperature,
                use_cpu=model.device.type == "cpu",
                bf16=False,
                gradient_checkpointing=False,
                max_steps=NO_LIMIT,
                max_grad_norm=0.0,  # clipped in training_step, where it can be refused
                per_device_train_batch_size=2,
                num_generations=2,
                gradient_accumulation_steps=1,
                report_to="none",
                logging_strategy="no",
                save_strategy="no",
                eval_strategy="no",
                disable_tqdm=True,
                **options,
            ),
            reward_funcs=_no_reward,
            train_dataset=Dataset.from_dict({"prompt": ["", ""]}),
            processing_class=_no_tokenizer(),
            optimizers=(optimizer, scheduler),
        )
    model.config.use_cache = caches
    text.pad_token_id = pads[0]
    if generation:
        generation.pad_token_id = pads[1]
    # train() would collect garbage first (0.4 s) to drop references that the learner holds anyway.
    trainer.accelerator.free_memory = lambda *objects: list(objects)
    # train() would align the special tokens of the model with those of this tokenizer.
    trainer.processing_class = None
    trainer.remove_callback(PrinterCallback)
    steps = _Steps()
    steps.trainer = trainer
    trainer.add_callback(steps)
    return trainer


def _no_reward(**columns: Any) -> list[float]:
    raise AssertionError("the trainer was asked for rewards; it must only make optimiser steps")


def _no_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<pad>", unk_token="<pad>"
    )


def _loss_dtype(model: Any) -> torch.dtype:
    return torch.promote_types(model.dtype, torch.float32)
