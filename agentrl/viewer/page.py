"""One self-contained page of a run: how success went, and episodes with the credit of each step.

The page loads nothing from anywhere, runs no script but its own few lines (its content policy
names them by their hash), and shows whatever models and environments wrote as text only.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from agentrl.core.errors import DataError
from agentrl.store.records import TrajectorySummary
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.choice import choose
from agentrl.viewer.curve import curve_svg
from agentrl.viewer.diagnostics import credit_metrics, diagnostics_lines
from agentrl.viewer.episode import episode_html
from agentrl.viewer.load import load_lines, newest_load
from agentrl.viewer.style import SCRIPT, STYLE
from agentrl.viewer.wording import ended_by, visible

__all__ = ["page_html", "write_page"]

PAGE_FILE = "report.html"
REPORT_FILE = "report.json"
PAGE_LIMIT = 950_000  # bytes: what a browser opens at once and a mail takes


def write_page(run_dir: Path, store: SqliteStore | None = None, *, episodes: int = 24) -> Path:
    """Write ``report.html`` into the run's directory; works while the run goes on, too.

    Args:
        run_dir: Directory of the run; its ``report.json``, if it is there, gives the results.
        store: The run's store; ``None``: opened for reading.
        episodes: How many episodes to show at most.

    Returns:
        Path of the page.

    Raises:
        StoreError: the run has no store.
        DataError: ``report.json`` is damaged.
    """
    if store is None:
        with SqliteStore(run_dir, read_only=True) as opened:
            return write_page(run_dir, opened, episodes=episodes)
    path = run_dir / PAGE_FILE
    try:
        html = page_html(store, _report(run_dir), name=run_dir.resolve().name, episodes=episodes)
    except KeyError as error:
        raise DataError(
            f"{run_dir / REPORT_FILE} has no {error}: another release wrote it; write it again or "
            "remove it"
        ) from error
    new = path.with_name(path.name + ".new")
    new.write_text(html, encoding="utf-8")
    new.replace(path)
    return path


def page_html(
    store: SqliteStore, report: Mapping[str, Any] | None, *, name: str, episodes: int = 24
) -> str:
    """The page as text.

    Args:
        store: The run's store.
        report: Content of ``report.json``; ``None`` while the run goes on.
        name: What to call the run.
        episodes: How many episodes to show at most.
    """
    lines = store.find()
    curve = report["curve"] if report else _curve_so_far(store)
    chosen = choose(lines, episodes)
    head = "".join(
        (
            *_header(report, lines, name),
            _curve(report, curve),
            *_kinds(report),
            *_credit(store),
            *_load(store),
        )
    )
    shown = _episodes(store, chosen, PAGE_LIMIT - len((head + STYLE + SCRIPT).encode()))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(name)}: report of the run</title><style>{STYLE}</style></head>"
        f"<body><main>{head}{_introduction(lines, len(shown))}{_filters(chosen[: len(shown)])}"
        f"{''.join(shown)}"
        f"<footer>Made by agentrl from {_text(store.path.name)}. Intervals are at "
        f"{_confidence(report)}; infra failures are excluded from success and counted apart."
        f"</footer></main><script>{SCRIPT}</script></body></html>\n"
    )


def _report(run_dir: Path) -> Mapping[str, Any] | None:
    path = run_dir / REPORT_FILE
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); write it again or remove it") from None
    if not isinstance(report, dict) or not {"before", "after", "curve"} <= report.keys():
        raise DataError(f"{path} is not the report of a run; write it again or remove it")
    return report


def _curve_so_far(store: SqliteStore) -> list[Mapping[str, Any]]:
    points = [event.data for event in store.events("iteration")]
    return [point for point in points if {"episodes", "train_success"} <= point.keys()]


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(
    report: Mapping[str, Any] | None, lines: Sequence[TrajectorySummary], name: str
) -> Iterator[str]:
    envs = ", ".join(sorted({line.env for line in lines}))
    yield f"<h1>{_text(name)}{' · ' + _text(envs) if envs else ''}</h1>"
    if report is None:
        yield (
            '<p class="verdict">Under way</p><p class="soft">The run has not written its report '
            f"yet; {len(lines):,} episodes are in its store.</p>"
        )
        return
    before, after = report["before"], report["after"]
    yield (
        f'<p class="verdict">{before["success"]:.1%} <span class="arrow">→</span> '
        f"{after['success']:.1%}</p>"
        f'<p class="soft">success on {after["tasks"]} test tasks, before and after reinforcement '
        f"learning (intervals {_range(before)} and {_range(after)})</p>"
    )
    yield f'<div class="tiles">{"".join(_tiles(report))}</div>'
    for side, evaluation in (("Before", before), ("After", after)):
        for label, one in ((side, evaluation), (f"{side}, greedy", evaluation.get("greedy"))):
            if one and one["exclusion"]:
                yield f'<p class="note">{label}: {_text(one["exclusion"])}.</p>'


def _tiles(report: Mapping[str, Any]) -> Iterator[str]:
    paired = report["paired"]
    yield _tile(
        f"{100 * paired['difference']:+.1f} points",
        f"on the same tasks [{100 * paired['low']:+.1f}, {100 * paired['high']:+.1f}], "
        f"{paired['improved']} better, {paired['worsened']} worse",
    )
    greedy = report["before"].get("greedy"), report["after"].get("greedy")
    if greedy[0] and greedy[1]:
        yield _tile(
            f"{greedy[0]['success']:.1%} → {greedy[1]['success']:.1%}",
            f"greedy, {_range(greedy[0])} and {_range(greedy[1])}",
        )
    if report["curve"]:
        last = report["curve"][-1]
        yield _tile(f"{last['episodes']:,}", "training episodes")
        yield _tile(f"{last['tokens']:,}", "sampled tokens")
    minutes, seconds = divmod(round(report["wall_s"]), 60)
    yield _tile(f"{minutes} min {seconds} s", f"whole run, {report['peak_rss_mb']:,.0f} MiB")


def _tile(value: str, words: str) -> str:
    return f'<div class="tile"><b>{_text(value)}</b><span>{_text(words)}</span></div>'


def _curve(report: Mapping[str, Any] | None, curve: Sequence[Mapping[str, Any]]) -> str:
    drawn = curve_svg(report, curve)
    return f'<h2>Learning curve</h2><div class="card">{drawn}</div>' if drawn else ""


def _kinds(report: Mapping[str, Any] | None) -> Iterator[str]:
    if report is None or len(report["after"]["by_kind"]) < 2:
        return
    before, after = report["before"]["by_kind"], report["after"]["by_kind"]
    rows = "".join(
        f"<tr><td>{_text(kind or '(none)')}</td><td>{one['tasks']}</td>"
        f"<td>{_share(before.get(kind))}</td><td>{_share(one)}</td></tr>"
        for kind, one in after.items()
    )
    yield (
        '<h2>By kind of task</h2><div class="card"><table><tr><th>kind</th><th>tasks</th>'
        f"<th>before</th><th>after</th></tr>{rows}</table></div>"
    )


def _credit(store: SqliteStore) -> Iterator[str]:
    """What the newest credit came to."""
    found = credit_metrics(store)
    if found is not None:
        yield from _table(f"Credit of iteration {found[0]}", list(diagnostics_lines(found[1])))


def _load(store: SqliteStore) -> Iterator[str]:
    """Where the time of the newest rollout went."""
    found = newest_load(store)
    if found is not None:
        yield from _table(f"Rollout of iteration {found[0]}", list(load_lines(found[1])))


def _table(title: str, lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not lines:
        return
    rows = "".join(
        f"<tr><td>{_text(subject)}</td><td>{_text(words)}</td></tr>" for subject, words in lines
    )
    yield f'<h2>{_text(title)}</h2><div class="card"><table>{rows}</table></div>'


def _introduction(lines: Sequence[TrajectorySummary], shown: int) -> str:
    return (
        f"<h2>Episodes</h2><p>{shown} of {len(lines):,}: tasks that changed between the two tests, "
        "and training groups in which some episodes succeeded and some failed. A step is one call "
        "of the model and the environment's answer. Its <b>advantage</b> is the credit it got: "
        '<span class="plus">positive</span> steps were made more likely, '
        '<span class="minus">negative</span> ones less likely.</p>'
    )


def _filters(chosen: Sequence[TrajectorySummary]) -> str:
    words: dict[str, Iterable[str]] = {
        "purpose": dict.fromkeys(line.purpose.split("/")[0] for line in chosen),
        "outcome": dict.fromkeys(line.outcome for line in chosen),
        "kind": dict.fromkeys(line.kind for line in chosen),
        "ended": dict.fromkeys(ended_by(line) for line in chosen),
    }
    if not chosen:
        return '<p class="soft">No episode has been recorded yet.</p>'
    return (
        f'<div id="filters" hidden>{"".join(_select(name, one) for name, one in words.items())}'
        f'<span class="soft"><span id="shown">{len(chosen)}</span> shown</span></div>'
    )


def _select(name: str, words: Iterable[str]) -> str:
    options = "".join(f"<option>{_text(word)}</option>" for word in words if word)
    label = {"ended": "ended by"}.get(name, name)
    return (
        f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select>'
        "</label>"
    )


def _episodes(store: SqliteStore, chosen: Sequence[TrajectorySummary], room: int) -> list[str]:
    shown: list[str] = []
    opened = False
    for line in chosen:
        stored = store.trajectory(line.id)
        first_credit = not opened and bool(line.takes_part)
        html = episode_html(stored, store.siblings(line.id), opened=first_credit)
        room -= len(html.encode())
        if room < 0:
            break
        opened = opened or first_credit
        shown.append(html)
    return shown


def _text(text: str) -> str:
    return escape(visible(text))


def _range(report: Mapping[str, Any]) -> str:
    return f"{report['low']:.1%} to {report['high']:.1%}"


def _share(report: Mapping[str, Any] | None) -> str:
    if report is None or report["success"] is None:
        return "-"
    return f"{report['success']:.1%} <small>{_range(report)}</small>"


def _confidence(report: Mapping[str, Any] | None) -> str:
    return f"{report['after']['confidence']:.0%}" if report else "95%"
