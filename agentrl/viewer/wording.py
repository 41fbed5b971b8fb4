"""How the viewer words what a step holds. What a model or a page wrote is shown, never obeyed."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.core.message import Message
from agentrl.core.trajectory import Step
from agentrl.store.records import StoredTrajectory, TrajectoryCredit, TrajectorySummary

__all__ = [
    "StepCredit",
    "action_line",
    "ended_by",
    "message_parts",
    "rounded",
    "shortened",
    "signed",
    "state_line",
    "step_credit",
    "step_facts",
    "visible",
]

ACTION, STATE = 70, 100  # characters of an action and of a state on one line
SMALLEST = 0.0005  # below it three decimals show nothing


def visible(text: str) -> str:
    r"""Text with everything that could act on a terminal or a page made visible.

    Control characters (but newline and tab), lone surrogates and characters that reorder or hide
    text become a picture of themselves or ``\u....``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(one) for one in text)


def _shown(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if unicodedata.category(character) == "Zs":
        return character
    return f"\\u{code:04x}"


def shortened(text: str, limit: int | None) -> str:
    """About ``limit`` characters at most: beginning and end, and how many are left out."""
    if limit is None or len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[len(text) - tail :]}"


def ended_by(line: TrajectorySummary) -> str:
    """Why an episode ended: its stop reason, or the error that broke it."""
    return line.failure.error if line.failure else line.stop_reason.value


def signed(number: float) -> str:
    """A number with its sign; zero has none."""
    if 0.0 < abs(number) < SMALLEST:
        return f"{number:+.0e}"
    return "0" if number == 0 else f"{number:+.3f}"


def rounded(number: float) -> str:
    """A number as ``signed`` rounds it, without sign and without zeros at the end.

    Three decimals; what would round to 0 and is not 0 is given by its size: ``2e-05``.
    """
    if 0.0 < abs(number) < SMALLEST:
        return f"{number:.0e}"
    return "0" if number == 0 else f"{number:.3f}".rstrip("0").rstrip(".")


def message_parts(message: Message) -> Iterator[tuple[str, str]]:
    """``(label, text)`` of a message: its thoughts, its text, its calls."""
    if message.reasoning:
        yield "think", message.reasoning
    if message.content or not (message.reasoning or message.tool_calls):
        yield message.role, message.content
    for call in message.tool_calls:
        yield "call", f"{call.name}({_arguments(call.arguments)})"


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in arguments.items()
    )


def action_line(step: Step) -> str:
    """What was done, on one line."""
    said = " ".join(text for _, text in message_parts(step.action))
    return _line(said, ACTION) or "(empty)"


def state_line(step: Step) -> str:
    """The anchor on one line; empty if there is none."""
    anchor = step.anchor
    if anchor is None:
        return ""
    text = anchor if isinstance(anchor, str) else json.dumps(anchor, default=repr)
    return _line(text, STATE)


def _line(text: str, limit: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


def step_facts(step: Step) -> list[str]:
    """What is worth knowing about a step besides its words and its credit."""
    facts = [f"prompt {len(step.prompt_ids):,} tokens", f"{len(step.sample.token_ids)} sampled"]
    versions = sorted({version for _, version in step.sample.versions})
    facts.append("policy " + "+".join(str(version) for version in versions) if versions else "")
    if step.kind != "act":
        facts.append(step.kind)
    if step.parse_status != "ok":
        facts.append(f"not parsed: {step.parse_status}")
    if step.sample.finish_reason == "length":
        facts.append("cut by the length limit")
    if step.result is not None and not step.result.action_valid:
        facts.append("invalid action")
    return [fact for fact in facts if fact]


@dataclass(frozen=True, slots=True)
class StepCredit:
    """The credit of one step. ``compared_with``: partition to the number of steps compared."""

    advantage: float
    parts: Mapping[str, float]
    compared_with: Mapping[str, int]

    def words(self) -> str:
        """The parts and the sizes of the groups that the step was compared in."""
        said = [f"{name} {signed(value)}" for name, value in self.parts.items()]
        said += [
            f"{name} group of {size}" if size > 1 else f"{name} seen once"
            for name, size in self.compared_with.items()
        ]
        return ", ".join(said)


def step_credit(stored: StoredTrajectory, position: int) -> StepCredit | None:
    """The credit of the step at ``position``; ``None`` if the trajectory got none."""
    credit: TrajectoryCredit | None = stored.credit
    if credit is None or credit.step_advantages is None:
        return None
    return StepCredit(
        advantage=credit.step_advantages[position],
        parts={name: values[position] for name, values in credit.parts.items()},
        compared_with={name: sizes[position] for name, sizes in credit.group_sizes.items()},
    )
