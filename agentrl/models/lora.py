"""LoRA: small matrices beside the linear layers of a model, which stays as it is.

A layer ``W x`` becomes ``W x + (alpha / rank) B A dropout(x)``, with A (rank, in) random and B
(out, rank) zero at first, so a new adapter changes nothing. Only A and B require a gradient.

Source: LoRA, Eq. 3 (arXiv 2106.09685). The layers are peft's, put into the model in place: it stays
the same object of the same class, so learner and engine use it as any other model. ``plain_state``
gives the weights that a model without adapter would need to be the same policy; ``save_adapter``
writes peft's own format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.config import LoraConfig
from agentrl.core.errors import ConfigError, DataError, MissingDependencyError, nearest

if TYPE_CHECKING:
    import torch

__all__ = [
    "adapter_tensors",
    "add_adapter",
    "base_state",
    "has_adapter",
    "load_adapter",
    "parameter_counts",
    "plain_state",
    "require_peft",
    "save_adapter",
    "using_adapter",
]

NAME = "default"
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # of names in peft's files
_SAMPLED = 256  # values of a tensor that its fingerprint reads


def require_peft() -> Any:
    """The package peft.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingDependencyError(
            "model.lora needs the package peft: pip install -e '.[lora]' in a checkout of agentrl"
        ) from error
    return peft


def add_adapter(model: Any, settings: LoraConfig, *, seed: int, source: str | None = None) -> None:
    """Put a new adapter into ``model``, in place, and freeze everything else.

    Args:
        model: A causal language model of transformers.
        settings: Its size, and the layers it is for.
        seed: Of the random matrices; torch's own random state stays as it is. source: Name or
            folder of the model, which an adapter's file names as its base.

    Raises:
        MissingDependencyError: peft is not installed.
        ConfigError: a layer that the model does not have, or that an adapter cannot be for.
    """
    peft = require_peft()
    import torch

    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_targets(model, settings),
        task_type="CAUSAL_LM",
        base_model_name_or_path=source,
        fan_in_fan_out=_is_transposed(model),
    )
    model.requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed % 2**63)
        peft.inject_adapter_in_model(config, model, NAME)
    for one in adapter_tensors(model).values():
        if settings.dtype == "float32":
            one.data = one.data.float()
        one.requires_grad_(True)
    model.eval()


def has_adapter(model: Any) -> bool:
    """Whether ``add_adapter`` has been at this model."""
    return NAME in (getattr(model, "peft_config", None) or {})


def adapter_tensors(model: Any) -> dict[str, torch.nn.Parameter]:
    """The adapter's own matrices by name, as ``lora_A.default.weight`` of each layer."""
    return {name: one for name, one in model.named_parameters() if f".{NAME}." in name}


def parameter_counts(model: Any) -> tuple[int, int]:
    """How many parameters are trained, and how many the model has, its adapter's among them."""
    sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
    return sum(size for size, trained in sizes if trained), sum(size for size, _ in sizes)


def plain_state(model: Any) -> dict[str, torch.Tensor]:
    """The state of a model without adapter that is the same policy; ``model`` is not changed.

    Adapted weights are new tensors, ``W + (alpha / rank) B A``, computed in float32 and rounded to
    the dtype of W. All others are the model's own. Without adapter it is the model's state.
    """
    state: dict[str, torch.Tensor] = model.state_dict()
    if not has_adapter(model):
        return state
    merged = {}
    for name, layer in model.named_modules():
        if hasattr(layer, "get_delta_weight"):
            weight = layer.get_base_layer().weight.detach()
            delta = layer.get_delta_weight(NAME).detach()
            merged[f"{name}.base_layer.weight"] = (weight.float() + delta.float()).to(weight.dtype)
    return {
        name.replace(".base_layer.", "."): merged.get(name, one)
        for name, one in state.items()
        if f".{NAME}." not in name
    }


def base_state(model: Any) -> dict[str, torch.Tensor]:
    """The state of the model as it is without its adapter: its own tensors."""
    return {
        name.replace(".base_layer.", "."): one
        for name, one in model.state_dict().items()
        if f".{NAME}." not in name
    }


@contextmanager
def using_adapter(model: Any, tensors: Mapping[str, torch.nn.Parameter]) -> Iterator[None]:
    """Other matrices in the adapter's place, for the length of the block.

    Parameters are exchanged, not written over: what autograd has kept of earlier passes stays
    right. For the same thread as everything else that runs the model meanwhile.
    """
    places = []
    for name, other in tensors.items():
        owner, _, leaf = name.rpartition(".")
        places.append((model.get_submodule(owner), leaf, other))
    own = [getattr(module, leaf) for module, leaf, _ in places]
    try:
        for module, leaf, other in places:
            setattr(module, leaf, other)
        yield
    finally:
        for (module, leaf, _), mine in zip(places, own, strict=True):
            setattr(module, leaf, mine)


