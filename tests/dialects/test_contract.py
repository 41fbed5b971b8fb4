"""Every dialect that is installed keeps the contract, and the contract sees planted faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolSpec
from agentrl.dialects.choice import find_dialect
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.reading import Dialect, Reading
from agentrl.registry import names
from agentrl.testing.checking import check_plugin
from agentrl.testing.contract import assert_contract, run_checks
from agentrl.testing.contracts.dialect import CHECKS

WRITTEN = [name for name in names("dialect") if name != "response"]


@pytest.mark.parametrize("name", WRITTEN)
def test_contract(name: str) -> None:
    dialect = find_dialect(name)
    assert dialect.name == name
    assert_contract(CHECKS, dialect)


def test_agentrl_check_knows_dialects() -> None:
    assert all(one.ok for one in check_plugin("dialect", "hermes"))
    assert len(check_plugin("dialect", "agentrl.dialects.xml:XML")) == len(CHECKS)
    with pytest.raises(ConfigError, match="a dialect takes no options but model, got strict"):
        check_plugin("dialect", "hermes", ["strict=true"])
    with pytest.raises(ConfigError, match="needs a tokenizer with a response_template"):
        check_plugin("dialect", "response")


def _faulty(fault: str) -> Dialect:
    def read(text: str, tools: Sequence[ToolSpec]) -> Reading:
        if fault == "sees thoughts":
            text = text.replace("<think>", "").replace("</think>", "")
        if fault == "raises" and "\x00" in text:
            raise ValueError("an embedded null byte")
        if fault == "mends" and text.startswith("<tool_call>") and "</tool_call>" not in text:
            text = f'{text}"}}}}</tool_call>'
        found = HERMES.read(text, tools)
        if fault == "same ids":
            return replace(found, calls=tuple(replace(call, id="a") for call in found.calls))
        return found

    def write(message: Message) -> str:
        text = HERMES.write(message)
        return text.replace("9007199254740993", "9007199254740992") if fault == "rounds" else text

    return Dialect("faulty", "x", read, write)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("sees thoughts", "drafted in thinking"),
        ("raises", "raises on no text"),
        ("mends", "cut anywhere before its end"),
        ("same ids", "no two of an answer"),
        ("rounds", "gives back what"),
    ],
)
def test_the_contract_sees_a_planted_fault(fault: str, rule: str) -> None:
    findings = asyncio.run(run_checks(CHECKS, _faulty(fault)))
    assert any(rule in one.rule for one in findings if not one.ok)
