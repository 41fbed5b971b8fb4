"""A run whose environment has tools: what is put together, taught and read is one dialect."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from agentrl.assembly import assemble
from agentrl.core.errors import ConfigError
from agentrl.core.protocols import Demonstrator
from agentrl.preflight import check_playing
from agentrl.rollout.demonstrations import demonstrate
from agentrl.testing.tiny_runs import tiny_run
from agentrl.testing.tool_env import BOX_TOOLS

BOXES = (
    "env={name: 'agentrl.testing.tool_env:BoxFactory'}",
    "agent.action_format=tools",
    "model.create.vocab_size=300",
)


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        (None, '<action>open {"number": 0}</action>'),
        ("hermes", '<tool_call>\n{"name": "open", "arguments": {"number": 0}}\n</tool_call>'),
        ("xml", "<function=open>\n<parameter=number>\n0\n</parameter>\n</function>"),
    ],
)
def test_the_experts_calls_are_taught_in_the_dialect_that_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dialect: str | None, call: str
) -> None:
    overrides = [] if dialect is None else [f"agent.renderer.options={{dialect: {dialect}}}"]
    config = tiny_run(tmp_path / "run", [*BOXES, *overrides])
    with caplog.at_level(logging.WARNING), assemble(config) as parts:
        (said,) = [one.message for one in caplog.records if one.name == "agentrl.assembly"]
        assert isinstance(parts.factory, Demonstrator)
        (task,) = parts.factory.tasks("train")
        rows = asyncio.run(demonstrate(parts.factory, parts.agent, task, seed=0, noise=0.0))
        renderer = parts.agent.renderer
    name = dialect or "action"
    assert parts.agent.dialect.name == name
    assert said == f"tool calls are read in the dialect '{name}': the one that the renderer writes"
    ((ids, mask),) = rows
    taught = [renderer.decode([one for one, on in zip(ids, mask, strict=True) if on])]
    assert call in taught[0]
    assert taught[0].endswith("<|end|>cat<|end|>")
    assert f"{BOX_TOOLS[0].name}(number: integer): " in renderer.decode(ids)


def test_a_dialect_that_the_renderer_does_not_write_is_refused(tmp_path: Path) -> None:
    config = tiny_run(tmp_path / "run", [*BOXES, "agent.tool_dialect=hermes"])
    with (
        pytest.raises(
            ConfigError, match=r"set agent\.renderer\.options\.dialect to hermes as well"
        ),
        assemble(config),
    ):
        pass


def test_an_environment_with_tools_needs_an_answer_that_can_call_them(tmp_path: Path) -> None:
    config = tiny_run(tmp_path / "run", [*BOXES, "agent.action_format=tagged"])
    with pytest.raises(ConfigError, match="action_format=tagged never calls one: set agent"):
        check_playing(config)
    check_playing(tiny_run(tmp_path / "run", BOXES))
