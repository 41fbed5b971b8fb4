"""Random tiny language models, built in code: what tests of engines and learners run on.

Nothing is downloaded and no global random state is touched. The model has no tokenizer: pair it
with a renderer for tiny models, or feed it ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentrl.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["tiny_model"]


def tiny_model(
    vocab_size: int = 128,
    hidden_size: int = 32,
    layers: int = 2,
    seed: int = 0,
    dtype: Any = None,
    *,
    heads: int = 4,
    max_length: int = 1024,
    initializer_range: float = 0.2,
) -> PreTrainedModel:
    """A Qwen3 model with random weights, in eval mode, equal for equal arguments.

    Args:
        vocab_size: Number of token ids; no id is special.
        hidden_size: Width; a multiple of ``2 * heads`` (rotary embedding halves each head).
        layers: Number of decoder layers.
        seed: Seed of the weights. The caller's random state is left as it was.
        dtype: A torch dtype; ``None`` is float32.
        heads: Attention heads; half as many hold keys and values (at least one).
        max_length: Longest sequence of positions.
        initializer_range: Standard deviation of the weights. Larger than a real model's, so that
            the distributions differ visibly between positions and tests can tell them apart.

    Raises:
        ConfigError: ``hidden_size`` does not fit ``heads``.
    """
    if hidden_size % (2 * heads):
        raise ConfigError(
            f"tiny_model(hidden_size={hidden_size}) must be a multiple of 2 * heads = {2 * heads}"
        )
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=hidden_size // heads,
        max_position_embeddings=max_length,
        initializer_range=initializer_range,
        tie_word_embeddings=True,
        use_sliding_window=False,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = Qwen3ForCausalLM(config)
    return model.to(dtype or torch.float32).eval()
