// What is shown, and what keys and clicks do. The address's hash holds the place: #e=12, #q=3, #overview.

const state = { view: "episodes", selected: 0, raw: false, shown: 0 };

function itemsOf(view) {
  if (view !== "questions") return chosen;
  // Groups are made of what the filters let through, in its order.
  const groups = new Map();
  for (const row of chosen) {
    if (!groups.has(row.question)) groups.set(row.question, { question: row.question, rows: [] });
    groups.get(row.question).rows.push(row);
  }
  return [...groups.values()];
}

const placeOf = (item) => (item.rows ? item.question : item.place);

function hashOf() {
  if (state.view === "overview") return "#overview";
  const item = items[state.selected];
  return item ? `#${state.view === "questions" ? "q" : "e"}=${placeOf(item)}` : "#";
}

function show() {
  document.querySelectorAll("nav button").forEach((b) => b.setAttribute("aria-current", String(b.dataset.view === state.view)));
  $("raw").setAttribute("aria-pressed", String(state.raw));
  const noun = state.view === "questions" ? "questions" : "trajectories";
  const all = state.view === "questions" ? INDEX.questions.length : INDEX.rows.length;
  $("count").textContent = `${number(items.length)} of ${number(all)} ${noun}`;
  draw(state.selected);
  const turn = ++state.shown;
  const item = items[state.selected];
  document.body.dataset.ready = "";
  history.replaceState(null, "", hashOf());
  let done;
  if (state.view === "overview") done = showOverview(chosen, (change) => (Object.assign(filters, change), showFilters(), refresh()));
  else if (!item) $("detail").replaceChildren(el("p", { class: "empty" }, "nothing fits the filters"));
  else if (item.rows) done = showQuestion(item, goTo);
  else done = showTrajectory(item, state.raw, goTo, () => turn !== state.shown);
  Promise.resolve(done).then(() => turn === state.shown && (document.body.dataset.ready = "yes"), failed);
}

function refresh(keep) {
  applyFilters();
  items = itemsOf(state.view);
  const found = keep === undefined ? -1 : items.findIndex((item) => placeOf(item) === keep);
  state.selected = Math.max(0, found);
  $("spacer").style.height = items.length * ROW_HEIGHT + "px"; // there must be room to scroll to
  if (found < 0) $("list").scrollTop = 0;
  else intoSight(found);
  show();
}

function setView(view) {
  const item = items[state.selected];
  const keep = item === undefined || view === "overview" || state.view === "overview" ? undefined
    : view === "questions" ? item.question : item.rows ? item.rows[0].place : item.place;
  state.view = view;
  refresh(keep);
}

function select(i) {
  if (!items.length) return;
  if (state.view === "overview") state.view = "episodes";
  state.selected = Math.max(0, Math.min(items.length - 1, i));
  intoSight(state.selected);
  show();
}

function goTo(row) {
  state.view = "episodes";
  applyFilters();
  if (!chosen.includes(row)) Object.assign(filters, EMPTY), showFilters();
  refresh(row.place);
}

function sibling(step) {
  const item = items[state.selected];
  if (!item || item.rows) return;
  const rows = INDEX.questions[item.question].rows;
  goTo(rows[(rows.indexOf(item) + step + rows.length) % rows.length]);
}

function remember(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch {
    // a page opened from a file may have no storage
  }
  return null;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  remember("grepseek-theme", theme);
}

const toggleTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const toggleRaw = () => ((state.raw = !state.raw), show());

const KEYS = {
  j: () => select(state.selected + 1), ArrowDown: () => select(state.selected + 1),
  k: () => select(state.selected - 1), ArrowUp: () => select(state.selected - 1),
  Home: () => select(0), End: () => select(items.length - 1),
  PageDown: () => select(state.selected + 10), PageUp: () => select(state.selected - 10),
  n: () => sibling(1), p: () => sibling(-1),
  e: () => setView("episodes"), q: () => setView("questions"), o: () => setView("overview"),
  "/": () => ($("search").focus(), $("search").select()),
  x: () => clearFilters(refresh), r: toggleRaw, t: toggleTheme, "?": () => $("keys").showModal(),
  Enter: () => items[state.selected] && items[state.selected].rows && goTo(items[state.selected].rows[0]),
};

function onKey(event) {
  const field = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && field) return void field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (event.key === "Enter" && event.target.closest("button, summary, tr")) return;
  const action = KEYS[event.key];
  if (action) event.preventDefault(), action();
}

function fromHash() {
  const [, kind, place] = /^#(?:(e|q)=(\d+)|overview)$/.exec(location.hash) || [];
  if (location.hash === "#overview") state.view = "overview";
  else if (kind === "q") state.view = "questions";
  else state.view = "episodes";
  refresh(place === undefined ? undefined : Number(place));
}

function failed(error) {
  document.body.dataset.ready = "failed";
  const old = typeof DecompressionStream === "undefined";
  $("detail").replaceChildren(el("section", { class: "card error" },
    old ? "This browser is too old to unpack the page: it needs DecompressionStream (Chrome 80, Firefox 113, Safari 16.4)." : String(error)));
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = remember("grepseek-theme") || (dark.matches ? "dark" : "light");
  await loadIndex();
  buildFilters(() => refresh(items[state.selected] && placeOf(items[state.selected])));
  document.querySelectorAll("nav button").forEach((b) => b.addEventListener("click", () => setView(b.dataset.view)));
  $("theme").addEventListener("click", toggleTheme);
  $("raw").addEventListener("click", toggleRaw);
  $("help").addEventListener("click", () => $("keys").showModal());
  const list = $("list");
  let waiting = false;
  list.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => ((waiting = false), draw(state.selected)));
  });
  list.addEventListener("click", (event) => {
    const node = event.target.closest(".item");
    if (node) select(Number(node.dataset.item));
  });
  window.addEventListener("resize", () => draw(state.selected));
  window.addEventListener("hashchange", fromHash);
  document.addEventListener("keydown", onKey);
  fromHash();
}

start().catch(failed);
