"""An engine with weights of its own in the process of its learner: ready at once, for tests.

As ``agentrl.engines.hf.hosted``, without the process: it samples from a copy of the model, and a
publication changes the copy between two forward passes. It shares the processor with the learner.
"""

from __future__ import annotations

import copy
from typing import Any

from agentrl.engines.hf.engine import HfEngine

__all__ = ["CopiedEngine"]


class CopiedEngine(HfEngine):
    """Samples from a copy of ``model``; arguments as of ``HfEngine``."""

    own_weights = True

    def __init__(self, model: Any, **options: Any) -> None:
        self._published, self._copy = model, copy.deepcopy(model)
        super().__init__(self._copy, **options)

    def set_version(self, version: int) -> None:
        """Copy the weights as they are now."""
        import torch

        with self.changing_weights(version), torch.no_grad():
            now = self._published.state_dict()
            for name, one in self._copy.state_dict().items():
                one.copy_(now[name])
