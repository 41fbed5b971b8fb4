"""Policies: load one, or build a tiny one with its tokenizer. torch is imported when called."""

from agentrl.models.loading import load_model, load_tokenizer, save_policy
from agentrl.models.tiny import tiny_policy
from agentrl.models.tokenizer import train_tokenizer

__all__ = ["load_model", "load_tokenizer", "save_policy", "tiny_policy", "train_tokenizer"]
