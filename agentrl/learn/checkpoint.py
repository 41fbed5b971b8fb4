"""Learner checkpoints: a folder that is complete or not there.

``model/`` is an ordinary model folder (safetensors), or an adapter's where only an adapter is
trained, ``reference/`` the frozen policy of the KL term if there is one, ``optimiser.pt`` the state
of optimiser and random numbers (read with ``weights_only=True``), ``learner.json`` the counters.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from agentrl.core.errors import DataError, SchemaVersionError, StoreError
from agentrl.models.lora import has_adapter, load_adapter

__all__ = ["load_checkpoint", "load_weights", "quietly", "save_checkpoint"]

SCHEMA_VERSION = 1


def save_checkpoint(
    path: Path,
    *,
    models: Mapping[str, Any],
    state: Mapping[str, Any],
    counters: Mapping[str, int],
    tokenizer: Any = None,
) -> None:
    """Write a checkpoint beside ``path``, force it to disk, then put it in place.

    A checkpoint already at ``path`` is replaced; until the new one is in place the old one stays
    beside it, where ``load_checkpoint`` finds it.

    Args:
        path: Folder to make.
        models: Folder name -> model with ``save_pretrained``.
        state: What ``torch.save`` writes; tensors, numbers, strings and containers of them.
        counters: Written as JSON.
        tokenizer: Saved into ``model/`` too, if given.

    Raises:
        StoreError: the disk refused, it is full for one. Nothing of the new checkpoint is left,
            and an old one is as it was.
    """
    path = Path(path)
    new, old = _beside(path, "new"), _beside(path, "old")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        with quietly():
            for name, model in models.items():
                model.save_pretrained(new / name)
            if tokenizer is not None:
                tokenizer.save_pretrained(new / "model")
        with (new / "optimiser.pt").open("wb") as file:  # its errors name the cause, torch's do not
            torch.save(dict(state), file)
        (new / "learner.json").write_text(
            json.dumps({"schema_version": SCHEMA_VERSION, **counters}, indent=1), encoding="utf-8"
        )
        for each in (*new.rglob("*"), new):
            _force_to_disk(each)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(new, ignore_errors=True)
        cause = error
        while isinstance(cause.__context__, OSError):
            cause = cause.__context__
        raise StoreError(f"cannot write '{path}': {_first_line(cause)}") from error
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    new.rename(path)
    _force_to_disk(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(path: Path) -> tuple[Path, dict[str, Any], dict[str, int]]:
    """Find a checkpoint.

    Returns:
        Its folder, the state and the counters as given to ``save_checkpoint``.

    Raises:
        DataError: there is none, or a file of it is damaged.
        SchemaVersionError: it was written by another version of this format.
    """
    path = Path(path)
    if not path.is_dir() and _beside(path, "old").is_dir():
        path = _beside(path, "old")  # killed between the two renames
    if not (path / "learner.json").is_file():
        raise DataError(f"no learner checkpoint at '{path}'; it would hold a file learner.json")
    try:
        counters = json.loads((path / "learner.json").read_text(encoding="utf-8"))
        version = counters.pop("schema_version")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(f"'{path / 'learner.json'}' is damaged: {error!r}") from None
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the checkpoint '{path}' has schema version {version}, this program reads "
            f"{SCHEMA_VERSION}; load it with the program that wrote it"
        )
    try:
        state = torch.load(path / "optimiser.pt", map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(f"'{path / 'optimiser.pt'}' is damaged: {_first_line(error)}") from error
    return path, state, counters


def load_weights(model: Any, folder: Path) -> None:
    """Copy the weights in a model folder into ``model``, in place and bit for bit.

    For a model with an adapter it is the folder of an adapter, and the rest stays as it is.

    Raises:
        DataError: the folder holds a model of another shape, or damaged files.
    """
    if has_adapter(model):
        load_adapter(model, folder)
        return
    try:
        with quietly():
            saved = type(model).from_pretrained(folder, dtype=model.dtype, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"cannot read the weights in '{folder}': {_first_line(error)}") from error
    try:
        model.load_state_dict(saved.state_dict())
    except RuntimeError as error:
        raise DataError(f"the weights in '{folder}' do not fit the model: {error}") from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _beside(path: Path, name: str) -> Path:
    return path.with_name(f".{path.name}.{name}")


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def quietly() -> Iterator[None]:
    """No progress bars of transformers inside."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
