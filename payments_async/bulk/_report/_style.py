"""How the page of a report looks, on a screen and on paper. No word of it is data."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { --ink: #1c2430; --soft: #5d6877; --line: #d9dee5; --faint: #f5f7f9;
  --paid: #17754a; --open: #1f6f9f; --none: #8a94a2; --bad: #b3261e; --back: #9a6700; --doubt: #7a3e9d; }
* { box-sizing: border-box; }
body { margin: 0; background: #eceff3; color: var(--ink);
  font: 14px/1.45 "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 24px auto; padding: 40px 44px 48px; background: #fff;
  box-shadow: 0 1px 4px rgb(28 36 48 / 18%); }
header { border-bottom: 2px solid var(--ink); padding-bottom: 18px; }
.over { margin: 0; color: var(--soft); text-transform: uppercase; letter-spacing: .12em; font-size: 12px; }
h1 { margin: 2px 0 14px; font-size: 30px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 30px 0 8px; font-size: 17px; }
dl { display: flex; flex-wrap: wrap; gap: 6px 36px; margin: 0; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 16px; margin: 22px 0 16px; }
.figures div { border: 1px solid var(--line); border-radius: 6px; padding: 14px 18px; }
.figures b { font-size: 28px; line-height: 1.1; font-variant-numeric: tabular-nums; }
.figures span { display: inline-block; margin-left: 8px; color: var(--soft); }
.figures i { display: block; margin-top: 2px; font-style: normal; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 12px; border-radius: 6px; overflow: hidden; background: var(--faint); }
.bar span { min-width: 3px; background: var(--tone); border-right: 1px solid #fff; }
.bar span:last-child { border-right: 0; }
table { width: 100%; border-collapse: collapse; }
th { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--ink); text-align: left; vertical-align: bottom;
  font-size: 12px; font-weight: 600; color: var(--soft); }
td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tfoot th, tfoot td { border-bottom: 0; border-top: 1px solid var(--ink); color: var(--ink); font-size: inherit;
  font-weight: 600; }
small { color: var(--soft); }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; padding-right: 18px; }
.id { min-width: 9.5em; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.rows { font-size: 12.5px; }
.rows .when { white-space: nowrap; }
.rows tbody tr:nth-child(even) { background: var(--faint); }
.rows tbody td:first-child, .rows th:first-child { padding-left: 6px; }
.need { margin-top: 26px; padding: 4px 20px 14px; border: 1px solid var(--doubt); border-left-width: 6px;
  border-radius: 6px; }
.need h2 { margin-top: 12px; color: var(--doubt); }
.need tbody tr:last-child td { border-bottom: 0; }
.banner { margin-top: 22px; padding: 10px 18px; border: 1px solid var(--tone); border-left-width: 6px;
  border-radius: 6px; }
.fine { --tone: var(--paid); }
.open { --tone: var(--back); }
.ended { --tone: var(--bad); }
.unpaid { margin-top: 26px; padding: 4px 20px 14px; border: 1px solid var(--bad); border-left-width: 6px;
  border-radius: 6px; }
.unpaid h2 { margin-top: 12px; color: var(--bad); }
.unpaid tbody tr:last-child td { border-bottom: 0; }
.totals { display: grid; grid-template-columns: 1fr 1fr; gap: 0 44px; }
.badge { display: inline-block; padding: 0 8px; border: 1px solid var(--tone); border-radius: 9px; color: var(--tone);
  font-size: 12px; line-height: 17px; white-space: nowrap; }
.successful { --tone: var(--paid); }
.accepted, .sending { --tone: var(--open); }
.planned { --tone: var(--none); }
.rejected, .failed { --tone: var(--bad); }
.reversed { --tone: var(--back); }
.unknown, .parked { --tone: var(--doubt); }
.signatures { display: grid; grid-template-columns: 2fr 2fr 1fr; gap: 32px; margin-top: 64px; color: var(--soft);
  font-size: 12px; break-inside: avoid; }
.signatures span { display: block; margin-top: 38px; border-bottom: 1px solid var(--ink); }
@media (max-width: 900px) { main { margin: 0; padding: 20px; overflow-x: auto; }
  .totals { grid-template-columns: 1fr; } }
@media print {
  @page { size: A4 landscape; margin: 13mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { background: #fff; font-size: 11px; }
  main { max-width: none; margin: 0; padding: 0; box-shadow: none; }
  .rows { font-size: 9.5px; }
  thead { display: table-header-group; }
  tr, .figures, .totals > div { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
