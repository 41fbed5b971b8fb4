"""A small tokenizer for the chat template of every model family: nothing is downloaded.

The templates are those that the installed trl package carries; they are read there and never
copied. A family's tokenizer is a byte-level BPE of about 330 tokens with that family's own control
tokens, so that a template meets what it was written for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, MissingDependencyError

__all__ = ["FAMILIES", "Family", "family_of", "family_tokenizer", "template_files"]

# Two line breaks are one token, as in nearly every tokenizer of a chat model.
_TEXTS = ("system\n\nuser\n\nassistant hello go to desk", "You arrive at desk. Find a mug.")
# Words with a leading space, single digits, line breaks: as most of these tokenizers split.
_PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class Family:
    """The tokens of one family.

    Attributes:
        prefix: What the names of its templates begin with. control: Its special tokens.
        bos, eos: Two of them; no ``bos`` where the family has none.
        added: Added tokens that are not special (marks of calls and of thinking).
        eats: Control tokens that take the white space after them along.
    """

    prefix: str
    control: tuple[str, ...]
    eos: str
    bos: str | None = None
    added: tuple[str, ...] = ()
    eats: tuple[str, ...] = ()


def _tokens(*lines: str) -> tuple[str, ...]:
    return tuple(token for line in lines for token in line.split())


_CHATML = _tokens("<|endoftext|> <|im_start|> <|im_end|>")
_VISION = _tokens("<|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>")
_THINK = _tokens("<think> </think>")
_QWEN_MARKS = (*_THINK, *_tokens("<tool_call> </tool_call> <tool_response> </tool_response>"))
_GLM = _tokens("<|endoftext|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|>")
_GLM_MARKS = (*_QWEN_MARKS, *_tokens("<arg_key> </arg_key> <arg_value> </arg_value>"))
_LLAMA = _tokens(
    "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|>",
    "<|eot_id|> <|eom_id|> <|python_tag|>",
)
_COHERE = _tokens(
    "<BOS_TOKEN> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|SYSTEM_TOKEN|> <|USER_TOKEN|>",
    "<|CHATBOT_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|>",
)
_DEEPSEEK = _tokens(
    "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁sep｜>",
    "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>",
)
_GEMMA = _tokens("<bos> <eos> <start_of_turn> <end_of_turn>")
_GEMMA4 = _tokens(
    "<bos> <eos> <|turn> <turn|> <|think|> <|channel> <channel|> <|tool> <tool|> <|tool_call>",
    '<tool_call|> <|tool_response> <tool_response|> <|"|>',
)
_LFM = _tokens(
    "<|startoftext|> <|pad|> <|im_start|> <|im_end|> <|tool_list_start|> <|tool_list_end|>",
    "<|tool_call_start|> <|tool_call_end|> <|tool_response_start|> <|tool_response_end|>",
)
_HARMONY = _tokens("<|startoftext|> <|start|> <|message|> <|channel|> <|end|> <|call|> <|return|>")
_MUSE = _tokens("<|begin_of_text|> <|start|> <|message|> <|eot|> <|eom|>")
_PHI = _tokens("<|endoftext|> <|system|> <|user|> <|assistant|> <|end|>")
_MISTRAL = _tokens(
    "<s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
)
_IMAGE = _tokens("<image> <end_of_utterance>")

# The first whose prefix a template's name begins with is its family.
FAMILIES = (
    Family("cohere", _COHERE, "<|END_OF_TURN_TOKEN|>", "<BOS_TOKEN>"),
    Family("deepseek", _DEEPSEEK, "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", _THINK),
    Family("diffusion_gemma", _GEMMA4, "<turn|>", "<bos>"),
    Family("gemma4", _GEMMA4, "<turn|>", "<bos>"),
    Family("gemma", _GEMMA, "<eos>", "<bos>"),
    Family("glm4moe", _GLM, "<|endoftext|>", None, _GLM_MARKS),
    Family("gptoss", _HARMONY, "<|return|>", "<|startoftext|>"),
    Family("idefics3", (*_LLAMA, *_IMAGE), "<end_of_utterance>", "<|begin_of_text|>"),
    Family("lfm2", _LFM, "<|im_end|>", "<|startoftext|>", _THINK),
    Family("llama3", _LLAMA, "<|eot_id|>", "<|begin_of_text|>"),
    Family("llava_next", ("<s>", "</s>", "<image>"), "</s>", "<s>"),
    Family("mistral", _MISTRAL, "</s>", "<s>"),
    Family("muse_glimmer", _MUSE, "<|eot|>", "<|begin_of_text|>"),
    Family("nemotron", ("<s>", *_CHATML), "<|im_end|>", "<s>", _QWEN_MARKS),
    Family("phi3", _PHI, "<|endoftext|>", None, (), ("<|system|>", "<|user|>", "<|end|>")),
    Family("qwen", (*_CHATML, *_VISION), "<|im_end|>", None, _QWEN_MARKS),
    Family("smollm2", _CHATML, "<|im_end|>", "<|im_start|>"),
    Family("smolvlm", (*_CHATML, *_IMAGE), "<end_of_utterance>", "<|im_start|>"),
)


def template_files() -> dict[str, Path]:
    """Name to file of every chat template in the installed trl package, sorted by name.

    Raises:
        MissingDependencyError: trl is not installed.
    """
    spec = find_spec("trl")
    if spec is None or spec.origin is None:
        raise MissingDependencyError("the families' chat templates are read from the package trl")
    folder = Path(spec.origin).parent / "chat_templates"
    return {file.stem: file for file in sorted(folder.glob("*.jinja"))}


def family_of(template: str) -> Family:
    """The family that a template's name belongs to.

    Raises:
        ConfigError: none that is known.
    """
    found = next((one for one in FAMILIES if template.startswith(one.prefix)), None)
    if found is None:
        known = ", ".join(one.prefix for one in FAMILIES)
        raise ConfigError(f"no family of '{template}' is known; there are: {known}")
    return found


@cache
def family_tokenizer(template: str) -> Any:
    """A small fast tokenizer with the tokens of the family of ``template``; it has no template."""
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    family = family_of(template)
    tokenizer = Tokenizer.from_str(_trained())
    tokenizer.add_special_tokens(
        [AddedToken(one, special=True, rstrip=one in family.eats) for one in family.control]
    )
    tokenizer.add_tokens([AddedToken(one, normalized=False) for one in family.added])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.eos,
        clean_up_tokenization_spaces=False,
    )


@cache
def _trained() -> str:
    """The tokenizer without any added token, as JSON."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=sorted(byte_level.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(list(_TEXTS) * 5, trainer)
    return json.dumps(json.loads(tokenizer.to_str()))
