// Numbers and plots of what the filters let through.

const W = 420;
const H = 170;

function barChart(values, { label, format = number, go = null, kind = "accent", every = 1 }) {
  const top = Math.max(1e-9, ...values.map((v) => v.value));
  const [left, bottom, up] = [8, 22, 18];
  const step = (W - 2 * left) / Math.max(1, values.length);
  const nodes = values.map((v, i) => {
    const height = ((H - bottom - up) * v.value) / top;
    const [x, y] = [left + i * step, H - bottom - height];
    const attributes = { x: x + step * 0.12, y, width: step * 0.76, height: Math.max(height, v.value ? 1 : 0), rx: 2, class: "c-" + (v.kind || kind) };
    if (go) Object.assign(attributes, { "data-go": "", onclick: () => go(v) });
    const middle = x + step / 2;
    return [
      svg("rect", attributes, svg("title", {}, `${v.name}: ${format(v.value)}`)),
      v.value > 0 && step > 26 && svg("text", { class: "value", x: middle, y: y - 4, "text-anchor": "middle" }, format(v.value)),
      i % every === 0 && svg("text", { x: middle, y: H - 7, "text-anchor": "middle" }, v.name),
    ];
  });
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: left, x2: W - left, y1: H - bottom + 0.5, y2: H - bottom + 0.5 }), nodes);
}

// Horizontal bars, each made of parts: [{name, parts: [{value, kind, title}], text, go}].
function stackedBars(rows, label) {
  const top = Math.max(1e-9, ...rows.map((r) => r.parts.reduce((a, p) => a + p.value, 0)));
  const [left, right, height] = [128, 74, 24];
  const nodes = rows.map((r, i) => {
    let x = left;
    const y = i * height + 4;
    const parts = r.parts.map((p) => {
      const width = ((W - left - right) * p.value) / top;
      const attributes = { x, y, width, height: height - 8, class: "c-" + p.kind };
      if (r.go) Object.assign(attributes, { "data-go": "", onclick: r.go });
      x += width;
      return svg("rect", attributes, svg("title", {}, `${r.name}, ${p.title}: ${number(p.value)}`));
    });
    const name = r.name.length > 19 ? r.name.slice(0, 18) + "…" : r.name;
    return [svg("text", { x: left - 8, y: y + 12, "text-anchor": "end" }, name, svg("title", {}, r.name)), parts,
      svg("text", { class: "value", x: x + 6, y: y + 12 }, r.text)];
  });
  return svg("svg", { viewBox: `0 0 ${W} ${Math.max(1, rows.length) * height + 6}`, role: "img", "aria-label": label }, nodes);
}

function counted(rows, key) {
  const out = new Map();
  for (const row of rows) for (const k of [key(row)].flat()) out.set(k, (out.get(k) || 0) + 1);
  return out;
}

function byResult(rows) {
  const counts = counted(rows, (r) => r.result);
  return Object.entries(RESULTS).map(([kind, r]) => ({ kind, title: r.name, value: counts.get(kind) || 0 })).filter((p) => p.value);
}

function histogram(values, bins, top) {
  const out = Array.from({ length: bins }, () => 0);
  for (const v of values) out[Math.min(bins - 1, Math.floor((v / top) * bins))] += 1;
  return out;
}

const plot = (title, ...content) => el("section", { class: "card" }, el("h3", {}, title), content);

function timePlot(title, values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  const top = Math.max(at(0.99), 1e-6) * 1.0001; // the slowest of a hundred would squeeze the rest; the last bar holds it
  const bins = 14;
  const bars = histogram(values, bins, top).map((value, i) => ({ value, name: seconds((i * top) / bins) }));
  return plot(title, barChart(bars, { label: title, every: 4 }), el("p", { class: "legend" }, `p50 ${seconds(at(0.5))} · p95 ${seconds(at(0.95))} · mean ${seconds(mean(values))}`));
}

