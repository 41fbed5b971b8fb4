"""Problems as plain data, to tasks with content ids in disjoint splits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.task import Task, content_hash

__all__ = ["Problem", "Problems", "tasks_by_split"]

Problem = Mapping[str, Any]
Problems = str | Path | Iterable[Problem] | Mapping[str, Iterable[Problem]]
SPLITS = ("train", "validation", "test")


def tasks_by_split(problems: Problems, env: str) -> dict[str, tuple[Task, ...]]:
    """Tasks of each split, in the order given, equal problems once.

    Args:
        problems: Mappings of JSON data; a JSONL file of such; or either by split. Without splits, 6
            of 10 problems are in ``train``, 2 in ``validation`` and 2 in ``test``, decided by the
            hash of each problem's content.
        env: Name of the environment, for the tasks.

    Raises:
        ConfigError: what is given is none of that, or a file cannot be read.
        DataError: a problem that is not JSON, one that is in two splits, or no problem at all.
    """
    if isinstance(problems, Mapping):
        given = {split: _listed(some, split) for split, some in problems.items()}
    else:
        given = {"": _listed(problems, "the tasks")}
    found: dict[str, dict[str, Task]] = {split: {} for split in (SPLITS if "" in given else given)}
    home: dict[str, str] = {}
    for named, some in given.items():
        for number, problem in enumerate(some, start=1):
            task_id = _hash(problem, env, f"problem {number} of {named or 'the tasks'}")
            split = named or _drawn(task_id)
            first = home.setdefault(task_id, split)
            if first != split:
                raise DataError(
                    f"one problem is in the splits '{first}' and '{split}' ({_short(problem)}): "
                    "what is trained on measures nothing; leave it in one"
                )
            kind = problem.get("kind", "")
            task = Task(task_id, env, split, dict(problem), kind if isinstance(kind, str) else "")
            found[split].setdefault(task_id, task)
    if not home:
        raise DataError(f"environment '{env}' has no problem; give it some (tasks=...)")
    return {split: tuple(tasks.values()) for split, tasks in found.items() if tasks}


def _drawn(task_id: str) -> str:
    tenth = int(task_id, 16) % 10
    return "train" if tenth < 6 else "validation" if tenth < 8 else "test"


def _hash(problem: Any, env: str, where: str) -> str:
    if not isinstance(problem, Mapping):
        raise DataError(f"{where} is {_short(problem)}; expected a mapping of JSON data")
    try:
        return content_hash({"env": env, "problem": dict(problem)})
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} is no JSON data ({error}): {_short(problem)}") from None


def _listed(problems: Any, where: str) -> Sequence[Any]:
    if isinstance(problems, str | Path):
        return _read(Path(problems))
    if isinstance(problems, Iterable):
        return list(problems)
    raise ConfigError(f"{where} must be problems (mappings) or a JSONL file, got {problems!r}")


def _read(path: Path) -> list[Any]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the tasks '{path}': {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: {error}; expected one JSON object") from None
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
