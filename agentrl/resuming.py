"""What a run that is resumed may change, and what it must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.config import RunConfig, load_config
from agentrl.core.errors import ConfigError
from agentrl.run_directory import CONFIG_FILE, open_run_directory

__all__ = ["config_to_resume"]

# What is played and learnt does not depend on these; "*" is one part of the path.
MAY_CHANGE = (
    "checkpoints.*",
    "env.workers.*",
    "rollout.*",
    "stages.*.max_seconds",
    "store.*",
    "trackers.*.name",
    "trackers.*.options.*",
    "trackers.*.options.*.*",
)
# But for these of them: which episodes are learnt from does.
MUST_STAY = ("rollout.quorum", "rollout.straggler_timeout_s")
# These change the last bits of the weights, and nothing else.
CHANGE_BITS = (
    "engine.options.max_batch_size",
    "engine.options.slots",
    "learner.micro_batch_tokens",
    "model.device",
    "stages.*.learner.micro_batch_tokens",
    "threads",
)


def config_to_resume(run_dir: Path, overrides: Sequence[str]) -> RunConfig:
    """The configuration of the run in ``run_dir``, with what may be changed changed.

    The run directory may have been moved since it was made.

    Raises:
        ConfigError: no run is there, or an override touches what makes the run what it is.
        DataError: the run directory is damaged. SchemaVersionError: it is of another release.
    """
    old = open_run_directory(run_dir)
    new = load_config(run_dir / CONFIG_FILE, overrides)
    possible = MAY_CHANGE if old.deterministic else (*MAY_CHANGE, *CHANGE_BITS)
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    refused = [
        f"{key} ({before.get(key)!r} -> {after.get(key)!r})"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and (key in MUST_STAY or not _is_one_of(key, possible))
    ]
    if refused:
        raise ConfigError(
            f"the run in '{run_dir}' cannot be resumed with {', '.join(refused)}: it would be "
            f"another run. Start one in another directory (model.path={run_dir}/model goes on from "
            f"its weights), or change only {', '.join(possible)} (but not {', '.join(MUST_STAY)})"
        )
    return new.model_copy(update={"run_dir": run_dir})


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    """``{"a": {"b": [1]}}`` as ``{"a.b.0": 1}``; empty containers have no entry."""
    if isinstance(data, Mapping):
        items: Sequence[tuple[Any, Any]] = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    else:
        return {path: data}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat |= _flat(value, f"{path}.{key}" if path else str(key))
    return flat


def _is_one_of(key: str, patterns: Sequence[str]) -> bool:
    parts = key.split(".")
    return any(
        len(parts) == len(wanted) and all(a in ("*", b) for a, b in zip(wanted, parts, strict=True))
        for wanted in (pattern.split(".") for pattern in patterns)
    )