function showOverview(rows, filterBy) {
  const detail = $("detail");
  detail.replaceChildren();
  if (!rows.length) return void add(detail, [el("p", { class: "empty" }, "no trajectory fits the filters")]);
  const valid = rows.filter((r) => r.valid);
  const calls = rows.reduce((a, r) => a + r.commands, 0);
  const tiles = [
    ["trajectories", number(rows.length)], ["questions", number(new Set(rows.map((r) => r.question)).size)],
    ["mean F1", score(mean(valid.map((r) => r.f1)))], ["exact match", score(mean(valid.map((r) => r.em)))],
    ["mean reward", score(mean(valid.map((r) => r.reward)))],
    ["format kept", percent(valid.filter((r) => !(r.flags & (1 << INDEX.flags.findIndex(([f]) => f === "format")))).length, valid.length)],
    ["turns", mean(rows.map((r) => r.turns)).toFixed(2)], ["commands", number(calls)],
    ["faults, not in the means", number(rows.length - valid.length)],
  ];
  const scored = histogram(valid.map((r) => r.f1), 11, 1.1).map((value, i) => ({
    value, low: i === 10 ? 1 : i / 10, high: i === 10 ? 1 : (i + 0.999) / 10, name: i === 10 ? "1" : (i / 10).toFixed(1), kind: i === 10 ? "good" : i ? "part" : "bad",
  }));
  const turns = [...counted(rows, (r) => r.turns)].sort((a, b) => a[0] - b[0]);
  const outcomes = {};
  for (const r of rows) for (const [key, n] of Object.entries(r.outcomes)) outcomes[key] = (outcomes[key] || 0) + n;
  const ran = Object.values(outcomes).reduce((a, b) => a + b, 0);
  const programs = [...counted(rows, (r) => r.programs)].sort((a, b) => b[1] - a[1]).slice(0, 10);
  const of = (key) => (place) => rows.filter((r) => r[key] === place);
  const split = (names, key) => names.map((name, i) => ({ name, rows: of(key)(i), go: () => filterBy({ [key]: String(i) }) })).filter((g) => g.rows.length)
    .map((g) => ({ ...g, parts: byResult(g.rows), text: `${score(mean(g.rows.filter((r) => r.valid).map((r) => r.f1)))} F1` }));
  add(detail, [
    el("div", { class: "tiles" }, tiles.map(([name, value]) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, name)))),
    el("div", { class: "plots" },
      plot("F1", barChart(scored, { label: "trajectories by F1", go: (v) => filterBy({ low: v.low.toFixed(2), high: v.high.toFixed(4) }) })),
      plot("How they end", stackedBars(split(INDEX.finishes, "finish"), "endings by result"),
        el("p", { class: "legend" }, byResult(rows).map((p) => [chip(`${RESULTS[p.kind].sign} ${p.title} ${percent(p.value, rows.length)}`, p.kind)]))),
      (INDEX.runs.length > 1) && plot("Runs and sets", stackedBars(split(INDEX.runs, "run"), "runs by result")),
      (INDEX.policies.length > 1) && plot("Policies", stackedBars(split(INDEX.policies, "policy"), "policies by result")),
      plot("Turns", stackedBars(turns.map(([n]) => {
        const group = rows.filter((r) => r.turns === n);
        return { name: n + (n === 1 ? " turn" : " turns"), parts: byResult(group), text: number(group.length) };
      }), "trajectories by turns")),
      plot("Commands", stackedBars(Object.entries(OUTCOMES).filter(([key]) => outcomes[key]).map(([key, o]) => {
        const place = INDEX.flags.findIndex(([f]) => f === key);
        return { name: o.name, parts: [{ value: outcomes[key], kind: o.kind, title: o.name }], text: percent(outcomes[key], ran), go: place < 0 ? null : () => filterBy({ flag: String(place) }) };
      }), "commands by outcome")),
      programs.length > 0 && plot("Programs", stackedBars(programs.map(([name, value]) => ({ name, parts: [{ value, kind: "accent", title: "trajectories" }], text: percent(value, rows.length) })), "trajectories that use a program")),
      timePlot("Model seconds an episode", rows.filter((r) => r.model !== null).map((r) => r.model)),
      timePlot("Command seconds an episode", rows.filter((r) => r.tool !== null).map((r) => r.tool))),
  ]);
  detail.scrollTop = 0;
}
