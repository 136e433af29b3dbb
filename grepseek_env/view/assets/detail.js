// One trajectory: question, score, turns. In raw mode all texts are exactly as they were.

function finder(golden, answer) {
  const forms = new Map();
  const put = (text, kind) => {
    const key = text.trim().toLowerCase();
    if (key && !forms.has(key)) forms.set(key, kind);
  };
  golden.forEach((g) => put(g, "gold"));
  if (answer) put(answer, "said");
  if (!forms.size) return null;
  const keys = [...forms.keys()].sort((a, b) => b.length - a.length);
  const escaped = keys.map((k) => k.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu");
  return { forms, pattern };
}

// Returns nodes of the text in which the accepted answers and the given one are marked.
function marked(text, find) {
  if (!find) return [text];
  const out = [];
  let at = 0;
  for (const hit of text.matchAll(find.pattern)) {
    if (out.length > 1000) break; // an answer such as "the" in a long text
    if (hit.index > at) out.push(text.slice(at, hit.index));
    const kind = find.forms.get(hit[0].toLowerCase().replace(/\s+/g, " ")) || "gold";
    out.push(el("mark", { class: kind, title: kind === "gold" ? "accepted answer" : "given answer" }, hit[0]));
    at = hit.index + hit[0].length;
  }
  out.push(text.slice(at));
  return out;
}

// Colours a command: programs, pipes, quoted text.
function colouredCommand(command) {
  const out = [];
  let first = true;
  for (const [piece] of command.matchAll(/'[^']*'|"(?:\\.|[^"\\])*"|\||\s+|(?:\\.|[^\s|'"\\])+|[\s\S]/g)) {
    if (piece === "|") out.push(el("span", { class: "pipe" }, piece)), (first = true);
    else if (/^['"]/.test(piece)) out.push(el("span", { class: "text" }, piece)), (first = false);
    else if (first && piece.trim()) out.push(el("span", { class: "program" }, piece)), (first = false);
    else out.push(piece);
  }
  return out;
}

function inside(text, tag) {
  const found = new RegExp(`^\\s*<${tag}>([\\s\\S]*)</${tag}>\\s*$`).exec(text);
  return found ? found[1].replace(/^\n|\n$/g, "") : text;
}

function reasoning(turn) {
  const found = /<think>([\s\S]*?)<\/think>/.exec(turn.text);
  return found ? found[1].trim() : "";
}

// A passage of the corpus, read: its id, its title, its text.
function passage(line, find) {
  let record = null;
  try {
    record = JSON.parse(line);
  } catch {
    return null;
  }
  if (record === null || typeof record !== "object" || typeof record.contents !== "string") return null;
  const cut = record.contents.indexOf("\n");
  const title = cut < 0 ? "" : record.contents.slice(0, cut).replace(/^"|"$/g, "");
  return el("div", { class: "passage" },
    el("span", { class: "id" }, "#" + record.id),
    title && el("span", { class: "name" }, marked(title, find)),
    marked(record.contents.slice(cut + 1), find));
}

const SHOWN_LINES = 200;

function output(turn, find, raw) {
  const box = el("div", { class: "output" });
  if (raw) return add(box, [el("pre", {}, marked(turn.observation, find))]);
  const lines = inside(turn.observation, "tool_response").split("\n");
  let plain = [];
  const flush = () => {
    if (plain.length) add(box, [el("pre", {}, marked(plain.join("\n"), find))]);
    plain = [];
  };
  const show = (from, to) => {
    for (const line of lines.slice(from, to)) {
      const node = line.startsWith("{") ? passage(line, find) : null;
      if (node) flush(), box.append(node);
      else plain.push(line);
    }
    flush();
  };
  show(0, SHOWN_LINES);
  if (lines.length > SHOWN_LINES) {
    const more = el("button", { class: "more", onclick: () => (more.remove(), show(SHOWN_LINES)) },
      `${number(lines.length - SHOWN_LINES)} more lines`);
    box.append(more);
  }
  return box;
}

function outputWithButton(turn, find, raw) {
  const box = output(turn, find, raw);
  const more = el("button", { class: "more", hidden: true, onclick: () => {
    more.textContent = box.classList.toggle("open") ? "less" : "all of it";
  } }, "all of it");
  requestAnimationFrame(() => (more.hidden = box.scrollHeight <= box.clientHeight + 4));
  return [box, more];
}

const PLANNED = "plan of mode sliced on a corpus of 1 GiB: "; // the page does not know the run's own corpus and mode
const PLANNED_TITLE = "grepseek run --explain tells what the engine does with a command on your corpus";
const KINDS = { tool_call: "command", final_answer: "answer", malformed: "no action" };

function turnCard(turn, i, find, raw, given) {
  const outcome = turn.outcome && OUTCOMES[turn.outcome];
  const time = [];
  if (turn.model !== undefined) time.push("model " + seconds(turn.model));
  if (turn.tool) time.push("command " + seconds(turn.tool));
  const top = el("div", { class: "top" },
    el("b", {}, `Turn ${i + 1}`), KINDS[turn.kind] || turn.kind,
    outcome && chip(outcome.name + (turn.refused ? ": " + turn.refused : ""), outcome.kind),
    turn.kind === "malformed" && chip("malformed", "bad"),
    turn.exit !== null && turn.exit !== undefined && chip("exit " + turn.exit),
    turn.tokens !== undefined && chip(turn.tokens + " tokens"),
    turn.logprob !== undefined && chip("mean log-prob " + turn.logprob.toFixed(3)),
    turn.stopped && turn.stopped !== "stop" && chip("model stopped: " + turn.stopped, "part"),
    time.length > 0 && el("span", { class: "time" }, time.join(" · ")));
  const card = el("section", { class: "card turn" }, top);
  if (raw) add(card, [el("pre", {}, marked(turn.text, find))]);
  else if (turn.kind === "malformed") add(card, [el("pre", {}, turn.text || "(nothing)")]);
  else {
    const think = reasoning(turn);
    if (think) add(card, [el("p", { class: "think" }, marked(think, find))]);
    if (turn.command !== undefined) add(card, [el("pre", { class: "command" }, colouredCommand(turn.command))]);
    else add(card, [el("p", { class: "answer" }, given === null ? "(no answer)" : marked(given, find))]);
  }
  if (turn.plan) add(card, [el("details", { class: "plan" }, el("summary", { title: PLANNED_TITLE }, PLANNED + turn.plan.split("\n")[0].replace(/\s+/g, " ")), el("pre", {}, turn.plan))]);
  if (turn.observation) add(card, outputWithButton(turn, find, raw));
  return card;
}

function bars(rows) {
  return el("div", { class: "bars" }, rows.map(([name, value, top, text]) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = Math.max(0, Math.min(1, top ? value / top : 0)) * 100 + "%";
    return [el("span", {}, name), el("div", { class: "track" }, fill), el("span", { class: "num" }, text ?? score(value))];
  }));
}

function rewardCard(row, whole) {
  const b = whole.breakdown;
  const top = Math.max(1, row.reward);
  const rows = [["reward", row.reward, top], ["F1", row.f1, top], ["exact match", row.em, top]];
  if (b.format_bonus !== undefined) rows.push(["format bonus", b.format_bonus, top]);
  const known = new Set(["reward", "f1", "em", "format_bonus", "format_valid", "answered"]);
  for (const [key, value] of Object.entries(b)) if (!known.has(key) && typeof value === "number") rows.push([key, value, top]);
  return el("section", { class: "card" }, el("h3", {}, "Reward"), row.valid ? bars(rows) : "does not count: the infrastructure failed",
    row.valid && el("div", { class: "chips" }, chip(b.format_valid ? "format kept" : "format not kept", b.format_valid ? "good" : "bad")));
}

function siblings(row, go) {
  const rows = INDEX.questions[row.question].rows;
  if (rows.length < 2) return null;
  return el("div", { class: "siblings" }, "all of this question:", rows.map((r) =>
    el("button", { "aria-pressed": String(r === row), class: r.result, onclick: () => go(r),
      title: `${INDEX.runs[r.run]}, sample ${r.sample}: ${RESULTS[r.result].name}` }, `${RESULTS[r.result].sign} ${r.valid ? score(r.f1) : "–"}`)));
}

async function showTrajectory(row, raw, go, stale) {
  const whole = await trajectory(row.place);
  if (stale()) return;
  const q = INDEX.questions[row.question];
  const find = finder(q.golden, whole.answer);
  const result = RESULTS[row.result];
  const head = el("section", { class: "card" },
    el("h2", {}, q.text),
    el("dl", { class: "facts" },
      el("dt", {}, "accepted"), el("dd", {}, q.golden.join("  |  ")),
      el("dt", {}, "given"), el("dd", { class: row.result }, whole.answer === null ? "(no answer)" : whole.answer)),
    el("div", { class: "chips" },
      chip(result.sign + " " + result.name, row.result), chip("end: " + INDEX.finishes[row.finish]),
      chip(q.id), chip("sample " + row.sample), chip(INDEX.policies[row.policy]), chip(INDEX.runs[row.run]),
      row.model !== null && chip(`model ${seconds(row.model)}, commands ${seconds(row.tool)}`)),
    siblings(row, go));
  const meta = Object.entries(whole.metadata).map(([key, value]) => [el("dt", {}, key), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))]);
  const page = [
    head,
    whole.error && el("section", { class: "card error" }, whole.error),
    el("p", { class: "legend" }, el("mark", { class: "gold" }, "accepted answer"), " ", el("mark", { class: "said" }, "given answer"),
      raw ? "   every text as it was" : "   passages are laid out; Raw text shows every text as it was"),
    whole.turns.map((turn, i) => turnCard(turn, i, find, raw, whole.answer)),
    rewardCard(row, whole),
    el("section", { class: "card" }, el("h3", {}, "Record"), el("dl", { class: "facts" }, el("dt", {}, "format"), el("dd", {}, whole.format), meta),
      el("details", {}, el("summary", {}, "system prompt"), el("pre", {}, INDEX.systems[whole.system])),
      el("details", {}, el("summary", {}, "first observation"), el("pre", {}, whole.prompt))),
  ];
  const detail = $("detail");
  detail.replaceChildren();
  add(detail, page);
  detail.scrollTop = 0;
}

