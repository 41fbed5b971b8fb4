"""What making a trainer changes and must leave as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agentrl.core.task import derive_seed

__all__ = ["dropout_of", "forward_restored", "random_states_restored"]


@contextmanager
def dropout_of(model: Any, name: str) -> Iterator[None]:
    """Dropout drawn from a stream of the name's own: a resumed run draws what it would have drawn.

    torch's random state is afterwards as it was. Nothing happens for a model without dropout.
    """
    if not any(isinstance(one, torch.nn.Dropout) and one.p > 0 for one in model.modules()):
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(0, name, "dropout") % 2**63)
        yield


@contextmanager
def forward_restored(model: Any) -> Iterator[None]:
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
def random_states_restored() -> Iterator[None]:
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
