"""Which function computes the golden cases of which ``algo``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.testing.golden_gigpo import bipace, gigpo, hgpo
from agentrl.testing.golden_groups import groupbase, loop, r3l, rlanything, treerl
from agentrl.testing.golden_tokens import opid, opid_opdloss, policyloss, seed_opdloss

__all__ = ["FAMILIES"]

FAMILIES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]] = {
    "bipace": bipace,
    "gigpo": gigpo,
    "groupbase": groupbase,
    "hgpo": hgpo,
    "loop": loop,
    "opid": opid,
    "opid_opdloss": opid_opdloss,
    "policyloss": policyloss,
    "r3l": r3l,
    "rlanything": rlanything,
    "seed_opdloss": seed_opdloss,
    "treerl": treerl,
}
