"""Corpora and question sets by path or through the library ``datasets``, checked row by row.

A source is

- the path of a JSONL file, of a ``.parquet`` file, or of a folder that ``save_to_disk`` of the
  library ``datasets`` wrote;
- a mapping: ``path`` (one of these) or ``dataset`` (a name that ``datasets.load_dataset`` knows),
  and perhaps ``config``, ``split`` (of the data set) and ``fields`` (our name of a field: theirs).

A document has ``text``, and perhaps ``title`` and ``id``. A question has ``question`` and
``answers`` (a text or several; ``answer`` is read too), and perhaps ``hops`` and ``searches`` (what
an expert would search for, in order).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError, DataError, MissingDependencyError, nearest

__all__ = ["Document", "Source", "is_source", "read_documents", "read_questions"]

Source = str | Path | Mapping[str, Any]
Placed = tuple[str, dict[str, Any]]
_KEYS = ("path", "dataset", "config", "split", "fields")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus. ``title`` may be empty."""

    id: str
    title: str
    text: str

    @property
    def shown(self) -> str:
        """The title on a line of its own, unless the text begins with it."""
        told = not self.title or self.text.startswith(self.title)
        return self.text if told else f"{self.title}\n{self.text}"


def is_source(value: Any) -> bool:
    """Whether ``value`` is one source, and not sources by split."""
    return not isinstance(value, Mapping) or "path" in value or "dataset" in value


def read_documents(source: Source) -> list[Document]:
    """The documents of a corpus, in its order.

    Raises:
        ConfigError: the source is none, or cannot be read.
        DataError: a row that is no document, an id twice, or no documents; names file and line.
    """
    documents: list[Document] = []
    first: dict[str, str] = {}
    for where, row in _rows(source, "the corpus"):
        text, title = row.get("text"), row.get("title")
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: a document needs a 'text', got {_short(row)}{_hint(row)}")
        if title is not None and not isinstance(title, str):
            raise DataError(f"{where}: the title of a document is a text, got {_short(title)}")
        name = str(len(documents)) if row.get("id") is None else str(row["id"])
        if first.setdefault(name, where) != where:
            raise DataError(
                f"{where}: the id '{name}' is also that of the document at {first[name]}; ids are "
                "unique, or left out"
            )
        documents.append(Document(name, title or "", text))
    if not documents:
        raise DataError(f"the corpus {_named(source)} holds no documents; give it one a line")
    return documents


def read_questions(source: Source) -> list[tuple[str, dict[str, Any]]]:
    """Questions, each with where it stands: ``question``, ``answers``, ``hops``, ``searches``.

    The last two are there if the source has them. An ``id`` is not kept: what is asked and
    accepted says which question it is.

    Raises:
        ConfigError, DataError: as ``read_documents``.
    """
    found = [(where, _question(row, where)) for where, row in _rows(source, "the questions")]
    if not found:
        raise DataError(f"{_named(source)} holds no questions; give it one a line")
    return found


