"""A small tokenizer for text games: whole items and stock phrases are single tokens.

A word-level prompt of a house game costs nearly twice the tokens it needs, and an action of one
decision ("go to drawer 3") becomes five. Here "drawer 3", " go to" and "You arrive at" are one
token each, and every other text is still encoded exactly, down to single bytes.

How a vocabulary is chosen (everything by counts over the texts, ties by text, so that equal texts
in any order give an equal file):

1. The 256 bytes, so that every text has an encoding.
2. Until the vocabulary is full, what saves most tokens next: a word or number; an item (a name and
   its number, " mug 1"); a merge of neighbouring words, punctuation and line breaks into a phrase.
   Item names never enter a phrase: "put a mug" as one token would hide that it speaks of the mug.

Encoding takes, from left to right, the longest phrase or item, else a word, else bytes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.renderers.encoding import clean_text
from agentrl.renderers.plain import CONTROL_TOKENS, END, PAD

__all__ = ["SMALLEST_VOCABULARY", "train_tokenizer"]

SMALLEST_VOCABULARY = 256 + len(CONTROL_TOKENS)
_ITEM = r" ?[^\W\d_]+ \d+(?!\w)"
_ATOM = r" +(?= )| ?[^\W\d_]+| ?\d+|\n+"
_SCAN = re.compile(rf"(?P<item>{_ITEM})|{_ATOM}|.", re.DOTALL)

Phrase = tuple[str, ...]


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 512, *, max_phrase: int = 8, min_count: int = 2
) -> Any:
    """Train a tokenizer for the plain renderer on sample texts (prompts, replies, commands).

    Args:
        texts: Texts as the renderer will encode them: one message or action each.
        vocab_size: Most ids, the 256 bytes and the control tokens included.
        max_phrase: Longest phrase, in words, punctuation marks and line breaks.
        min_count: Items and phrases seen less often get no token.

    Returns:
        A fast tokenizer of transformers; ``decode(encode(text)) == text`` for every text without
        lone surrogates. Its end token is the plain renderer's.

    Raises:
        ConfigError: ``vocab_size`` has no room for bytes and control tokens, or no texts.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"vocab_size={vocab_size} is too small: 256 bytes and {len(CONTROL_TOKENS)} control "
            f"tokens need {SMALLEST_VOCABULARY}"
        )
    words, items, gaps = _count(texts)
    if not words:
        raise ConfigError("train_tokenizer got no text with a word in it; give sample texts")
    saved = Counter({word: count * (_size(word) - 1) for word, count in words.items()})
    whole = _choose(saved, items, gaps, vocab_size - SMALLEST_VOCABULARY, max_phrase, min_count)
    return _build(whole)


def _size(text: str) -> int:
    return len(text.encode())


def _count(texts: Iterable[str]) -> tuple[Counter[str], Counter[str], Counter[Phrase]]:
    """Counts of words (those inside items too), of items, and of gaps between item names."""
    scanned = Counter(clean_text(text) for text in texts)
    words: Counter[str] = Counter()
    items: Counter[str] = Counter()
    lines: list[tuple[list[str | None], int]] = []
    for text, count in scanned.items():
        atoms: list[str | None] = []
        for match in _SCAN.finditer(text):
            if match["item"]:
                items[match[0]] += count
                name, _, number = match[0].rpartition(" ")
                words[name] += count
                words[f" {number}"] += count
                atoms.append(None)
            else:
                words[match[0]] += count
                atoms.append(match[0])
        lines.append((atoms, count))
    names = {item.rpartition(" ")[0].strip() for item in items}
    gaps: Counter[Phrase] = Counter()
    for atoms, count in lines:
        gap: list[str] = []
        for atom in [*atoms, None]:
            if atom is None or atom.strip() in names:
                gaps[tuple(gap)] += count
                gap = []
            else:
                gap.append(atom)
    return words, items, gaps


def _choose(
    saved: Counter[str],
    items: Counter[str],
    gaps: Counter[Phrase],
    room: int,
    max_phrase: int,
    min_count: int,
) -> list[str]:
    """The words, items and phrases that get a token: greedily what saves most tokens next."""
    words = _ranked(saved, 1)
    pairs = _ranked(items, min_count)
    chosen: list[str] = []
    split: dict[Phrase, list[Phrase]] = {
        gap: [(atom,) for atom in gap] for gap in sorted(gaps) if len(gap) > 1
    }
    phrases: set[Phrase] = set()
    while len(chosen) + len(phrases) < room:
        pair, pair_count = _best_pair(split, gaps, max_phrase)
        word_count = saved[words[-1]] if words else 0
        item_count = items[pairs[-1]] if pairs else 0
        if word_count and word_count >= max(item_count, pair_count):
            chosen.append(words.pop())
        elif item_count and item_count >= pair_count:
            chosen.append(pairs.pop())
        elif pair is not None and pair_count >= min_count:
            split = {gap: _merge(parts, pair) for gap, parts in split.items()}
            # A phrase that only ever occurs inside a longer one gives its place back.
            phrases = {part for parts in split.values() for part in parts if len(part) > 1}
        else:
            break
    return chosen + sorted("".join(phrase) for phrase in phrases)


def _ranked(counts: Counter[str], least: int) -> list[str]:
    """Texts with at least ``least`` counts, the most frequent last."""
    kept = [text for text, count in counts.items() if count >= least]
    return sorted(kept, key=lambda text: (-counts[text], text))[::-1]


def _best_pair(
    split: dict[Phrase, list[Phrase]], gaps: Counter[Phrase], max_phrase: int
) -> tuple[tuple[Phrase, Phrase] | None, int]:
    pairs: Counter[tuple[Phrase, Phrase]] = Counter()
    for gap, parts in split.items():
        for left, right in itertools.pairwise(parts):
            if len(left) + len(right) <= max_phrase:
                pairs[left, right] += gaps[gap]
    if not pairs:
        return None, 0
    best = min(pairs, key=lambda pair: (-pairs[pair], pair))
    return best, pairs[best]


def _merge(parts: list[Phrase], pair: tuple[Phrase, Phrase]) -> list[Phrase]:
    merged: list[Phrase] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] = merged[-1] + part
        else:
            merged.append(part)
    return merged


def _build(units: Sequence[str]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = {char: index for index, char in enumerate(sorted(byte_level.alphabet()))}
    for unit in units:
        vocabulary.setdefault(byte_level.pre_tokenize_str(unit)[0][0], len(vocabulary))
    # Without merges, a piece that is no entry of the vocabulary falls to its bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    joined = [unit for unit in units if not re.fullmatch(_ATOM, unit)]
    pattern = f"{_alternatives(joined)}|{_ATOM}" if joined else _ATOM
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )


def _alternatives(units: Iterable[str]) -> str:
    """A pattern that matches the longest of ``units``, as a prefix tree: fast for hundreds."""
    tree: dict[str, Any] = {}
    for unit in units:
        node = tree
        for char in unit:
            node = node.setdefault(char, {})
        node[""] = unit
    return _pattern(tree)


def _pattern(node: dict[str, Any]) -> str:
    branches = [
        (char if char.isalnum() else f"\\x{{{ord(char):x}}}") + _pattern(node[char])
        for char in sorted(node)
        if char
    ]
    if "" in node:
        branches.append(_boundary(node[""]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _boundary(unit: str) -> str:
    """What may not follow: the rest of a word, or the number that makes its end an item's name."""
    if unit[-1].isdigit():
        return r"(?!\w)"
    return r"(?!\w| \d)" if unit[-1].isalpha() else ""
