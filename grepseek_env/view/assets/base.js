// Small helpers. All text goes into text nodes: nothing that a trajectory holds is ever read as markup.

const $ = (id) => document.getElementById(id);

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(String(child)));
  }
  return node;
}

// Control characters and lone surrogates are shown, not swallowed.
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}

function svg(tag, props, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  return add(node, children);
}

const chip = (text, kind) => el("span", { class: "chip " + (kind || "") }, text);
const number = (value) => value.toLocaleString("en-US");
const score = (value) => value.toFixed(3);
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : 0);
const percent = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) + " %" : "–");

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100) return value.toFixed(0) + " s";
  if (value >= 1) return value.toFixed(2) + " s";
  return (value * 1000).toFixed(value < 0.01 ? 1 : 0) + " ms";
}

// What became of an episode: class for its colour, sign for those who do not see it, words.
const RESULTS = {
  good: { sign: "✓", name: "correct" },
  part: { sign: "◐", name: "partly" },
  bad: { sign: "✕", name: "wrong" },
  none: { sign: "–", name: "no answer" },
  fault: { sign: "!", name: "fault" },
};

function resultOf(row) {
  if (!row.valid) return "fault";
  if (row.em >= 1) return "good";
  if (row.f1 > 0) return "part";
  return row.answer === null ? "none" : "bad";
}

const OUTCOMES = {
  ok: { name: "output", kind: "good" },
  cut: { name: "output cut", kind: "part" },
  empty: { name: "nothing found", kind: "none" },
  failed: { name: "error", kind: "bad" },
  refused: { name: "refused", kind: "bad" },
  timed_out: { name: "out of time", kind: "bad" },
  not_run: { name: "not run", kind: "none" },
};
