"""TRL's GRPOTrainer as a maker of optimiser steps: the only file that touches TRL.

One ``Batch`` is one optimiser step. The trainer's generation, rewards, data loading, logging and
checkpoints are bypassed; TRL gives the loss (``_compute_loss``) and the Trainer its loop. All that
an algorithm has to say is folded into a 2-D tensor of advantages::

    loss = 1/N * sum over action tokens of  -min(r A, clip(r, 1 - low, 1 + high) A),   A = w * a

with r the ratio to the behaviour policy, a the advantage and w >= 0 the weight of the token (min
and clip are positively homogeneous in A), N the action tokens of the whole batch. So the loss does
not depend on how the batch is cut into micro-batches.

Refused, because TRL would go wrong without a word: a ratio per sequence (it averages the
advantages of a trajectory), losses normalised per micro-batch, more than one process.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from agentrl.core.errors import ConfigError, DataError, LearnerError
from agentrl.core.trajectory import Batch
from agentrl.learn.logprobs import TokenScores, chosen_logprobs, has_plain_head
from agentrl.learn.micro_batch import MicroBatch, check_rows, cut, rows_to_compute
from agentrl.learn.scoring import ScoreTokens
from agentrl.learn.update_metrics import UpdateSums

__all__ = ["StepTrainer", "check_options", "make_trainer", "token_scorer"]

# TRL's losses whose normaliser is the action tokens of the whole step.
LOSSES = ("dapo", "cispo")
# The number of batches is unknown: the source says when to stop.
NO_LIMIT = 2**62
# Fields of GRPOConfig that act on each token alone, so that our micro-batches keep them exact.
SAFE_OPTIONS = ("delta", "use_bias_correction_kl")
UNSAFE_OPTIONS = {
    "importance_sampling_level": "a ratio per sequence averages the advantages of a trajectory",
    "loss_type": f"set learner.loss, one of {', '.join(LOSSES)}: others are normalised per pass",
    "off_policy_mask_threshold": "with advantages per token TRL masks tokens, not sequences",
    "top_entropy_quantile": "TRL takes the quantile of each forward pass, not of the batch",
    "entropy_coef": "TRL averages entropy over each forward pass, not over the batch",
    "num_iterations": "one batch is one optimiser step; yield it again for another",
    "beta": "set learner.kl_coefficient",
}


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
        self.beta = config.kl_coefficient
        self._settings, self._scorer, self._reference_scorer = config, score, reference
        self._on_step, self._clock = on_step, clock
        high = 1 + config.epsilon_high
        # TRL's cispo takes the cap of the ratio itself where dapo takes the distance from 1.
        self.epsilon_high = high if config.loss == "cispo" else config.epsilon_high
        low = 1 - config.epsilon_low if config.loss == "dapo" else 0.0
        self._clip = {"clip_low": low, "clip_high": high}
        self._micro: MicroBatch | None = None
        self._scores: TokenScores | None = None
        self._report: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._mark = 0.0

    def run(self, batches: Iterator[Batch]) -> None:
        """One optimiser step per batch."""
        self._source = self._batches(batches)
        self.train()

    def _batches(self, batches: Iterator[Batch]) -> Iterator[dict[str, Batch]]:
        while True:
            start = self._clock()
            batch = next(batches, None)
            if batch is None:
                break
            self._seconds["wait_s"] = self._clock() - start
            yield {"batch": batch}
        # The Trainer would go on counting to max_steps with nothing to do.
        self.control.should_training_stop = True

    # Public hooks of the Trainer.

    def get_train_dataloader(self) -> Iterator[dict[str, Batch]]:
        """Plain iterator: a data loader would fetch the next batch before the step is made."""
        return self._source

    def training_step(
        self, model: Any, inputs: dict[str, Batch], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Accumulate the gradient of one batch over its micro-batches, clip it."""
        batch, start = inputs["batch"], self._clock()
        check_rows(batch.rows)
        action_tokens = sum(sum(row.action_mask) for row in batch.rows)
        if not action_tokens:
            raise DataError(f"batch '{batch.id}' has no action token; leave such batches out")
        rows = rows_to_compute(batch.rows, every_action=self.beta != 0)
        total = torch.tensor(float(action_tokens), device=self.args.device)
        sums = UpdateSums(**self._clip)
        loss = torch.zeros((), device=self.args.device)
        micro_batches = padded = 0
        for micro in cut(
            rows,
            budget_tokens=self._settings.micro_batch_tokens,
            device=self.args.device,
            dtype=_loss_dtype(model),
        ):
            self._micro = micro
            part = super().training_step(model, self._loss_inputs(micro, total), None)
            assert self._scores is not None
            sums.add(micro, self._scores, part)
            loss = loss + part
            micro_batches, padded = micro_batches + 1, padded + micro.token_ids.numel()
        self._micro = self._scores = None
        self._metrics["train"].clear()
        grad_norm = self._clip_or_refuse(model, batch, loss)
        self._report = sums.metrics() | {
            "grad_norm": grad_norm,
            "learning_rate": float(self.lr_scheduler.get_last_lr()[0]),
            "action_tokens": float(action_tokens),
            "tokens": float(sum(len(row.token_ids) for row in batch.rows)),
            "padded_tokens": float(padded),
            "rows": float(len(batch.rows)),
            "rows_skipped": float(len(batch.rows) - len(rows)),
            "micro_batches": float(micro_batches),
        }
        self._mark = self._clock()
        self._seconds["gradient_s"] = self._mark - start
        return loss

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
        """Score action tokens only; other positions are 0, which the loss masks."""
        micro = self._micro
        assert micro is not None
        assert logits_to_keep == micro.scored.shape[1]
        scores = self._scorer(micro.token_ids, micro.chosen, micro.attended)
        self._scores = TokenScores(scores.logprobs.detach(), scores.entropies.detach())
        blank = scores.logprobs.new_zeros(micro.scored.shape)
        return (
            blank.masked_scatter(micro.scored, scores.logprobs),
            blank.masked_scatter(micro.scored, self._scores.entropies),
            None,
        )

    def _loss_inputs(self, micro: MicroBatch, total: torch.Tensor) -> dict[str, torch.Tensor]:
        """The dictionary that ``GRPOTrainer._compute_loss`` reads."""
        inputs = {
            "prompt_ids": micro.token_ids[:, :1],
            "prompt_mask": micro.attended[:, :1],
            "completion_ids": micro.token_ids[:, 1:],
            "completion_mask": micro.attended[:, 1:],
            "tool_mask": micro.scored.long(),
            "advantages": micro.advantages,
            "num_items_in_batch": total,
        }
        if micro.behaviour is not None:
            inputs["old_per_token_logps"] = micro.behaviour
        if self._reference_scorer is not None:
            with torch.no_grad():
                of = self._reference_scorer(micro.token_ids, micro.chosen, micro.attended)
            blank = torch.zeros_like(micro.advantages)
            inputs["ref_per_token_logps"] = blank.masked_scatter(micro.scored, of.logprobs)
        return inputs

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


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Tells the trainer of the end of a step and of nothing else."""

    trainer: StepTrainer

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
        """Weights, schedule and gradients are those after the step."""
        self.trainer.finish_step()


def check_options(config: LearnerConfig, options: Mapping[str, Any]) -> None:
    """Refuse what TRL would accept and get wrong.

    Raises:
        ConfigError: with the reason.
    """
    if config.loss not in LOSSES:
        raise ConfigError(
            f"learner.loss={config.loss} is not one of {', '.join(LOSSES)}: TRL normalises other "
            "losses within each forward pass, so the gradient would depend on micro_batch_tokens"
        )
    for name in options:
        if name not in SAFE_OPTIONS:
            reason = UNSAFE_OPTIONS.get(name, "it is set by the learner or does not act on a token")
            raise ConfigError(
                f"the TRL option {name}={options[name]!r} is refused: {reason}. "
                f"Possible: {', '.join(SAFE_OPTIONS)}"
            )


def token_scorer(model: Any, temperature: float) -> ScoreTokens:
    """What scores chosen tokens of ``model``: a plain head, or TRL's fused one.

    TRL's head runs in tiles (Triton on a GPU) and knows the model families that scale or cap their
    logits; elsewhere it scores every position, where the plain one scores actions only.
    """
    if model.device.type == "cpu" and has_plain_head(model):

        def plain(ids: torch.Tensor, chosen: torch.Tensor, attended: torch.Tensor) -> TokenScores:
            return chosen_logprobs(model, ids, chosen, temperature=temperature)

        return plain
    with _forward_restored(model):
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
    caches = model.config.use_cache
    with _forward_restored(model), _random_states_restored():
        trainer = StepTrainer(
            model=model,
            args=GRPOConfig(
                # An existing folder: the Trainer would make it. Nothing is written to it.
                output_dir=str(work_dir if work_dir is not None else tempfile.gettempdir()),
                loss_type=config.loss,
                epsilon=config.epsilon_low,
                epsilon_high=config.epsilon_high,
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


@contextmanager
def _forward_restored(model: Any) -> Iterator[None]:
    """Undo the patch of ``model.forward``.

    It holds the model in a closure, so a deep copy of a patched model runs on the weights of the
    original: an engine with a copy of its own would sample from the weights in training.
    """
    patched_before = "forward" in vars(model)
    before = model.forward
    try:
        yield
    finally:
        if patched_before:
            model.forward = before
        elif "forward" in vars(model):
            del model.forward


@contextmanager
def _random_states_restored() -> Iterator[None]:
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)


def _loss_dtype(model: Any) -> torch.dtype:
    return torch.promote_types(model.dtype, torch.float32)
