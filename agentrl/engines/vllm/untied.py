"""Models whose head is their embedding, for a server that takes up new weights.

vLLM's build for CPUs keeps the head in a packed copy. Of a model with tied weights that copy is
made once, at the start, and a reload renews the embedding alone: the server then says that it has
the new weights, and samples with the old head. So such a model is served as one whose head is a
weight of its own, equal to the embedding: its configuration says ``tie_word_embeddings: false``,
and its folder, like every later publication, has a further file with the head. A server that was
started with tied weights passes over that file.

Files of safetensors are read and written as bytes here (length of the header, header, data), so any
dtype will do and nothing is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["add_head", "is_tied", "untied"]

HEAD = "lm_head.weight"
HEAD_FILE = "lm_head.safetensors"
INDEX = "model.safetensors.index.json"
_EMBEDDING = "embed_tokens.weight"
_KEY = "tie_word_embeddings"
_PIECE = 2**22
_LONGEST_HEADER = 100_000_000  # of the format


def is_tied(folder: Path) -> bool:
    """Whether the model in ``folder`` says that its head is its embedding."""
    told = _configuration(folder)
    text = told.get("text_config")
    inner = text if isinstance(text, dict) else {}
    return bool(told.get(_KEY, inner.get(_KEY, False)))


def untied(folder: Path, to: Path) -> Path:
    """Make ``to`` the model in ``folder`` with a head of its own; all else are links to its files.

    Returns:
        ``to``, or ``folder`` if no embedding is found in it under its usual name.
    """
    to.mkdir(parents=True)
    for one in folder.iterdir():
        if one.name not in ("config.json", INDEX, HEAD_FILE) and not one.is_dir():
            (to / one.name).symlink_to(one.absolute())
    if not add_head(to):
        return folder
    told = _configuration(folder)
    told[_KEY] = False
    if isinstance(told.get("text_config"), dict):
        told["text_config"][_KEY] = False
    (to / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return to


def add_head(folder: Path) -> bool:
    """Write the embedding once more, as the head, if the folder's weights have no head.

    Returns:
        Whether the weights have a head now.
    """
    found: tuple[Path, dict[str, Any], int] | None = None
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            header, start = _header(opened)
        if HEAD in header:
            return True
        for name, about in header.items():
            if name.endswith(_EMBEDDING) and found is None:
                found = file, about, start
    if found is None:
        return False
    file, about, start = found
    begin, end = about["data_offsets"]
    told = {HEAD: {**about, "data_offsets": [0, end - begin]}, "__metadata__": {"format": "pt"}}
    header_bytes = json.dumps(told).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    with file.open("rb") as source, (folder / HEAD_FILE).open("wb") as written:
        written.write(len(header_bytes).to_bytes(8, "little") + header_bytes)
        source.seek(start + begin)
        left = end - begin
        while left and (piece := source.read(min(left, _PIECE))):
            written.write(piece)
            left -= len(piece)
    return True


def _header(opened: BinaryIO) -> tuple[dict[str, Any], int]:
    """What a file of safetensors says that it holds, and where its data begin."""
    length = int.from_bytes(opened.read(8), "little")
    try:
        told = json.loads(opened.read(min(length, _LONGEST_HEADER)))
    except ValueError:
        return {}, 0  # no such file; the server will say so
    return (told if isinstance(told, dict) else {}), 8 + length


def _configuration(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
