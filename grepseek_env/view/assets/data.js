// The packed data: an index of all trajectories, and chunks of whole ones that are unpacked when they are looked at.

const INDEX = { rows: [], questions: [], runs: [], finishes: [], policies: [], systems: [], chunks: [], flags: [] };
const unpacked = new Map();
const KEPT = 12; // chunks in memory

async function unpack(id) {
  const packed = atob($(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function loadIndex() {
  const raw = await unpack("index");
  Object.assign(INDEX, raw);
  INDEX.rows = raw.rows.map((values, place) => {
    const row = { place };
    raw.fields.forEach((name, i) => (row[name] = values[i]));
    row.valid = Boolean(row.valid);
    row.result = resultOf(row);
    return row;
  });
  INDEX.questions.forEach((q, place) => Object.assign(q, { place, rows: [] }));
  for (const row of INDEX.rows) INDEX.questions[row.question].rows.push(row);
}

// Returns what is searched of a row, in lower case; made when it is first needed.
function searched(row) {
  if (row.haystack === undefined) {
    const q = INDEX.questions[row.question];
    row.haystack = [q.id, q.text, ...q.golden, row.answer || "", row.text].join("\n").toLowerCase();
  }
  return row.haystack;
}

async function trajectory(place) {
  let chunk = 0;
  for (let low = 0, high = INDEX.chunks.length - 1; low <= high; ) {
    const middle = (low + high) >> 1;
    if (INDEX.chunks[middle] <= place) (chunk = middle), (low = middle + 1);
    else high = middle - 1;
  }
  if (!unpacked.has(chunk)) {
    unpacked.set(chunk, unpack("chunk-" + chunk));
    if (unpacked.size > KEPT) unpacked.delete(unpacked.keys().next().value);
  }
  return (await unpacked.get(chunk))[place - INDEX.chunks[chunk]];
}