def save_adapter(
    model: Any, folder: Path, tensors: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write the adapter in peft's own format: adapter_config.json, adapter_model.safetensors.

    Args:
        model: Has an adapter.
        folder: Made if it is not there.
        tensors: Matrices to write in the place of the model's own.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    given = adapter_tensors(model) if tensors is None else tensors
    save_file(
        {_file_name(name): one.detach().cpu().contiguous() for name, one in given.items()},
        folder / WEIGHTS,
        metadata={"format": "pt", "base": _fingerprint(model)},
    )
    model.peft_config[NAME].save_pretrained(folder)


def load_adapter(
    model: Any, folder: Path, tensors: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Copy an adapter's file into the model's adapter (or ``tensors``), in place, bit for bit.

    Raises:
        DataError: there is none, it is damaged, of another size, for other layers, scaled
            otherwise, or was trained on another base model.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    given = adapter_tensors(model) if tensors is None else tensors
    _check_scale(model, folder)
    try:
        with safe_open(str(folder / WEIGHTS), "pt") as file:
            base = (file.metadata() or {}).get("base")
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read the adapter '{folder / WEIGHTS}': {error}") from error
    if base is not None and base != _fingerprint(model):
        raise DataError(
            f"the adapter in '{folder}' was trained on another model than this one (the weights "
            "under it differ): give the model that it was made for as model.path"
        )
    wanted = {_file_name(name): tuple(one.shape) for name, one in given.items()}
    found = {name: tuple(one.shape) for name, one in saved.items()}
    wrong = sorted(one for one in wanted.keys() | found.keys() if wanted.get(one) != found.get(one))
    if wrong:
        name = wrong[0]
        raise DataError(
            f"the adapter in '{folder}' does not fit model.lora: '{name}' has shape "
            f"{found.get(name, 'none')} there and {wanted.get(name, 'none')} here "
            f"({len(wrong)} differ); use the rank and target_modules of its adapter_config.json"
        )
    with torch.no_grad():
        for name, one in given.items():
            one.copy_(saved[_file_name(name)])


def _check_scale(model: Any, folder: Path) -> None:
    peft = require_peft()
    try:
        written = peft.PeftConfig.from_pretrained(str(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"no adapter in '{folder}': {error}; expected adapter_config.json and {WEIGHTS}"
        ) from error
    own = model.peft_config[NAME]
    plain = {"use_rslora": False, "use_dora": False, "bias": "none"}
    for key, value in {"lora_alpha": own.lora_alpha, "r": own.r, **plain}.items():
        if getattr(written, key, None) != value:
            raise DataError(
                f"the adapter in '{folder}' has {key}={getattr(written, key, None)!r}, and "
                f"{value!r} is expected: set model.lora.rank (r) and model.lora.alpha (lora_alpha) "
                "to what its adapter_config.json says; variants of LoRA are not supported"
            )


def _file_name(name: str) -> str:
    return _PREFIX + name.replace(f".{NAME}.", ".")


def _linear_layers(model: Any) -> dict[str, Any]:
    """The layers that an adapter can be for: all linear ones but the head."""
    import torch
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    return {
        name: one
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear | Conv1D) and one is not head
    }


def _is_transposed(model: Any) -> bool:
    return any(type(one).__name__ == "Conv1D" for one in _linear_layers(model).values())


def _targets(model: Any, settings: LoraConfig) -> str | list[str]:
    layers = _linear_layers(model)
    if not layers:
        raise ConfigError(
            f"{type(model).__name__} has no linear layers but its head, and model.lora adapts "
            "those: remove model.lora to train all weights"
        )
    if isinstance(settings.target_modules, str):
        return settings.target_modules
    known = sorted({name.rpartition(".")[2] for name in layers})
    for wanted in settings.target_modules:
        if not any(name == wanted or name.endswith(f".{wanted}") for name in layers):
            raise ConfigError(
                f"model.lora.target_modules: this model has no linear layer '{wanted}'"
                f"{nearest(wanted, known) or '.'} It has: {', '.join(known)}. Embeddings and the "
                "head are not adapted; all-linear takes all of these."
            )
    return list(settings.target_modules)


def _fingerprint(model: Any) -> str:
    """Of the weights under the adapter: names, shapes and evenly spaced values, as hexadecimal."""
    import torch

    total = 0
    state = {name.replace(".base_layer.", "."): one for name, one in model.state_dict().items()}
    for name, one in sorted(state.items()):
        if f".{NAME}." in name:
            continue
        flat = one.detach().reshape(-1)
        # Rounded: the same model loaded in another dtype is the same base.
        values = flat[:: max(1, flat.numel() // _SAMPLED)].to("cpu", torch.bfloat16).float()
        told = f"{name} {tuple(one.shape)}".encode()
        total = zlib.crc32(values.numpy().tobytes(), zlib.crc32(told, total))
    return f"{total:08x}"
