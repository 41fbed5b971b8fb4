"""What agentrl and its extras require, against what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from agentrl import __version__

__all__ = ["DISTRIBUTION", "Package", "package", "packages", "version"]

DISTRIBUTION = "agentrl-framework"


@dataclass(frozen=True, slots=True)
class Package:
    """One requirement.

    Attributes:
        extra: The extra that brings it; empty: agentrl itself needs it.
        wanted: Accepted versions, such as ``>=2,<3``; empty: any.
        installed: Version that is there, or ``None``.
        ok: Whether that is an accepted one.
    """

    name: str
    extra: str
    wanted: str
    installed: str | None
    ok: bool


def packages() -> Iterator[Package]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Package(DISTRIBUTION, "", f"=={__version__}", None, False)
        return
    for text in requirements:
        yield package(text)


def package(text: str) -> Package:
    """A requirement such as ``pytest>=8; extra == "dev"`` against what is installed."""
    requirement, _, marker = text.partition(";")
    found = re.match(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*\(?([^)]*)", requirement)
    name, wanted = (found.group(1), found.group(2).replace(" ", "")) if found else (requirement, "")
    extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", marker)
    installed = version(name)
    ok = installed is not None and _accepts(wanted, installed)
    return Package(name, extra.group(1) if extra else "", wanted, installed, ok)


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _accepts(wanted: str, installed: str) -> bool:
    """Whether a version satisfies specifiers of the kind ``>=2.13,<2.15``."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(installed, prereleases=True)
