#include "evaluation/html_page.hpp"

namespace hexlm {

const std::string_view report_style = R"css(
:root { --ink: #1c2430; --soft: #5b6675; --line: #d8dee6; --back: #ffffff; --card: #f5f7fa;
  --a: #2563a8; --b: #c2571a; --good: #1f7a4d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --line: #343d4a;
  --back: #12161c; --card: #1b2129; --a: #6aa9e9; --b: #f0965a; --good: #58c08d; --bad: #f2867e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 16px; }
h1 { font-size: 1.5rem; margin: 8px 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 32px 0 8px; }
p { margin: 8px 0; }
.soft { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 8px; margin: 12px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile span { color: var(--soft); font-size: .85rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.row { background: var(--card); border-radius: 8px; padding: 12px; margin: 10px 0; overflow-wrap: anywhere; }
.row img { max-width: 100%; max-height: 240px; border-radius: 4px; display: block; margin: 8px 0; }
.row dt { color: var(--soft); font-size: .85rem; margin-top: 6px; } .row dd { margin: 0; white-space: pre-wrap; }
pre { background: var(--card); padding: 12px; border-radius: 8px; overflow: auto; font-size: .8rem; max-height: 70vh; }
details summary { cursor: pointer; }
svg { display: block; max-width: 100%; } svg text { fill: var(--ink); font-size: 12px; } svg .soft { fill: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .88rem; color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
)css";

const std::string_view report_plots = R"js("use strict";
const SVG = "http://www.w3.org/2000/svg";
function add(parent, tag, attributes, text) {
  const node = parent.namespaceURI === SVG || tag === "svg"
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined && text !== null) node.textContent = text;
  parent.appendChild(node);
  return node;
}
function round(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}
const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : (100 * value).toFixed(digits) + " %");
// Plots are drawn at the width that there is, so that their text stays readable on a phone.
const plotWidth = () => Math.max(300, Math.min(960, document.getElementById("page").clientWidth - 32));
function heading(page, text, note) {
  add(page, "h2", {}, text);
  if (note) add(page, "p", { class: "soft" }, note);
}
function tiles(page, entries) {
  const box = add(page, "div", { class: "tiles" });
  for (const [label, value, mood] of entries) {
    const tile = add(box, "div", { class: "tile" });
    add(tile, "b", mood ? { class: mood } : {}, value);
    add(tile, "span", {}, label);
  }
}
function table(page, columns, rows) {
  const node = add(add(page, "div", { class: "scroll" }), "table");
  const head = add(add(node, "thead"), "tr");
  const numeric = columns.map((_, i) => rows.length > 0 && rows.every((row) => /^[-+–\d.,%eE ]*$/.test(String(row[i]))));
  columns.forEach((title, i) => add(head, "th", numeric[i] ? { class: "number" } : {}, title));
  const body = add(node, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((cell, i) => add(line, "td", numeric[i] ? { class: "number" } : {}, cell));
  }
}
function legend(page, entries) {
  const box = add(page, "div", { class: "legend" });
  for (const [label, color] of entries) {
    const item = add(box, "span");
    add(item, "i", { style: "background:" + color });
    item.appendChild(document.createTextNode(label));
  }
}
// Horizontal bars: [label, value, text, low, high]; low and high draw a whisker.
function bars(page, entries, most, color = "var(--a)") {
  const width = plotWidth(), height = 24 * entries.length + 6, right = 84;
  const left = Math.min(0.45 * width, 16 + 6.6 * Math.max(...entries.map((e) => e[0].length)));
  const scale = (value) => left + (width - left - right) * Math.min(1, Math.max(0, value / (most || 1)));
  const svg = add(page, "svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img" });
  entries.forEach(([label, value, text, low, high], i) => {
    const y = 24 * i + 4;
    add(svg, "text", { x: left - 8, y: y + 13, "text-anchor": "end" }, label);
    add(svg, "rect", { x: left, y, width: Math.max(1, scale(value) - left), height: 17, rx: 2, fill: color });
    if (low !== undefined && high !== undefined) {
      add(svg, "path", { d: `M${scale(low)} ${y + 8.5}H${scale(high)}M${scale(low)} ${y + 4}v9M${scale(high)} ${y + 4}v9`,
        stroke: "var(--ink)", fill: "none", "stroke-width": 1.5 });
    }
    const end = high !== undefined ? Math.max(scale(value), scale(high)) : scale(value);
    add(svg, "text", { x: end + 8, y: y + 13 }, text);
  });
}
// Points over an ordered axis: series of {color, values, dots}, the others are dashes; names are shown when a
// point is touched.
function dotPlot(page, names, series, unit) {
  const left = 44, top = 10, bottom = 22, height = 260;
  const width = Math.max(plotWidth(), left + 5 * names.length + 10);
  const known = series.flatMap((s) => s.values.filter((v) => v !== null && Number.isFinite(v)));
  const low = Math.min(0, ...known), high = Math.max(1, ...known);
  const x = (i) => left + ((width - left - 10) * (i + 0.5)) / names.length;
  const y = (v) => top + ((height - top - bottom) * (high - v)) / (high - low || 1);
  const box = add(page, "div", { class: "scroll" });
  const svg = add(box, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, style: "max-width:none", role: "img" });
  for (let k = 0; k <= 4; ++k) {
    const v = low + ((high - low) * k) / 4;
    add(svg, "path", { d: `M${left} ${y(v)}H${width - 10}`, stroke: "var(--line)" });
    add(svg, "text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "soft" }, v.toFixed(0));
  }
  add(svg, "text", { x: left, y: height - 4, class: "soft" }, names[0]);
  add(svg, "text", { x: width - 10, y: height - 4, "text-anchor": "end", class: "soft" }, names[names.length - 1]);
  for (const { color, values, dots } of series) {
    values.forEach((v, i) => {
      if (v === null) return;
      const mark = dots ? add(svg, "circle", { cx: x(i), cy: y(v), r: 3, fill: color })
        : add(svg, "path", { d: `M${x(i) - 3} ${y(v)}h6`, stroke: color, "stroke-width": 2 });
      add(mark, "title", {}, `${names[i]}: ${round(v)} ${unit}`);
    });
  }
}
function histogram(page, counts, label) {
  const width = plotWidth(), height = 190, left = 40, bottom = 24, most = Math.max(1, ...counts);
  const step = (width - left - 8) / counts.length;
  const svg = add(page, "svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img" });
  counts.forEach((count, i) => {
    const h = ((height - bottom - 12) * count) / most;
    const bar = add(svg, "rect", { x: left + i * step + 1, y: height - bottom - h, width: step - 2, height: h, fill: "var(--a)" });
    add(bar, "title", {}, `${label(i)}: ${count}`);
  });
  for (let i = 0; i <= counts.length; i += Math.ceil(counts.length / 6))
    add(svg, "text", { x: left + i * step, y: height - 6, "text-anchor": i === counts.length ? "end" : "middle", class: "soft" }, label(i));
  add(svg, "text", { x: left - 6, y: 14, "text-anchor": "end", class: "soft" }, most);
}
// Points with names: [x, y, name].
function scatter(page, points, xLabel, yLabel) {
  const width = plotWidth(), height = 230, left = 16, bottom = 40, right = 16;
  const xMost = 1.1 * Math.max(...points.map((p) => p[0]));
  const ys = points.map((p) => p[1]), low = Math.min(...ys), high = Math.max(...ys), pad = 0.15 * (high - low || high || 1);
  const x = (v) => left + ((width - left - right) * v) / xMost;
  const y = (v) => 12 + ((height - 12 - bottom) * (high + pad - v)) / (high - low + 2 * pad);
  const svg = add(page, "svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img" });
  add(svg, "path", { d: `M${left} 12V${height - bottom}H${width - 10}`, stroke: "var(--line)", fill: "none" });
  points.forEach(([px, py, name], i) => {
    add(svg, "circle", { cx: x(px), cy: y(py), r: 5, fill: i === 0 ? "var(--a)" : "var(--b)" });
    const before = x(px) > width / 2;
    add(svg, "text", { x: x(px) + (before ? -9 : 9), y: y(py) + 4, "text-anchor": before ? "end" : "start" },
      `${name}: ${round(py)} at ${round(px)} MB`);
  });
  add(svg, "text", { x: left, y: height - 8, class: "soft" }, xLabel);
  add(svg, "text", { x: left + 6, y: 20, class: "soft" }, yLabel);
}
)js";

