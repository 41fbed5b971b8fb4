"""The policy that the KL term is taken to: the one that the stage began with, frozen.

With all weights in training it is a copy of the model. With an adapter (``models.lora``) it is the
same model with a copy of the adapter alone: a new adapter adds nothing, so then it is the model
without one, and no weight is held twice.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Protocol

import torch

from agentrl.learn.checkpoint import load_weights
from agentrl.learn.logprobs import TokenScores
from agentrl.learn.scoring import ScoreTokens
from agentrl.learn.trl_trainer import token_scorer
from agentrl.models.lora import (
    adapter_tensors,
    has_adapter,
    load_adapter,
    save_adapter,
    using_adapter,
)

__all__ = ["AdapterFolder", "Reference", "reference_of"]


class Reference(Protocol):
    """A frozen policy."""

    def scorer(self, score: ScoreTokens, temperature: float) -> ScoreTokens:
        """What scores under it; ``score`` does so under the policy, at the temperature."""

    def save_pretrained(self, folder: Path) -> None:
        """Write it to a folder."""

    def load(self, folder: Path) -> None:
        """Take it from such a folder, in place."""


class ModelReference:
    """A copy of a whole model."""

    def __init__(self, model: Any) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    def scorer(self, score: ScoreTokens, temperature: float) -> ScoreTokens:
        return token_scorer(self.model, temperature)

    def save_pretrained(self, folder: Path) -> None:
        self.model.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        load_weights(self.model, folder)


class AdapterReference:
    """A copy of a model's adapter, put in the adapter's place for as long as it scores."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._frozen = {
            name: torch.nn.Parameter(one.detach().clone(), requires_grad=False)
            for name, one in adapter_tensors(model).items()
        }

    def scorer(self, score: ScoreTokens, temperature: float) -> ScoreTokens:
        def scored(ids: torch.Tensor, chosen: torch.Tensor, attended: torch.Tensor) -> TokenScores:
            training = self._model.training
            self._model.eval()  # the adapter's dropout is for what is trained
            try:
                with using_adapter(self._model, self._frozen):
                    return score(ids, chosen, attended)
            finally:
                self._model.train(training)

        return scored

    def save_pretrained(self, folder: Path) -> None:
        save_adapter(self._model, folder, self._frozen)

    def load(self, folder: Path) -> None:
        load_adapter(self._model, folder, self._frozen)


class AdapterFolder:
    """Saves a model's adapter where a whole model would be saved."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def save_pretrained(self, folder: Path) -> None:
        save_adapter(self._model, folder)


def reference_of(model: Any) -> Reference:
    """The policy as it is now, frozen."""
    return AdapterReference(model) if has_adapter(model) else ModelReference(model)
