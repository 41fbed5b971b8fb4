"""An explanation of credit, printed for people."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentrl.viewer.explanation import Cluster, Explanation, Member, Part, Partition, Statistics
from agentrl.viewer.explanation import StepCredit as Credited
from agentrl.viewer.terminal import ADVANTAGE_STYLES, OUTCOME_STYLE
from agentrl.viewer.wording import rounded, signed, visible

__all__ = ["explanation_view", "show_explanation"]


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Print an explanation."""
    console.print(explanation_view(explanation))


def explanation_view(one: Explanation) -> RenderableType:
    """The group, its episodes, who was compared with whom, and each step with its parts."""
    return Group(
        *_heading(one),
        _episodes(one),
        *(view for partition in one.partitions for view in _partition(partition)),
        *(view for member in one.members if member.steps for view in _member(member)),
    )


def _heading(one: Explanation) -> Iterator[RenderableType]:
    yield Rule(
        Text.assemble(("group ", "bold"), (visible(one.group), "bold")), align="left", style="dim"
    )
    table = Table.grid(padding=(0, 2))
    options = ", ".join(f"{key}: {json.dumps(value)}" for key, value in one.options.items())
    credit = one.estimator or "unknown estimator"
    rows = [
        ("task", f"{one.task}  {one.env}" + (f", kind {one.kind}" if one.kind else "")),
        ("played", f"{one.purpose}, iteration {one.iteration}"),
        ("credit", f"{credit} ({options})" if options else credit),
        ("chosen", one.chosen),
        ("check", one.check),
        *((name, rule) for name, rule in one.rules.items()),
    ]
    for name, words in rows:
        if words:
            style = "bold red" if name == "check" and one.agrees is False else ""
            table.add_row(Text(visible(name), style="dim"), Text(visible(words), style=style))
    yield table


def _episodes(one: Explanation) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("trial", "outcome", "score", "steps", "advantages"):
        table.add_column(name, justify="right" if name in ("score", "steps") else "left")
    for member in one.members:
        values = [step.advantage for step in member.steps]
        low, high = min(values, default=0.0), max(values, default=0.0)
        advantages = signed(low) if low == high else f"{signed(low)} .. {signed(high)}"
        said = advantages if member.takes_part else f"none: {member.why_none}"
        table.add_row(
            _trial(member),
            Text(member.outcome, style=OUTCOME_STYLE[member.outcome]),
            _reward(member.score),
            str(len(member.steps)) if member.takes_part else "",
            Text(visible(said), style="" if member.takes_part else "dim"),
        )
    return table


def _trial(member: Member) -> str:
    return f"{member.trial}" + (f".{member.attempt}" if member.attempt else "")


def _partition(partition: Partition) -> Iterator[RenderableType]:
    together = sum(len(cluster.members) for cluster in partition.clusters)
    words = (
        f"  {together} steps were compared with one another in {len(partition.clusters)} clusters, "
        f"{partition.alone} with nothing"
    )
    title = Text.assemble((f"compared by {visible(partition.name)}", "bold"), (words, "dim"))
    yield Rule(title, align="left", style="dim")
    for cluster in partition.clusters:
        yield from _cluster(partition, cluster)


def _cluster(partition: Partition, cluster: Cluster) -> Iterator[RenderableType]:
    yield Text.assemble(
        (f"{visible(partition.name)} {cluster.label}", "cyan"), f"  {visible(cluster.state)}"
    )
    table = Table.grid(padding=(0, 2))
    for place in cluster.members:
        known = place.part is not None
        table.add_row(
            Text(f"trial {place.trial} step {place.step}", style="dim"),
            Text(visible(place.action)),
            Text("" if place.own is None else f"{visible(partition.what)} {rounded(place.own)}"),
            Text(visible(partition.part) if known else "advantage", style="dim"),
            _advantage(place.advantage if place.part is None else place.part),
        )
    if cluster.among is not None:
        table.add_row("", "", Text(_statistics(cluster.among), style="dim"), "", "")
    yield Padding(table, (0, 0, 0, 4))


def _member(member: Member) -> Iterator[RenderableType]:
    score = _reward(member.score)
    title = Text.assemble(
        (f"trial {_trial(member)}", "bold"), f"  {member.outcome}, score {score}  ", member.id
    )
    yield Rule(title, align="left", style="dim")
    for step in member.steps:
        yield from _step(step)


def _step(step: Credited) -> Iterator[RenderableType]:
    facts = [f"reward {_reward(step.reward)}"] if step.kind == "act" else [step.kind]
    facts += [] if step.valid else ["invalid"]
    yield Text.assemble(
        (f"step {step.step}  ", "dim"),
        (visible(step.action), "bold"),
        (f"  {', '.join(facts)}  advantage ", "dim"),
        _advantage(step.advantage),
        ("  no signal" if step.why_none else "", "yellow"),
    )
    table = Table.grid(padding=(0, 2))
    for part in step.parts:
        table.add_row(Text(visible(part.name), style="dim"), signed(part.value), _came_from(part))
    if step.parts and abs(step.sum - step.advantage) > 1e-9:
        words = f"the parts sum to {signed(step.sum)}; the rest has no name"
        table.add_row("", "", Text(words, style="bold red"))
    if step.tokens is not None and step.tokens != (0.0, 0.0, 0.0):
        mean, low, high = step.tokens
        words = f"added to the tokens, {signed(low)} .. {signed(high)}"
        table.add_row(Text("tokens", style="dim"), signed(mean), Text(words, style="dim"))
    if step.why_none and not any(part.why_zero for part in step.parts):
        table.add_row("", "", Text(visible(step.why_none), style="yellow"))
    yield Padding(table, (0, 0, 0, 8))


def _came_from(part: Part) -> Text:
    text = Text(style="dim")
    if part.own is not None:
        text.append(f"{visible(part.what)} {rounded(part.own)}")
    if part.among is not None and part.own is not None and part.among.count > 1.0:
        text.append(f" against {_statistics(part.among)}")
    if part.label is not None and part.label >= 0:
        text.append(f" ({visible(part.within)} {part.label})")
    if part.why_zero:
        text.append(f"{'; ' if text else ''}{visible(part.why_zero)}")
    return text


def _statistics(among: Statistics) -> str:
    return (
        f"mean {rounded(among.mean)}, std {rounded(among.std)} of {rounded(among.count)} "
        f"{among.entries}"
    )


def _advantage(value: float) -> Text:
    return Text(signed(value), style=ADVANTAGE_STYLES[(value > 0) - (value < 0)])


def _reward(reward: float | None) -> str:
    """A reward; what could not be scored is not 0."""
    return "unscored" if reward is None else rounded(reward)