const std::string_view report_script = R"js(
const DATA = JSON.parse(document.getElementById("data").textContent);
function drawEval(page, r) {
  const exact = r.rates.exact;
  tiles(page, [["rows", round(r.rows)], ["exact", percent(exact.rate), exact.rate === 1 ? "good" : ""],
    ...(r.rates.parsed ? [["parsed as JSON", percent(r.rates.parsed.rate)]] : []),
    ...(r.field_recall !== undefined ? [["fields right, of all expected", percent(r.field_recall)]] : []),
    ["degenerate answers", round(r.degenerate), r.degenerate > 0 ? "bad" : "good"], ["verdict", r.verdict, r.verdict === "pass" ? "good" : "bad"]]);
  heading(page, "Rates", "Bars are shares, whiskers the 95 % Wilson interval.");
  const rates = [["exact", exact], ["parsed", r.rates.parsed], ["degenerate", r.rates.degenerate]];
  for (const [name, part] of [["text", r.text], ["choices", r.choices]])
    for (const [key, rate] of Object.entries(part || {})) rates.push([name + " " + key.replaceAll("_", " "), rate]);
  bars(page, rates.filter((e) => e[1]).map(([name, rate]) =>
    [name, rate.rate, `${rate.count} of ${rate.total}`, rate.low, rate.high]), 1);
  if (r.fields) {
    heading(page, "Fields", "Right values of all expected; lists are matched in any order.");
    bars(page, Object.entries(r.fields).map(([name, c]) => [name, c.recall, `${c.correct} of ${c.expected}`]), 1);
    table(page, ["field", "expected", "right", "missing", "wrong type", "superfluous"],
      Object.entries(r.fields).map(([name, c]) => [name, c.expected, c.correct, c.missing, c.wrong_type, c.extra]));
  }
  if (r.against) {
    heading(page, "Against the earlier result");
    tiles(page, [["now right", round(r.against.gained), "good"], ["now wrong", round(r.against.lost), r.against.lost ? "bad" : ""],
      ["McNemar p", round(r.against.p_value, 3)], ["beyond chance", r.against.significant ? "yes" : "no"]]);
    table(page, ["line", "", "before", "now"], r.against.changed.map((c) =>
      [c.line, c.was_correct ? "now wrong" : "now right", c.before, c.after]));
  }
  heading(page, `Rows that are not exact (${r.failures.length})`);
  if (r.failures.length === 0) add(page, "p", {}, "None.");
  for (const f of r.failures.slice(0, 200)) {
    const row = add(page, "div", { class: "row" });
    add(row, "strong", {}, `Line ${f.line}: ${f.reason}`);
    if (f.image && DATA.images[f.image]) add(row, "img", { src: DATA.images[f.image], alt: f.image });
    const list = add(row, "dl");
    for (const [label, value] of [["prompt", f.prompt], ["expected", f.expected], ["answer", f.answer]]) {
      add(list, "dt", {}, label);
      add(list, "dd", {}, typeof value === "string" ? value : JSON.stringify(value));
    }
  }
}
function drawCompare(page, r) {
  tiles(page, [["perplexity of the reference", round(r.perplexity_reference, 5)], ["perplexity", round(r.perplexity, 5)],
    ["increase", round(r.perplexity_increase, 3), r.perplexity_increase > 0.5 ? "bad" : ""], ["mean KL, nats", round(r.kl_mean, 3)],
    ["99th percentile of KL", round(r.kl_p99, 3)], ["top-1 agreement", percent(r.top1_agreement)],
    ["top-5 agreement", percent(r.top5_agreement)], ["verdict", r.verdict, r.verdict === "pass" ? "good" : "bad"]]);
  add(page, "p", { class: "soft" }, `reference: ${r.reference}`);
  add(page, "p", { class: "soft" }, `model: ${r.model}`);
  if (r.greedy) add(page, "p", {}, r.greedy.position === null ? `Greedy text: the same ${r.greedy.compared} tokens.`
    : `Greedy text parts at token ${r.greedy.position}: “${r.greedy.reference_text}” became “${r.greedy.text}”.`);
  if (r.layers.length > 0) {
    heading(page, "Layers", r.first_divergence ? `First divergence: ${r.first_divergence}.`
      : "No divergence: every node's own error is what its weights explain.");
    legend(page, [["own error (fed the reference's inputs)", "var(--a)"], ["built up", "var(--b)"], ["explained by the weights", "var(--soft)"]]);
    const clip = (v) => (v === null ? null : Math.min(v, 80));
    dotPlot(page, r.layers.map((l) => l.name), [
      { color: "var(--soft)", values: r.layers.map((l) => clip(l.expected_snr_db)) },
      { color: "var(--b)", values: r.layers.map((l) => clip(l.global_snr_db)), dots: true },
      { color: "var(--a)", values: r.layers.map((l) => clip(l.snr_db)), dots: true }], "dB");
    add(page, "p", { class: "soft" }, "Signal to noise in dB, nodes in order of execution, cut off at 80; touch a point for its name.");
    const by = Object.fromEntries(r.layers.map((l) => [l.name, l]));
    heading(page, "Suspects", "Nodes by how much worse their own error is than explained.");
    table(page, ["node", "op", "SNR dB", "explained", "cosine", "max error", "built up dB"], r.culprits.map((name) => by[name]).map((l) =>
      [l.name, l.op, l.snr_db === null ? (l.finite ? "exact" : "no numbers") : l.snr_db.toFixed(1), l.expected_snr_db.toFixed(1),
        l.cosine.toFixed(6), round(l.max_abs, 3), l.global_snr_db === null ? "–" : l.global_snr_db.toFixed(1)]));
  }
  const h = r.kl_histogram;
  heading(page, "KL divergence of the positions", "Positions by KL in nats; logarithmic axis.");
  histogram(page, h.counts, (i) => (10 ** (h.log10_low + ((h.log10_high - h.log10_low) * i) / h.counts.length)).toExponential(0));
  heading(page, "Perplexity by size");
  scatter(page, [[r.weight_bytes_reference / 1e6, r.perplexity_reference, "reference"], [r.weight_bytes / 1e6, r.perplexity, "model"]],
    "weights, MB", "perplexity");
  if (r.checks.length > 0) {
    heading(page, "Limits");
    table(page, ["check", "value", "limit", ""], r.checks.map((c) => [c.name, round(c.value), round(c.limit), c.passed ? "kept" : "missed"]));
  }
}
function drawBench(page, r) {
  tiles(page, [["load", round(1000 * r.load_s, 3) + " ms"], ["first token after", r.ttft_s === null ? "–" : round(1000 * r.ttft_s, 3) + " ms"],
    ["peak memory", round(r.peak_memory_bytes / 1e6, 4) + " MB"], ["bits per weight", round(r.bits_per_weight, 3)]]);
  for (const name of [...new Set(r.rows.map((row) => row.name))]) {
    const rows = r.rows.filter((row) => row.name === name);
    heading(page, `${name}, ${rows[0].unit}`, name === r.rows[0].name ? "Medians; whiskers from the slowest to the fastest run." : "");
    bars(page, rows.map((row) => [`${row.backend}, ${row.threads} thread${row.threads === 1 ? "" : "s"}, ${row.precision}`,
      row.median, round(row.median), Math.min(...row.samples), Math.max(...row.samples)]),
      Math.max(...rows.flatMap((row) => row.samples)));
  }
  if (r.baseline) {
    heading(page, "Against the baseline", "A change is called when it exceeds the noise of both measurements.");
    table(page, ["row", "threads", "before", "now", "change", "noise", ""], r.baseline.map((b) =>
      [b.name, b.threads, round(b.before), round(b.after), percent(b.change), percent(b.noise), b.verdict]));
  }
  for (const setting of r.settings) for (const p of setting.profiles || []) {
    heading(page, `Where ${p.name} spends its time`, `${setting.backend}, threads: ${setting.threads}, ${setting.precision}; memory reads at ${round(setting.memory_bytes_per_s / 1e9, 3)} GB/s`);
    bars(page, p.ops.map((o) => [o.op, o.share, percent(o.share)]), Math.max(...p.ops.map((o) => o.share)));
    table(page, ["node", "op", "share", "ms", "GB/s", "of memory", "GMAC/s"], p.nodes.slice(0, 20).map((n) => [n.name, n.op,
      percent(n.share), (1000 * n.seconds).toFixed(3), n.gb_per_s.toFixed(2), percent(n.memory_share, 0), n.gmac_per_s.toFixed(2)]));
  }
  heading(page, "Rows");
  table(page, ["row", "backend", "threads", "precision", "mean", "± sd", "median", "unit"], r.rows.map((row) =>
    [row.name, row.backend, row.threads, row.precision, round(row.mean), round(row.stddev, 3), round(row.median), row.unit]));
}
function drawEnvironment(page) {
  heading(page, "Environment");
  table(page, ["", ""], Object.entries(DATA.environment).map(([k, v]) => [k.replaceAll("_", " "), Array.isArray(v) ? v.join(", ") : String(v)]));
  add(page, "p", { class: "soft" }, DATA.command);
  add(page, "p", { class: "soft" }, DATA.created);
  const details = add(page, "details");
  add(details, "summary", {}, "The result as JSON");
  details.addEventListener("toggle", () => {
    if (!details.querySelector("pre")) add(details, "pre", {}, JSON.stringify(DATA.result, null, 1));
  });
}
const page = document.getElementById("page");
({ eval: drawEval, compare: drawCompare, bench: drawBench })[DATA.kind](page, DATA.result);
drawEnvironment(page);
)js";

}  // namespace hexlm
