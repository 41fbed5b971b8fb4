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
MUST_STAY = (
    "rollout.late_groups",
    "rollout.max_staleness",
    "rollout.quorum",
    "rollout.straggler_timeout_s",
)
# These change the last bits of the weights, and nothing else.
CHANGE_BITS = (
    "engine.options.max_batch_size",
    "engine.options.slots",
    "engine.threads",
    "learner.micro_batch_tokens",
    "model.device",
    "stages.*.learner.micro_batch_tokens",
    "threads",
)


def config_to_resume(run_dir: Path, overrides: Sequence[str]) -> tuple[RunConfig, str]:
    """The configuration of the run in ``run_dir``, with what may be changed changed.

    What somebody wrote into its ``config.yaml`` since the run began counts as an override does, and
    stays for later times. The run directory may have been moved since it was made.

    Returns:
        The configuration, and what was changed in the file in words; empty if nothing was.

    Raises:
        ConfigError: no run is there, or a change touches what makes the run what it is.
        DataError: the run directory is damaged. SchemaVersionError: it is of another release.
    """
    old, file = open_run_directory(run_dir), run_dir / CONFIG_FILE
    written, new = load_config(file), load_config(file, overrides)
    possible = MAY_CHANGE if old.deterministic else (*MAY_CHANGE, *CHANGE_BITS)
    edits, changes = _changes(old, written), _changes(old, new)
    refused = {
        key: words
        for key, words in changes.items()
        if key in MUST_STAY or not _is_one_of(key, possible)
    }
    if refused:
        by_hand = [key for key in refused if edits.get(key) == refused[key]]
        where = f" ({', '.join(by_hand)} was changed in '{file}': change it back)"
        raise ConfigError(
            f"the run in '{run_dir}' cannot be resumed with {', '.join(refused.values())}: it "
            f"would be another run{where * bool(by_hand)}. Start one in another directory "
            f"(model.path={run_dir}/model goes on from its weights), or change only "
            f"{', '.join(possible)} (but not {', '.join(MUST_STAY)})"
        )
    return new.model_copy(update={"run_dir": run_dir}), ", ".join(edits.values())


def _changes(before: RunConfig, after: RunConfig) -> dict[str, str]:
    """Keys whose values differ, each with both."""
    old, new = (_flat(one.model_dump(mode="json")) for one in (before, after))
    return {
        key: f"{key} ({old.get(key)!r} -> {new.get(key)!r})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


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
