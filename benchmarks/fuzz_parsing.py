"""Coverage-guided fuzzing of every dialect (atheris; not needed for anything else).

    pip install atheris
    python benchmarks/fuzz_parsing.py [-max_total_time=600] [options of libFuzzer] [corpus folder]

Each input chooses a dialect with its first byte; the rest is the answer. Looked for: an exception,
a call that could not be handed to a tool, a call that runs although the answer was cut or that is
not made when all thinking is cut away, an answer that takes long (libFuzzer's -timeout).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentrl.agents.tool_calls import read_calls
from agentrl.core.errors import MissingDependencyError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.action import ACTION
from agentrl.dialects.glm import GLM
from agentrl.dialects.hermes import HERMES
from agentrl.dialects.llama3 import LLAMA3
from agentrl.dialects.mistral import MISTRAL, MISTRAL_ARGS
from agentrl.dialects.openai import OPENAI
from agentrl.dialects.react import REACT
from agentrl.dialects.reading import Dialect
from agentrl.dialects.thinking import split_thinking
from agentrl.dialects.xml import XML
from agentrl.testing.hostile_text import MARKS

DIALECTS = (ACTION, GLM, HERMES, LLAMA3, MISTRAL, MISTRAL_ARGS, OPENAI, REACT, XML)
_MARKS = re.compile(r"</?think(?:ing)?>|\[/?THINK\]")
PARAMETERS = {
    "q": {"type": "string"},
    "n": {"type": "integer"},
    "flag": {"type": "boolean"},
    "any": {},
}
TOOLS = [ToolSpec("search", "Find.", {"type": "object", "properties": PARAMETERS})]


def check(dialect: Dialect, text: str) -> None:
    """Read ``text`` and insist on what must hold for any text."""
    message = Message("assistant", text)
    action, status = read_calls(message, dialect, TOOLS)
    runs = [call for call in action.tool_calls if call.problem is None]
    assert status in ("ok", "parse_error", "unclosed_think", "empty_action"), status
    assert (status == "ok") == (len(runs) == len(action.tool_calls)), action
    assert action.content or action.tool_calls, "nothing for the environment"
    assert len({call.id for call in action.tool_calls}) == len(action.tool_calls), action
    for call in runs:
        check_call(call)
    if runs and status == "ok":
        check_spoken(dialect, text, runs)
    cut, status = read_calls(message, dialect, TOOLS, truncated=True)
    assert status == "truncated", status
    assert all(call.problem is not None for call in cut.tool_calls), cut
    if runs and not _MARKS.search(text):
        # The same answer as a thought, closed or not, makes no call at all.
        for thought in (f"<think>{text}", f"{text}</think>", f"{text}</think>no"):
            drafted, _ = read_calls(Message("assistant", thought), dialect, TOOLS)
            assert not [one for one in drafted.tool_calls if one.problem is None], thought


def check_call(call: ToolCall) -> None:
    """A call that runs is plain data that any tool can be handed."""
    assert call.name.strip(), call
    json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False).encode()


def check_spoken(dialect: Dialect, text: str, runs: Sequence[ToolCall]) -> None:
    """What is left when all thinking is cut away makes the same calls."""
    told = [(call.name, dict(call.arguments)) for call in runs]
    message = text[text.find("{") : text.rfind("}")] if dialect is OPENAI else ""
    if _MARKS.search(f"{told} {message}"):
        return  # marks inside a call are its own, and cutting would cut the call
    spoken = "\n".join(split_thinking(text)[1])
    found = dialect.read(spoken, TOOLS).calls
    if any(call.problem for call in found):
        return  # a mark stood inside a draft, and cutting has cut that
    assert [(call.name, dict(call.arguments)) for call in found] == told, (spoken, found, told)


@dataclass(slots=True)
class Fuzzer:
    """What libFuzzer calls with bytes."""

    counts: dict[str, int] = field(default_factory=dict)

    def __call__(self, data: bytes) -> None:
        if not data:
            return
        dialect = DIALECTS[data[0] % len(DIALECTS)]
        self.counts[dialect.name] = self.counts.get(dialect.name, 0) + 1
        check(dialect, data[1:].decode("utf-8", "surrogateescape" if data[0] & 0x80 else "replace"))


def seeds() -> Sequence[bytes]:
    """A call in every dialect, to begin with."""
    call = ToolCall("a", "search", {"q": "cat", "n": 3, "flag": True, "any": "x"})
    said = Message("assistant", "", tool_calls=(call,))
    return [bytes([at]) + dialect.write(said).encode() for at, dialect in enumerate(DIALECTS)]


def escaped(mark: str) -> str:
    """``mark`` as libFuzzer's dictionaries want it: every byte that is no plain letter in hex."""
    return "".join(f"\\x{byte:02x}" for byte in mark.encode("utf-8", "surrogatepass"))


def main() -> None:
    try:
        import atheris
    except ImportError:
        raise MissingDependencyError(
            "fuzzing with coverage needs the package 'atheris': pip install atheris. The tests "
            "fuzz with hypothesis, which is installed with the extra [dev]"
        ) from None
    fuzz = Fuzzer()
    for seed in seeds():
        fuzz(seed)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-parsing-"))
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number}").write_bytes(seed)
    marks = folder.with_suffix(".dict")
    marks.write_text("\n".join(f'"{escaped(mark)}"' for mark in MARKS))
    atheris.instrument_all()
    given = [one for one in sys.argv[1:] if not one.startswith("-")]
    options = [one for one in sys.argv[1:] if one.startswith("-")]
    atheris.Setup([sys.argv[0], *options, f"-dict={marks}", *given, str(folder)], fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
