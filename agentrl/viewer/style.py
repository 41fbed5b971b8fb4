"""The look of the page, and its few lines of script (the page works without them)."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #17202e; --soft: #5c6675; --line: #e3e7ed;
  --page: #f5f6f8; --card: #ffffff; --good: #12805c; --good-soft: #d9f2e6; --bad: #c0392b;
  --bad-soft: #fbe3df; --warn: #8e44ad; --warn-soft: #f1e4f7; --accent: #2563eb; --gold: #b45309 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #2c3440;
  --page: #12161c; --card: #1a2028; --good: #4cc38a; --good-soft: #163528; --bad: #ff8577;
  --bad-soft: #40211e; --warn: #c58be0; --warn-soft: #34223d; --accent: #7aa2ff;
  --gold: #f0a94a } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
main { max-width: 1000px; margin: 0 auto; padding: 28px 20px 60px }
h1 { font-size: 15px; font-weight: 600; color: var(--soft); margin: 0 }
h2 { font-size: 18px; margin: 36px 0 10px }
p { margin: 6px 0 }
.soft, small { color: var(--soft) }
.verdict { font-size: 40px; font-weight: 700; letter-spacing: -.02em; margin: 6px 0 0;
  line-height: 1.2 }
.verdict .arrow { color: var(--soft); font-weight: 400; padding: 0 .1em }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 10px;
  margin: 18px 0 }
.tile, .card, .episode { background: var(--card); border: 1px solid var(--line);
  border-radius: 10px }
.tile { padding: 10px 14px } .tile b { display: block; font-size: 19px; font-weight: 650 }
.tile span { color: var(--soft); font-size: 13px }
.card { padding: 14px 16px }
.note { border-left: 3px solid var(--warn); padding: 2px 12px; color: var(--soft) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500; font-size: 13px } tr:last-child td { border: 0 }
.curve { width: 100%; height: auto; display: block } .curve text { fill: var(--soft);
  font-size: 12px } .curve .grid { stroke: var(--line) }
.curve polyline { fill: none } .curve polyline.train { stroke: #9aa4b2; stroke-width: 1.3 }
.curve polyline.validation { stroke: var(--accent); stroke-width: 2.4 }
.curve circle.validation { fill: var(--accent) } .curve .band { fill: var(--accent); opacity: .15 }
.curve .test line { stroke: var(--ink); stroke-width: 1.6 } .curve .test rect { fill: var(--ink) }
.curve .greedy line { stroke: var(--gold); stroke-width: 1.6 }
.curve .greedy rect { fill: var(--card); stroke: var(--gold); stroke-width: 2 }
.legend { font-size: 13px; color: var(--soft); display: flex; flex-wrap: wrap; gap: 4px 18px }
.key::before { content: ""; display: inline-block; width: 14px; height: 4px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: #9aa4b2 }
.key.validation::before { background: var(--accent) }
.key.test::before { background: var(--ink); width: 9px; height: 9px }
.key.greedy::before { border: 2px solid var(--gold); background: none; width: 9px; height: 9px }
#filters { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; margin: 12px 0;
  font-size: 14px } #filters[hidden] { display: none }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 3px 8px }
.episode { margin: 8px 0; overflow: hidden } .episode[hidden] { display: none }
summary { cursor: pointer; padding: 9px 14px; display: flex; flex-wrap: wrap; gap: 4px 14px;
  align-items: center; list-style: none } summary::-webkit-details-marker { display: none }
summary::before { content: "\\25B8"; color: var(--soft) }
details[open] > summary::before { content: "\\25BE" }
details[open] > summary { border-bottom: 1px solid var(--line) }
summary .name { font-weight: 600 } summary .strip { margin-left: auto }
.badge { font-size: 12px; font-weight: 600; padding: 1px 9px; border-radius: 20px;
  background: var(--line); color: var(--soft) }
.badge.success { background: var(--good-soft); color: var(--good) }
.badge.failure { background: var(--bad-soft); color: var(--bad) }
.badge.infra, .badge.flag { background: var(--warn-soft); color: var(--warn) }
.strip { height: 26px; width: auto; max-width: 40% } .strip .axis { stroke: var(--line) }
.plus { fill: var(--good); color: var(--good) } .minus { fill: var(--bad); color: var(--bad) }
.zero { fill: var(--soft); color: var(--soft) }
.about { padding: 8px 16px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere }
.step { display: grid; grid-template-columns: minmax(0, 1fr) 210px; gap: 0 18px;
  padding: 10px 16px; border-top: 1px solid var(--line) }
.step .facts { grid-column: 1 / -1; color: var(--soft); font-size: 12px }
.said { display: grid; grid-template-columns: 62px minmax(0, 1fr); gap: 8px; margin: 3px 0 }
.said dt { color: var(--soft); font-size: 12px; text-align: right; padding-top: 2px }
.said dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 14px }
.said.act dd, .said.call dd { font-weight: 650 } .said.call dd, .said.act dd {
  font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px }
.said.think dd, .said.system dd { color: var(--soft); font-style: italic }
.credit { font-size: 12px; color: var(--soft); border-left: 3px solid var(--line);
  padding-left: 12px; align-self: center } .credit b { font-size: 19px; display: block;
  font-variant-numeric: tabular-nums }
.credit.up { border-color: var(--good) } .credit.down { border-color: var(--bad) }
.group b { color: var(--ink) }
footer { margin-top: 40px; font-size: 13px; color: var(--soft) }
@media (max-width: 640px) { .step { grid-template-columns: 1fr } .verdict { font-size: 30px }
  .credit { margin-top: 6px } .strip { max-width: 100% } }
"""

SCRIPT = """
const filters = document.getElementById("filters");
const pick = () => {
  const chosen = [...filters.querySelectorAll("select")];
  let shown = 0;
  for (const one of document.querySelectorAll(".episode")) {
    one.hidden = chosen.some((by) => by.value && one.dataset[by.name] !== by.value);
    shown += !one.hidden;
  }
  document.getElementById("shown").textContent = shown;
};
if (filters) { filters.hidden = false; filters.addEventListener("change", pick); pick(); }
"""
