"""Random starts of tiny policies: Qwen3's architecture, small enough to learn on one CPU core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentrl.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["tiny_policy"]


def tiny_policy(
    tokenizer: Any,
    *,
    hidden_size: int = 128,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int | None = None,
    intermediate_size: int | None = None,
    context: int = 4096,
    seed: int = 0,
) -> PreTrainedModel:
    """A Qwen3 model with random weights that fits ``tokenizer``.

    Tied embeddings, rotary positions, float32, scaled-dot-product attention, in eval mode. The
    same arguments give the same weights; the global random state of torch is left as it was.

    Args:
        tokenizer: Its length is the vocabulary; its end and pad tokens enter the configuration.
        hidden_size: Width, a multiple of ``2 * heads`` (rotary positions need an even head).
        layers: Number of blocks.
        heads: Attention heads. ``kv_heads``: of keys and values, default all.
        intermediate_size: Width of the gated MLP; default ``3 * hidden_size``.
        context: Longest sequence, in tokens.
        seed: Seed of the weights.

    Raises:
        ConfigError: sizes that do not fit together.
    """
    if hidden_size % (2 * heads) or heads % (kv_heads or heads):
        raise ConfigError(
            f"hidden_size={hidden_size} must be a multiple of 2 * heads = {2 * heads}, and "
            f"heads={heads} a multiple of kv_heads={kv_heads or heads}"
        )
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size or 3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        head_dim=hidden_size // heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model.float().eval()
