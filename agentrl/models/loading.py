"""Where a policy comes from: a folder, the hub, or ``builtin:NAME`` inside the package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.core.errors import ConfigError, UnknownPluginError, nearest
from agentrl.models.hub import at_hand
from agentrl.models.lora import plain_state

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = [
    "BUILTIN_FOLDER",
    "load_model",
    "load_tokenizer",
    "quiet_bars",
    "resolve_model",
    "save_policy",
    "use_threads",
]

BUILTIN_FOLDER = Path(__file__).parent / "builtin"
_BUILTIN = "builtin:"
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_DTYPES = ("float32", "bfloat16", "float16", "auto")


def resolve_model(path: str | Path) -> str:
    """The folder or hub id that ``path`` means.

    Raises:
        UnknownPluginError: ``builtin:NAME`` of a model that is not shipped.
        ConfigError: a folder that does not exist.
    """
    text = str(path)
    if text.startswith(_BUILTIN):
        return str(_builtin(text.removeprefix(_BUILTIN)))
    folder = Path(path).expanduser()
    if folder.is_dir():
        return str(folder)
    if isinstance(path, Path) or folder.exists() or not _HUB_ID.fullmatch(text):
        raise ConfigError(
            f"no model folder at '{folder}' (working directory {Path.cwd()}); model.path is a "
            "folder with config.json, model.safetensors and tokenizer.json, a hub id like "
            "Qwen/Qwen3-0.6B, or builtin:NAME"
        )
    return text


def _builtin(name: str) -> Path:
    known = sorted(one.parent.name for one in BUILTIN_FOLDER.glob("*/config.json"))
    if name not in known:
        raise UnknownPluginError(
            f"unknown built-in model '{_BUILTIN}{name}'{nearest(name, known) or '.'} "
            f"Shipped: {', '.join(known) or 'none'}. For a folder give its path without 'builtin:'."
        )
    return BUILTIN_FOLDER / name


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a model (a fast one).

    Raises:
        ConfigError: nothing there, or no tokenizer in it.
    """
    from transformers import AutoTokenizer

    source = resolve_model(path)
    folder = Path(source)
    if folder.is_dir() and not list(folder.glob("tokenizer*")):
        raise ConfigError(
            f"the model folder '{source}' holds no tokenizer (tokenizer.json); save it there with "
            "tokenizer.save_pretrained"
        )
    source = at_hand(source)
    try:
        return AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load the tokenizer of '{path}': {_brief(error)}") from error


def load_model(path: str | Path, dtype: str = "float32", device: str = "auto") -> PreTrainedModel:
    """The causal language model at ``path``, in eval mode.

    Args:
        path: Folder, hub id, or ``builtin:NAME``. Only safetensors are read.
        dtype: Of the loaded weights, however they are stored; ``auto`` keeps what is stored.
        device: ``cpu``, ``cuda``, ``cuda:N``; ``auto`` is the first GPU, or the CPU without one.

    Raises:
        ConfigError: nothing there, no weights in it, an unknown dtype or device.
    """
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype '{dtype}' is unknown; expected one of {', '.join(_DTYPES)}")
    source = resolve_model(path)
    folder = Path(source)
    if folder.is_dir():
        _require_weights(folder)
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device '{device}' is unknown: {_brief(error)}") from error
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device '{device}' asked for, but torch sees no GPU; use device: cpu")
    source = at_hand(source)
    try:
        with quiet_bars():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, use_safetensors=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        hint = "; its files may be damaged" if Path(source).is_dir() else ""
        raise ConfigError(f"cannot load the model '{path}': {_brief(error)}{hint}") from error
    model = model.to(target).eval()
    return model


def _require_weights(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ConfigError(
            f"the folder '{folder}' holds an adapter and no model: give its base model as "
            "model.path, and this folder as model.adapter with model.lora"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the folder '{folder}' is no model: it has no config.json; expected what "
            "save_pretrained writes (config.json, model.safetensors, tokenizer.json)"
        )
    if not list(folder.glob("*.safetensors")):
        found = ", ".join(sorted(one.name for one in folder.iterdir()))
        raise ConfigError(
            f"the model folder '{folder}' holds no weights (*.safetensors), only {found}; save "
            "the model there with save_pretrained. Pickled weights (*.bin) are not read."
        )


def save_policy(
    folder: str | Path,
    model: PreTrainedModel,
    tokenizer: Any,
    dtype: str = "float32",
    state: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a policy: config.json, model.safetensors, tokenizer.json. The model is not changed.

    The adapter of a model that has one (``models.lora``) is merged into what is written.

    ``dtype`` ``bfloat16`` or ``float16`` halves the file; ``load_model`` reads it as float32. With
    ``state`` other weights of the model are written; without a tokenizer none is.

    Raises:
        ConfigError: the dtype is unknown.
    """
    if dtype not in _DTYPES or dtype == "auto":
        raise ConfigError(f"dtype '{dtype}' is unknown; expected one of {', '.join(_DTYPES[:-1])}")
    import torch

    kind = getattr(torch, dtype)
    weights, seen = {}, set()
    for name, value in (plain_state(model) if state is None else state).items():
        place = (value.data_ptr(), value.shape, value.stride())
        if place in seen:
            continue  # tied weights are one, and are tied again when they are loaded
        seen.add(place)
        weights[name] = value.detach().to("cpu", kind)
    with quiet_bars():
        model.save_pretrained(folder, state_dict=weights)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Keep the progress bars of transformers off the console; ours shows what matters."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _brief(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def use_threads(threads: int) -> None:
    """How many threads torch computes with, in this process."""
    import torch

    torch.set_num_threads(threads)