def _question(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    text = row.get("question")
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: 'question' must be a text, got {_short(row)}{_hint(row)}")
    answers = row.get("answers", row.get("answer"))
    answers = [answers] if isinstance(answers, str) else answers
    if not _texts(answers):
        raise DataError(
            f"{where}: 'answers' must be a text or a list of at least one, got {_short(answers)} "
            f"for the question {_short(text)}{_hint(row)}"
        )
    question: dict[str, Any] = {"question": text.strip(), "answers": list(answers)}
    hops, searches = row.get("hops"), row.get("searches")
    if hops is not None:
        if isinstance(hops, bool) or not isinstance(hops, int) or hops < 1:
            raise DataError(f"{where}: 'hops' must be a whole number from 1, got {_short(hops)}")
        question["hops"] = hops
    if searches is not None:
        if not _texts(searches):
            raise DataError(
                f"{where}: 'searches' must be a list of at least one text, got {_short(searches)}"
            )
        question["searches"] = list(searches)
    return question


def _texts(value: Any) -> bool:
    listed = isinstance(value, list | tuple) and bool(value)
    return listed and all(isinstance(one, str) and bool(one.strip()) for one in value)


def _rows(source: Source, what: str) -> Iterator[Placed]:
    """The rows of a source under our names of the fields, each with where it stands."""
    settings = _settings(source, what)
    renamed = {theirs: ours for ours, theirs in settings.get("fields", {}).items()}
    for number, (where, row) in enumerate(_read(settings, what)):
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: expected one JSON object a line, got {_short(row)}")
        missing = [theirs for theirs in renamed if theirs not in row] if number == 0 else []
        if missing:
            raise DataError(
                f"{where}: there is no field '{missing[0]}' (named in 'fields'); the row has "
                f"{', '.join(map(str, row)) or 'none'}"
            )
        yield where, {renamed.get(str(key), str(key)): value for key, value in row.items()}


def _settings(source: Any, what: str) -> dict[str, Any]:
    if isinstance(source, str | Path):
        return {"path": source}
    if not isinstance(source, Mapping):
        raise ConfigError(
            f"env 'search': {what}: expected a path, or a mapping with 'path' or 'dataset', got "
            f"{source!r}"
        )
    for key in source:
        if key not in _KEYS:
            raise ConfigError(
                f"env 'search': {what}: unknown key '{key}'{nearest(str(key), _KEYS) or '.'} There "
                f"are: {', '.join(_KEYS)}."
            )
    settings = {key: value for key, value in source.items() if value is not None}
    if ("path" in settings) == ("dataset" in settings):
        raise ConfigError(
            f"env 'search': {what}: give exactly one of 'path' (a file or folder) and 'dataset' "
            f"(a name for datasets.load_dataset), got {dict(source)!r}"
        )
    fields = settings.get("fields", {})
    if not isinstance(fields, Mapping) or not all(isinstance(one, str) for one in fields.values()):
        raise ConfigError(
            f"env 'search': {what}: fields must map our names to theirs, got {fields!r}"
        )
    return settings


def _read(settings: Mapping[str, Any], what: str) -> Iterator[tuple[str, Any]]:
    if "dataset" in settings:
        yield from _data_set(settings, what)
        return
    path = Path(settings["path"]).expanduser()
    if path.is_dir():
        yield from _data_set(settings, what)
        return
    unused = [key for key in ("config", "split") if key in settings]
    if unused:
        raise ConfigError(
            f"env 'search': {what}: '{unused[0]}' chooses a part of a data set, and '{path}' is a "
            "file (or does not exist): remove it"
        )
    yield from _parquet(path, what) if path.suffix == ".parquet" else _lines(path, what)


def _lines(path: Path, what: str) -> Iterator[tuple[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}, line {number}", _parsed(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"env 'search': cannot read {what} '{path}' (working directory {Path.cwd()}): {error}"
        ) from None


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: {error}; expected one JSON object a line") from None


def _parquet(path: Path, what: str) -> Iterator[tuple[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"env 'search': cannot read {what} '{path}': {error}") from None


def _data_set(settings: Mapping[str, Any], what: str) -> Iterator[tuple[str, Any]]:
    """Rows of what the library ``datasets`` reads: a folder, or a name that it knows."""
    try:
        import datasets
    except ImportError:
        raise MissingDependencyError.for_extra("datasets", "dev", what) from None
    split, named = settings.get("split"), str(settings.get("path") or settings["dataset"])
    try:
        if "path" in settings:
            found: Any = datasets.load_from_disk(str(Path(named).expanduser()))
        else:
            found = datasets.load_dataset(named, settings.get("config"))
    except Exception as error:  # of many libraries: whatever it is, the data cannot be had
        raise ConfigError(
            f"env 'search': datasets cannot load {what} '{named}' ({type(error).__name__}: {error})"
        ) from error
    if isinstance(found, Mapping):
        if split not in found:
            hint = nearest(str(split), found) if split else ""
            raise ConfigError(
                f"env 'search': {what} '{named}' has the splits {', '.join(found)}: name one with "
                f"{{split: ...}}, got {split!r}{hint}"
            )
        found = found[split]
    elif split is not None:
        raise ConfigError(
            f"env 'search': {what} '{named}' has no splits, and split: {split} was asked for: "
            "remove it"
        )
    label = f"{named} ({split})" if split else named
    for number, row in enumerate(found, start=1):
        yield f"{label}, row {number}", row


def _hint(row: Mapping[str, Any]) -> str:
    return f"; the row has the fields {', '.join(row) or 'none'} (fields: {{ours: theirs}} renames)"


def _named(source: Source) -> str:
    if isinstance(source, Mapping):
        return f"'{source.get('path') or source.get('dataset')}'"
    return f"'{source}'"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
