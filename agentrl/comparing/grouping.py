"""Runs that differ in nothing but their seed are one group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.comparing.runs import ComparedRun
from agentrl.core.errors import ConfigError

__all__ = ["RunGroup", "group_runs"]

# They change where a run lies, what is kept of it and who is told, and not what is learnt.
APART = ("run_dir", "seed", "checkpoints", "store", "trackers")
LONGEST = 60  # characters of a label


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of one configuration, by seed.

    Attributes:
        label: What sets it apart from the other groups.
        runs: In the order of their seeds.
        settings: The keys in which groups differ, with this group's values.
    """

    label: str
    runs: tuple[ComparedRun, ...]
    settings: Mapping[str, Any]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)


def group_runs(runs: Sequence[ComparedRun]) -> tuple[RunGroup, ...]:
    """Group runs by their configuration, in the order in which each group is named first.

    Raises:
        ConfigError: two runs have one configuration and one seed: they are no two samples.
    """
    groups: dict[str, list[ComparedRun]] = defaultdict(list)
    flat = {}
    for run in runs:
        settings = _flat_config(run)
        key = repr(sorted(settings.items()))
        twin = next((one for one in groups[key] if one.seed == run.seed), None)
        if twin is not None:
            raise ConfigError(
                f"'{twin.name}' and '{run.name}' have one configuration and one seed "
                f"({run.seed}): counted as two they would make an interval over seeds too narrow. "
                "Give one of them, or runs with other seeds"
            )
        groups[key].append(run)
        flat[key] = settings
    differing = _differing(list(flat.values()))
    labels = _labels([{key: one.get(key) for key in differing} for one in flat.values()], groups)
    return tuple(
        RunGroup(
            label,
            tuple(sorted(some, key=lambda run: run.seed)),
            {name: flat[key].get(name) for name in differing},
        )
        for label, (key, some) in zip(labels, groups.items(), strict=True)
    )


def _flat_config(run: ComparedRun) -> dict[str, Any]:
    data = run.config.model_dump(mode="json")
    return dict(_leaves({key: one for key, one in data.items() if key not in APART}, ""))


def _leaves(data: Any, path: str) -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": [1]}}`` as ``("a.b.0", 1)``; an empty container is a leaf."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(data, Mapping):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    if not items:
        yield path, data
    for key, value in items:
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]


def _labels(
    settings: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[ComparedRun]]
) -> list[str]:
    """The settings that differ; where they are too many, the first run's directory."""
    labels = [
        ", ".join(f"{key}={value}" for key, value in one.items() if value is not None)
        for one in settings
    ]
    names = [some[0].name for some in groups.values()]
    fits = all(0 < len(label) <= LONGEST for label in labels) and len(set(labels)) == len(labels)
    return labels if fits else names
