"""``python -m agentrl.testing.golden PATH...``: check the credit library against reference values.

A golden file is one JSON object: ``algo`` names the family that computes it, ``config`` and
``inputs`` are given to it, every key of ``expected`` must come out within ``tolerance``. Prints a
line per case and ``N passed, N failed`` last. A key of ``expected`` that the family does not
compute fails the case, and so does an input that it does not use. Exit code 0: all passed, 1: a
case failed, 2: misuse.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.core.errors import nearest
from agentrl.testing.golden_families import FAMILIES

__all__ = ["Case", "Used", "check_file", "golden_files", "main"]

PROSE = frozenset({"note", "provenance", "generator", "anchor_generator", "distance", "centroid"})
DIGEST = frozenset({"n", "sum", "abs_sum", "sq_sum", "dot_cos", "first16", "last16"})

Family = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]


class Used(Mapping[str, Any]):
    """A mapping that remembers which of its keys were asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    @property
    def unused(self) -> list[str]:
        """Keys that nobody asked for, prose left out."""
        return sorted(self._data.keys() - self._asked - PROSE)


@dataclass(frozen=True, slots=True)
class Case:
    """One golden file."""

    algo: str
    expected: Mapping[str, Any]
    atol: float
    rtol: float
    config: Used = field(default_factory=lambda: Used({}))
    inputs: Used = field(default_factory=lambda: Used({}))

    @classmethod
    def read(cls, path: Path) -> Case:
        """Read a file.

        Raises:
            ValueError: not JSON, or a required key is missing.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(f"expected a JSON object, got {type(data).__name__}")
        missing = [key for key in ("algo", "expected", "tolerance") if key not in data]
        if missing or not data["expected"]:
            raise ValueError(
                f"not a golden case: missing {', '.join(missing) or 'expected values'}"
            )
        return cls(
            algo=data["algo"],
            expected=data["expected"],
            atol=data["tolerance"]["atol"],
            rtol=data["tolerance"]["rtol"],
            config=Used(data.get("config", {})),
            inputs=Used(data.get("inputs", {})),
        )


def check_file(path: Path, families: Mapping[str, Family] = FAMILIES) -> list[str]:
    """What is wrong in a golden file, in words; empty if it passes."""
    try:
        case = Case.read(path)
    except (ValueError, KeyError, TypeError, OSError) as error:
        return [f"cannot read it: {error}"]
    family = families.get(case.algo)
    if family is None:
        hint = nearest(str(case.algo), families)
        return [f"unknown family '{case.algo}'{hint} Known: {', '.join(sorted(families))}"]

    try:
        got = family(case.config, case.inputs or _table(case.expected))
    except Exception as error:  # whatever a damaged case provokes is that case's failure
        return [f"family '{case.algo}' failed: {type(error).__name__}: {error}"]
    wrong = [
        f"{kind} '{key}' is not used by family '{case.algo}'"
        for kind, mapping in (("config", case.config), ("input", case.inputs))
        for key in mapping.unused
    ]
    return wrong + list(_differences("", got, case.expected, case.atol, case.rtol))


def _table(expected: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inputs of a case without any: a truth table, whose rows hold what is given and wanted."""
    return {"rows": expected["rows"]} if expected.keys() == {"rows"} else {}


def _differences(where: str, got: Any, expected: Any, atol: float, rtol: float) -> Iterator[str]:
    if isinstance(expected, Mapping):
        if expected.keys() == DIGEST:
            yield from _digest_differences(where, got, expected, atol, rtol)
            return
        for key, value in expected.items():
            if key in PROSE:
                continue
            name = f"{where}.{key}" if where else key
            if not isinstance(got, Mapping) or key not in got:
                yield f"expected key '{name}' is not computed by this family"
            else:
                yield from _differences(name, got[key], value, atol, rtol)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        found = got.tolist() if isinstance(got, np.ndarray) else got
        if not isinstance(found, Sequence) or len(found) != len(expected):
            size = len(found) if isinstance(found, Sequence) else type(found).__name__
            yield f"{where}: got length {size}, expected {len(expected)}"
            return
        for position, (one, value) in enumerate(zip(found, expected, strict=True)):
            difference = next(_differences(f"{where}[{position}]", one, value, atol, rtol), None)
            if difference:
                yield difference
                return
    elif not _agree(got, expected, atol, rtol):
        yield f"{where}: got {got!r}, expected {expected!r} (atol {atol:g}, rtol {rtol:g})"


def _agree(got: Any, expected: Any, atol: float, rtol: float) -> bool:
    if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
        return abs(got - expected) <= atol + rtol * abs(expected)
    if isinstance(expected, bool) or isinstance(got, bool):
        return got is expected
    return bool(got == expected)


def _digest_differences(
    where: str, got: Any, expected: Mapping[str, Any], atol: float, rtol: float
) -> Iterator[str]:
    vector = np.asarray(got, dtype=np.float64)
    if vector.shape != (expected["n"],):
        yield f"{where}: got shape {vector.shape}, expected ({expected['n']},)"
        return
    allowed = atol * np.sqrt(expected["n"]) + rtol * expected["abs_sum"]
    digest = {
        "sum": vector.sum(),
        "abs_sum": np.abs(vector).sum(),
        "sq_sum": (vector**2).sum(),
        "dot_cos": (vector * np.cos(0.37 * np.arange(len(vector)))).sum(),
    }
    for key, value in digest.items():
        if not abs(value - expected[key]) <= allowed:
            yield f"{where}.{key}: got {value}, expected {expected[key]} within {allowed:g}"
    yield from _differences(f"{where}.first16", vector[:16], expected["first16"], atol, rtol)
    yield from _differences(f"{where}.last16", vector[-16:], expected["last16"], atol, rtol)


def golden_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and the ``*.json`` below the folders named, in order of their names.

    Raises:
        FileNotFoundError: a path does not exist, or a folder holds no JSON file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.json"))
            if not inside:
                raise FileNotFoundError(f"no *.json file below '{path}'")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"no such file or folder: '{path}'")
    return found


def main(arguments: Sequence[str]) -> int:
    """Check the files and folders named; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m agentrl.testing.golden PATH...\n\n{__doc__}")
        return 0 if arguments else 2
    try:
        files = golden_files([Path(one) for one in arguments])
    except FileNotFoundError as error:
        print(f"{error}; name golden files or folders of them", file=sys.stderr)
        return 2
    failed = 0
    for path in files:
        wrong = check_file(path)
        failed += bool(wrong)
        print(f"FAIL {path.name}" if wrong else f"ok   {path.name}")
        for line in wrong:
            print(f"     {line}")
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
