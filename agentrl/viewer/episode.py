"""One episode as HTML: the dialogue on the left, the credit of each step on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from agentrl.core.message import Message
from agentrl.core.trajectory import Step
from agentrl.store.records import StoredTrajectory, TrajectorySummary
from agentrl.viewer.wording import (
    ended_by,
    message_parts,
    shortened,
    signed,
    step_credit,
    step_facts,
    visible,
)

__all__ = ["episode_html"]

MESSAGE_LIMIT = 1_200
EPISODE_LIMIT = 120_000
LABELS = {"assistant": ("act", "action"), "said": ("think", "said")}


def episode_html(
    stored: StoredTrajectory, siblings: Sequence[TrajectorySummary], *, opened: bool = False
) -> str:
    """A collapsible episode. A very long one is cut, and says so.

    Args:
        stored: The episode with its credit.
        siblings: The trajectories of its group, itself included.
        opened: Whether it begins unfolded.
    """
    line = stored.summary
    body: list[str] = [_about(stored, siblings)]
    size = 0
    for position, step in enumerate(stored.trajectory.steps):
        html = _step(stored, position, step)
        size += len(html)
        if size > EPISODE_LIMIT:
            left = len(stored.trajectory.steps) - position
            body.append(f'<p class="about">{left} more steps are left out of this page.</p>')
            break
        body.append(html)
    body.append(_end(stored))
    return (
        f'<details class="episode" data-purpose="{_text(line.purpose.split("/")[0])}" '
        f'data-outcome="{line.outcome}" data-kind="{_text(line.kind)}" '
        f'data-ended="{_text(ended_by(line))}"{" open" if opened else ""}>'
        f"<summary>{_summary(stored)}</summary>{''.join(body)}</details>\n"
    )


def _summary(stored: StoredTrajectory) -> str:
    line = stored.summary
    reward = "unscored" if line.reward is None else f"reward {line.reward:g}"
    return (
        f'<span class="badge {line.outcome}">{line.outcome}</span>'
        f'<span class="name">{_text(line.kind or line.env)}</span>'
        f'<span class="soft">{_text(line.purpose)}, iteration {line.iteration} · {reward} · '
        f"{line.steps} steps</span>{_strip(stored)}"
    )


def _strip(stored: StoredTrajectory) -> str:
    """The advantages of all steps as one small bar chart around zero."""
    if stored.credit is None or not stored.credit.step_advantages:
        return ""
    advantages = stored.credit.step_advantages
    most = max(abs(one) for one in advantages) or 1.0
    bars = "".join(
        f'<rect class="{_sign(one)}" x="{7 * place}" width="6" '
        f'y="{13 - max(0.0, one) / most * 12:.1f}" height="{max(1.0, abs(one) / most * 12):.1f}"/>'
        for place, one in enumerate(advantages)
    )
    width = 7 * len(advantages)
    return (
        f'<svg class="strip" viewBox="0 0 {width} 26" width="{width}" role="img" '
        f'aria-label="advantage of each step">'
        f'<line class="axis" x1="0" x2="{width}" y1="13" y2="13"/>{bars}</svg>'
    )


def _about(stored: StoredTrajectory, siblings: Sequence[TrajectorySummary]) -> str:
    line = stored.summary
    words = f"{_text(line.id)} · seed {stored.trajectory.seed} · {line.sampled_tokens} tokens"
    if len(siblings) > 1:
        rewards = " · ".join(
            f"<b>{_reward(one)}</b>" if one.id == line.id else _reward(one) for one in siblings
        )
        words += f'<br><span class="group">rewards of its group: {rewards}</span>'
    return f'<p class="about">{words}</p>'


def _step(stored: StoredTrajectory, position: int, step: Step) -> str:
    facts = " · ".join(step_facts(step))
    said = "".join(_message(one) for one in step.shown) + _answer(step) + _message(step.action)
    return (
        f'<div class="step"><div class="facts">step {position} · {_text(facts)}</div>'
        f"<div>{said}</div>{_earned(stored, position, step)}</div>"
    )


def _answer(step: Step) -> str:
    """What the model said, where that is more than the action."""
    if step.answer is None:
        return ""
    parts = message_parts(step.answer)
    return "".join(_part("said" if label == "assistant" else label, text) for label, text in parts)


def _message(message: Message) -> str:
    return "".join(_part(label, text) for label, text in message_parts(message))


def _part(label: str, text: str) -> str:
    name, word = LABELS.get(label, (label, label))
    shown = _text(shortened(text, MESSAGE_LIMIT)) or '<span class="soft">(empty)</span>'
    return f'<dl class="said {name}"><dt>{word}</dt><dd>{shown}</dd></dl>'


def _earned(stored: StoredTrajectory, position: int, step: Step) -> str:
    lines: list[str] = []
    direction = ""
    credit = step_credit(stored, position)
    if credit is not None:
        sign = _sign(credit.advantage)
        direction = {"plus": " up", "minus": " down", "zero": ""}[sign]
        lines.append(f'<b class="{sign}">{signed(credit.advantage)}</b>')
        words = credit.words()
        lines += [f"{_text(words)}<br>"] if words else []
    if step.result is not None:
        reward = "unscored" if step.result.reward is None else f"{step.result.reward:g}"
        lines.append(f"reward {reward}")
        if not step.result.action_valid:
            lines.append(' <span class="badge flag">invalid</span>')
    return f'<div class="credit{direction}">{"".join(lines)}</div>'


def _end(stored: StoredTrajectory) -> str:
    trajectory = stored.trajectory
    said = "".join(_message(one) for one in trajectory.final_shown)
    words = [f"ended: {trajectory.stop_reason.value}", *_failures(stored)]
    if stored.credit is not None and stored.credit.step_advantages is None:
        words.append("took no part in credit")
    return (
        f'<div class="step"><div class="facts">{_text(" · ".join(words))}</div>'
        f"<div>{said}</div></div>"
    )


def _failures(stored: StoredTrajectory) -> Iterator[str]:
    for failure in (stored.trajectory.failure, stored.trajectory.close_failure):
        if failure is not None:
            message = shortened(failure.message, MESSAGE_LIMIT)
            yield f"infra failure at {failure.boundary}: {failure.error}: {message}"


def _reward(line: TrajectorySummary) -> str:
    if line.reward is None:
        return "infra" if line.outcome == "infra" else "unscored"
    return f"{line.reward:g}"


def _sign(number: float) -> str:
    return "plus" if number > 0 else "minus" if number < 0 else "zero"


def _text(text: str) -> str:
    return escape(visible(text))