function showQuestion(group, go) {
  const q = INDEX.questions[group.question];
  const valid = group.rows.filter((r) => r.valid);
  const rewards = valid.map((r) => r.reward);
  const centre = mean(rewards);
  const spread = Math.sqrt(mean(rewards.map((r) => (r - centre) ** 2)));
  const sd = spread < 1e-9 ? 0 : spread; // equal rewards, but for their last digits
  const heads = ["", "sample", "F1", "EM", "reward", "advantage", "end", "turns", "answer and commands"];
  if (INDEX.runs.length > 1) heads.splice(1, 0, "run");
  const rows = group.rows.map((r) =>
    el("tr", { class: "link", tabindex: 0, onclick: () => go(r), onkeydown: (e) => e.key === "Enter" && go(r) },
      el("td", {}, el("span", { class: "mark " + r.result, title: RESULTS[r.result].name }, RESULTS[r.result].sign)),
      INDEX.runs.length > 1 && el("td", {}, INDEX.runs[r.run]),
      el("td", {}, r.sample), el("td", {}, r.valid ? score(r.f1) : "–"), el("td", {}, r.valid ? r.em : "–"), el("td", {}, r.valid ? score(r.reward) : "–"),
      el("td", {}, r.valid && sd > 0 ? ((r.reward - centre) / sd).toFixed(2) : r.valid ? "0.00" : "–"),
      el("td", {}, INDEX.finishes[r.finish]), el("td", {}, r.turns),
      el("td", { class: "text" }, r.answer === null ? "(no answer)" : r.answer, r.text.split("\n").filter(Boolean).map((c) => el("code", {}, c)))));
  const detail = $("detail");
  detail.replaceChildren();
  add(detail, [
    el("section", { class: "card" }, el("h2", {}, q.text),
      el("dl", { class: "facts" }, el("dt", {}, "accepted"), el("dd", {}, q.golden.join("  |  "))),
      el("div", { class: "chips" }, chip(q.id), chip(group.rows.length + " trajectories"),
        chip("mean reward " + score(centre)), chip("sd " + score(sd)), sd === 0 && valid.length > 1 && chip("all equal: no learning signal in the group", "part"))),
    el("section", { class: "card scroll" }, el("table", { class: "grid" },
      el("thead", {}, el("tr", {}, heads.map((h) => el("th", { title: h === "advantage" ? "(reward - mean) / sd within the group" : null }, h)))),
      el("tbody", {}, rows))),
  ]);
  detail.scrollTop = 0;
}
