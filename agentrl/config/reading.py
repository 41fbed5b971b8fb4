"""Reading a run file: YAML, overrides, and words for what is wrong in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from agentrl.config.learner import LearnerConfig
from agentrl.config.run import RunConfig
from agentrl.config.section import Section
from agentrl.config.stages import CloneStage, ReinforceStage
from agentrl.core.errors import ConfigError, nearest

__all__ = ["load_config"]


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file (or a mapping), apply ``a.b=value`` overrides, validate.

    Values of overrides are YAML (``sampling.temperature=0.7``, ``env.options={difficulty: tiny}``).
    List items are reached by number (``stages.0.iterations=5``).

    Raises:
        ConfigError: no such file, not YAML, an unknown key, a wrong value.
    """
    if isinstance(source, Mapping):
        data: Any = copy.deepcopy(dict(source))
        where = "the configuration"
    else:
        data, where = _read_yaml(Path(source)), str(source)
    for override in overrides:
        _apply(data, override)
    wrong: list[str] = []
    base, stages = data.get("learner"), data.get("stages")
    run: RunConfig | None = None
    try:
        run = RunConfig.model_validate(data)
        base = run.learner.model_dump()
    except ValidationError as error:
        wrong += _explain(error)
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        wrong += _wrong_in_learner(base, stage, number, alone=run is None)
    if run is None or wrong:
        raise ConfigError(f"{where} is not a valid run:\n  " + "\n  ".join(wrong))
    return run


def _wrong_in_learner(base: Any, stage: Any, number: int, *, alone: bool) -> list[str]:
    """What is wrong with the learner's settings of a stage, which override those of the run.

    Args:
        base: The run's. stage: The stage, as it is in the file.
        number: Its number.
        alone: The run is wrong already, perhaps there too: look only at the keys that stand here.
    """
    own = stage.get("learner") if isinstance(stage, Mapping) else None
    if not isinstance(own, Mapping):
        return []
    try:
        LearnerConfig.model_validate({**(base if isinstance(base, Mapping) else {}), **own})
    except ValidationError as error:
        place = ("stages", str(number), str(stage.get("kind")), "learner")
        return _explain(error, place, only=tuple(map(str, own)) if alone else None)
    return []


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets a later key silently replace an equal earlier one; a run file must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' appears twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except FileNotFoundError:
        raise ConfigError(f"no run file at '{path}'; see examples/ for run files") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read run file '{path}': {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"'{path}' must be a mapping of keys, got {type(data).__name__}")
    return data


def _apply(data: Any, override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise ConfigError(f"override '{override}' must look like a.b=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the value of override '{override}' is not valid YAML: {error}"
        ) from None
    *parents, last = path.split(".")
    here = data
    for part in parents:
        if isinstance(here, list):
            here = here[_list_index(here, part, override)]
        else:
            if not isinstance(here.get(part), dict | list):
                here[part] = {}
            here = here[part]
        if not isinstance(here, dict | list):
            raise ConfigError(f"override '{override}': '{part}' is {_short(here)}, with no keys")
    if isinstance(here, list):
        here[_list_index(here, last, override)] = value
    else:
        here[last] = value


def _list_index(items: list[Any], part: str, override: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise ConfigError(
            f"override '{override}': '{part}' must be a number below {len(items)} (a list item)"
        )
    return int(part)


def _explain(
    error: ValidationError, place: Sequence[str] = (), only: Sequence[str] | None = None
) -> list[str]:
    """A line for each error; ``only`` those of these keys, if it is given."""
    lines = []
    for one in error.errors():
        if only is not None and (not one["loc"] or str(one["loc"][0]) not in only):
            continue
        location = [*place, *(str(part) for part in one["loc"])]
        # Discriminated unions put the chosen kind into the location; it is no key of the file.
        shown = ".".join(part for part in location if part not in ("clone", "rl"))
        if one["type"] == "extra_forbidden":
            known = _known_keys(location[:-1])
            lines.append(
                f"unknown key '{shown}'{nearest(location[-1], known) or '.'} "
                f"Known here: {', '.join(sorted(known))}."
            )
        elif one["type"] == "missing":
            lines.append(f"missing key '{shown}'")
        else:
            lines.append(f"{shown or 'run file'}: {one['msg']}; got {_short(one.get('input'))}")
    return lines


def _known_keys(location: Sequence[str]) -> list[str]:
    model: Any = RunConfig
    for part in location:
        if part in ("clone", "rl"):
            model = CloneStage if part == "clone" else ReinforceStage
        elif part == "learner":
            model = LearnerConfig  # in a stage it is a mapping of overrides
        elif not part.isdigit():
            annotation = model.model_fields[part].annotation
            sections = [one for one in (annotation, *get_args(annotation)) if _is_section(one)]
            model = sections[0] if sections else model
    return list(model.model_fields)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
