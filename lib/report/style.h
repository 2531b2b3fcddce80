// The style sheets of charts and pages. Colours are variables with a light and a dark set; the reader's system chooses.
#pragma once

namespace longhaul::report {

// Colours, and how charts use them. Also inside standalone SVG files.
inline constexpr const char* kChartStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #dfe3e8; --grid: #e9ecf0; --text: #1c2430; --quiet: #5c6776;
  --blue: #2563c9; --orange: #d9600a; --green: #1f8a4c; --violet: #7a4bd0; --red: #c8323c; --teal: #0d8290;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2028; --line: #313a46; --grid: #262e39; --text: #e4e8ee; --quiet: #97a3b3;
    --blue: #6ea2f5; --orange: #f79a4c; --green: #56c283; --violet: #b294f2; --red: #f0747c; --teal: #4cc3d0;
  }
}
.chart text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif; fill: var(--quiet); }
.chart .title { font-size: 14px; font-weight: 600; fill: var(--text); }
.chart .unit { font-weight: 400; font-size: 12px; fill: var(--quiet); }
.chart .label { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.chart .background { fill: var(--card); }
.chart .grid { stroke: var(--grid); stroke-width: 1; }
.chart .axis { stroke: var(--line); stroke-width: 1; }
.chart .boundary { stroke: var(--quiet); stroke-width: 1; stroke-dasharray: 3 3; opacity: .7; }
.chart .reference { stroke: var(--red); stroke-width: 1.25; stroke-dasharray: 7 4; }
.chart .reference-label { fill: var(--red); }
.chart polyline { fill: none; stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round; }
.chart .faint { stroke-width: 1; opacity: .3; }
.chart .blue { stroke: var(--blue); } .chart .orange { stroke: var(--orange); } .chart .green { stroke: var(--green); }
.chart .violet { stroke: var(--violet); } .chart .red { stroke: var(--red); } .chart .teal { stroke: var(--teal); }
.chart circle { stroke-width: 1.5; fill: var(--card); }
.chart .swatch { stroke-width: 3; }
)css";

// The page around the charts.
inline constexpr const char* kPageStyle = R"css(
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 12px; }
.quiet { color: var(--quiet); margin: 0; }
.badge { display: inline-block; font-size: 13px; font-weight: 600; padding: 1px 10px; border-radius: 999px; border: 1px solid currentColor; vertical-align: 4px; margin-left: 10px; }
.badge.good { color: var(--green); } .badge.fair { color: var(--orange); }
.note { color: var(--quiet); font-size: 13px; margin: 8px 2px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 22px 0; }
.card, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 16px; }
.tile .name { color: var(--quiet); font-size: 13px; }
.tile .value { font-size: 24px; font-weight: 600; line-height: 1.3; white-space: nowrap; }
.tile .note { font-size: 12px; margin: 0; }
.card { padding: 12px 12px 8px; }
.card svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; } .wide svg { min-width: 700px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 12px; margin-top: 12px; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 0 40px; margin: 0; padding: 6px 18px; background: var(--card); border: 1px solid var(--line); border-radius: 10px; font-size: 14px; }
.facts div { display: flex; justify-content: space-between; gap: 16px; padding: 5px 0; }
.facts dt { color: var(--quiet); } .facts dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--quiet); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; overflow-x: auto; font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
@media print { body { background: #fff; } .card, .tile, .scroll { break-inside: avoid; } }
)css";

}  // namespace longhaul::report
