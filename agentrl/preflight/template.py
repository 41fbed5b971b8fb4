"""What a model's chat template does to a conversation: its tokenizer is asked, no weights yet."""

from __future__ import annotations

from pathlib import Path

from agentrl.config import NO_WEIGHTS, RunConfig
from agentrl.registry import make

__all__ = ["template_words"]


def template_words(config: RunConfig) -> tuple[str, ...]:
    """Where the template rewrites history, and how messages are arranged for it, a sentence each.

    Empty where the renderer is not ``chat``, or the model is not in a folder of this machine.

    Raises:
        ConfigError: the renderer cannot work with this template.
    """
    path, renderer = config.model.path, config.agent.renderer
    if path is None or path == NO_WEIGHTS or renderer.name != "chat":
        return ()
    from agentrl.models.loading import load_tokenizer, resolve_model

    folder = resolve_model(str(path))
    if not Path(folder).is_dir():
        return ()
    made = make("renderer", "chat", renderer.options, tokenizer=load_tokenizer(folder))
    return (*made.prefix_breaks, *made.treatments)
