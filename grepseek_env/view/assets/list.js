// Filters and the list. The list draws only the rows that are in sight.

const ROW_HEIGHT = 60; // as in the style
const CHOICES = ["run", "policy", "finish", "result", "flag", "sort"];
const EMPTY = { text: "", run: "", policy: "", finish: "", result: "", flag: "", low: "", high: "", sort: "" };
const filters = { ...EMPTY };
let chosen = []; // rows that the filters let through, in order
let items = []; // what the list shows: rows, or questions

const SORTS = {
  "": { name: "in order", key: null },
  worst: { name: "F1, lowest first", key: (r) => r.f1 },
  best: { name: "F1, highest first", key: (r) => -r.f1 },
  long: { name: "most turns first", key: (r) => -r.turns },
  slow: { name: "slowest first", key: (r) => -((r.model || 0) + (r.tool || 0)) },
  spread: { name: "samples differ most", key: (r) => -spread(INDEX.questions[r.question]) },
};

function spread(question) {
  if (question.spread === undefined) {
    const values = question.rows.map((r) => r.reward);
    question.spread = Math.max(...values) - Math.min(...values);
  }
  return question.spread;
}

function applyFilters() {
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  const low = filters.low === "" ? -Infinity : Number(filters.low);
  const high = filters.high === "" ? Infinity : Number(filters.high);
  const bit = filters.flag === "" ? 0 : 1 << Number(filters.flag);
  chosen = INDEX.rows.filter(
    (r) =>
      (filters.run === "" || r.run === Number(filters.run)) &&
      (filters.policy === "" || r.policy === Number(filters.policy)) &&
      (filters.finish === "" || r.finish === Number(filters.finish)) &&
      (filters.result === "" || r.result === filters.result) &&
      (!bit || r.flags & bit) &&
      r.f1 >= low &&
      r.f1 <= high &&
      words.every((w) => searched(r).includes(w)),
  );
  const { key } = SORTS[filters.sort];
  if (key) chosen = chosen.map((r) => [key(r), r]).sort((a, b) => a[0] - b[0] || a[1].place - b[1].place).map((p) => p[1]);
}

function buildFilters(changed) {
  const form = $("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  const search = el("input", { type: "search", id: "search", placeholder: "search question, answer, commands  ( / )",
    "aria-label": "search", oninput: () => set("text", search.value) });
  let timer = 0;
  const set = (name, value) => {
    filters[name] = value;
    clearTimeout(timer);
    timer = setTimeout(changed, name === "text" ? 120 : 0);
  };
  const options = {
    run: ["all runs and sets", ...INDEX.runs.map((name, i) => [i, name])],
    policy: ["all policies", ...INDEX.policies.map((name, i) => [i, name])],
    finish: ["all endings", ...INDEX.finishes.map((name, i) => [i, "end: " + name])],
    result: ["all results", ...Object.entries(RESULTS).map(([key, r]) => [key, r.sign + " " + r.name])],
    flag: ["any or no errors", ...INDEX.flags.map(([, words], i) => [i, words])],
    sort: Object.entries(SORTS).map(([key, s]) => [key, s.name]),
  };
  form.append(search);
  for (const name of CHOICES) {
    const [first, ...rest] = name === "sort" ? [null, ...options.sort] : options[name];
    if ((name === "run" || name === "policy") && rest.length < 2) continue;
    const select = el("select", { id: "f-" + name, "aria-label": name, onchange: () => set(name, select.value) });
    if (first) select.append(el("option", { value: "" }, first));
    for (const [value, text] of rest) select.append(el("option", { value }, text));
    form.append(select);
  }
  const bound = (name, label) =>
    el("input", { id: "f-" + name, type: "number", min: 0, max: 1, step: 0.1, placeholder: label, "aria-label": "F1 " + label,
      oninput: (event) => set(name, event.target.value) });
  const clear = el("button", { type: "button", title: "clear all filters (x)", onclick: () => clearFilters(changed) }, "Clear");
  form.append(el("div", { class: "range" }, "F1", bound("low", "from"), "–", bound("high", "to"), clear));
}

function showFilters() {
  $("search").value = filters.text;
  for (const name of [...CHOICES, "low", "high"]) {
    const field = $("f-" + name);
    if (field) field.value = filters[name];
  }
}

function clearFilters(changed) {
  Object.assign(filters, EMPTY);
  showFilters();
  changed();
}

function draw(selected) {
  const list = $("list");
  $("spacer").style.height = items.length * ROW_HEIGHT + "px";
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 4);
  const last = Math.min(items.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_HEIGHT) + 4);
  for (const old of list.querySelectorAll(".item")) old.remove();
  for (let i = first; i < last; i++) {
    const node = items[i].rows ? questionItem(items[i]) : episodeItem(items[i]);
    node.style.top = i * ROW_HEIGHT + "px";
    node.dataset.item = i;
    node.setAttribute("aria-selected", String(i === selected));
    list.append(node);
  }
}

function episodeItem(row) {
  const q = INDEX.questions[row.question];
  const parts = [row.answer === null ? "no answer" : "→ " + row.answer];
  if (q.rows.length > 1) parts.push("sample " + row.sample);
  if (INDEX.runs.length > 1) parts.push(INDEX.runs[row.run]);
  return el("div", { class: "item", role: "option" },
    el("span", { class: "mark " + row.result, title: RESULTS[row.result].name }, RESULTS[row.result].sign),
    el("span", { class: "q" }, q.text),
    el("span", { class: "score " + row.result }, row.valid ? score(row.f1) : "–"),
    el("span", { class: "sub" }, parts.join(" · ")));
}

function questionItem(group) {
  const rows = group.rows;
  const shown = rows.slice(0, 12).map((r) => el("i", { class: r.result }));
  if (rows.length > 12) shown.push(el("small", {}, "+" + (rows.length - 12)));
  const valid = rows.filter((r) => r.valid);
  const best = Math.max(0, ...valid.map((r) => r.f1));
  const kind = !valid.length ? "fault" : valid.some((r) => r.em >= 1) ? "good" : best > 0 ? "part" : "bad";
  return el("div", { class: "item", role: "option" },
    el("span", { class: "mark " + kind, title: "best of all: " + RESULTS[kind].name }, RESULTS[kind].sign),
    el("span", { class: "q" }, INDEX.questions[group.question].text),
    el("span", { class: "squares" }, shown),
    el("span", { class: "sub" }, `mean F1 ${score(mean(valid.map((r) => r.f1)))} · best ${score(best)} · ${rows.length} trajectories`));
}

function intoSight(i) {
  const list = $("list");
  const top = i * ROW_HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
}
