// Draws the page of `milepost look` from what stands in it: one JSON with what is small, and of
// each head the bytes of its arrays (milepost.look.pack), which are unpacked when it is chosen.
"use strict";

const SUBJECTS = JSON.parse(document.getElementById("subjects").textContent);
const NAMES = ["gates", "positions", "attention", "alone"];
const THEMES = ["auto", "light", "dark"];
const FIRST = 200; // the query of a long text, to begin with
const PART = 128; // tokens of the text that are laid out together
const SHARPEST = 1000; // pixels of the heat map each way
const MOST_KEPT = 6; // heads whose arrays stay unpacked
const WHITE = { "\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "": "∅" };

const $ = (id) => document.getElementById(id);
const state = { subject: 0, layer: 0, head: 0, query: 0, picture: "", sort: "amount", by: "", theme: "auto" };
let held = false; // the query stays while the pointer moves
let shownHead = null; // the unpacked arrays of the chosen head
const near = new Set(); // the tokens on the screen: only they are kept up to date
const kept = new Map();

const subject = () => SUBJECTS[state.subject];
const layerOf = (number = state.layer) => subject().layers[number];
const below = (i, j) => (i * (i + 1)) / 2 + j; // where a pair stands in an array
// What cannot be seen, or changes what is, is shown by a sign or its number
const visible = (text) =>
  WHITE[text] ?? text.replace(/\p{C}/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

async function bytes(text) {
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The arrays of one head: by name, a function from query and key to the number there.
async function unpack(s, layer, head) {
  const about = SUBJECTS[s].layers[layer].arrays;
  const found = {};
  for (const [name, { code, levels, largest }] of Object.entries(about)) {
    if (code === "distance") {
      found[name] = (i, j) => i - j;
    } else if (code === "sums") {
      const sums = suffixSums(await bytes($(`${s}-${layer}-${head}-gates`).textContent));
      const most = largest === null ? Infinity : largest;
      found[name] = (i, j) => Math.min(sums[below(i, j)] / levels, most);
    } else {
      const read = await bytes($(`${s}-${layer}-${head}-${name}`).textContent);
      found[name] =
        code === "square" ? (i, j) => (read[below(i, j)] / levels) ** 2
        : code === "cosine" ? (i, j) => (2 * read[below(i, j)]) / levels - 1
        : (i, j) => read[below(i, j)] / levels;
    }
  }
  return found;
}

function suffixSums(read) {
  const sums = new Uint32Array(read.length);
  for (let i = 0, end = 0; end < read.length; i++) {
    end += i + 1;
    for (let at = end - 1, sum = 0; at >= end - 1 - i; at--) sums[at] = sum += read[at];
  }
  return sums;
}

async function unpacked(s, layer, head) {
  const key = `${s}-${layer}-${head}`;
  if (!kept.has(key)) {
    if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
    kept.set(key, unpack(s, layer, head));
  }
  return kept.get(key);
}

// ---- numbers in words

function inWords(name, value) {
  const { unit } = layerOf().arrays[name];
  if (unit === "share") return percent(value);
  return unit === "tokens" ? String(value) : value.toFixed(2);
}

function short(name, value) {
  const { unit, largest } = layerOf().arrays[name];
  if (unit === "count" && value === largest) return `${largest}+`; // it counts no further
  if (unit === "share") return String(Math.round(100 * value));
  if (unit === "cosine") return value.toFixed(1);
  return unit === "tokens" || value >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

const seesFrom = (i) => layerOf().from[i]; // the oldest key that a query sees
const sees = (i, j) => j >= seesFrom(i) && (j < i || (j === i && layerOf().itself));
const named = (j) => `${j} “${visible(subject().texts[j])}”`;

function aboutPair(i, j) {
  if (!sees(i, j)) return `Query ${named(i)} does not see key ${named(j)}.`;
  const parts = Object.entries(layerOf().arrays).map(
    ([name, { title }]) => `${title} ${inWords(name, shownHead[name](i, j))}`,
  );
  return `Query ${named(i)}, key ${named(j)}: ${parts.join(", ")}.`;
}

function aboutQuery(i) {
  const { arrays, remainder } = layerOf();
  const keys = [...subject().texts.keys()].filter((j) => sees(i, j));
  if (!keys.length) return `Query ${named(i)} sees no key.`;
  const most = keys.sort((a, b) => shownHead.attention(i, b) - shownHead.attention(i, a)).slice(0, 3);
  const told = most.filter((j, at) => at === 0 || shownHead.attention(i, j) >= 0.005);
  const to = told.map((j) => `${percent(shownHead.attention(i, j))} to ${named(j)}`).join(", ");
  const parts = [`Query ${named(i)} attends ${to}`];
  if (arrays.positions.unit === "count") {
    parts.push(`counts ${inWords("positions", shownHead.positions(i, seesFrom(i)))} up to the oldest token`);
  }
  if (remainder) parts.push(`leaves ${percent(remainder[state.head][i])} of the stick`);
  return `${parts.join("; ")}.`;
}

// ---- the text

// Tokens stand in parts, of which a browser lays out and paints those on the screen alone
function drawText() {
  const { texts } = subject();
  const parts = [make("div", { className: "part" })];
  near.clear();
  watcher.disconnect();
  texts.forEach((text, index) => {
    const token = make("span", { className: "token", tabIndex: -1 });
    token.append(make("b", { textContent: visible(text) }), make("i", {}, ""));
    token.dataset.index = index;
    token.setAttribute("role", "option");
    token.setAttribute("aria-label", `token ${index}: ${visible(text)}`);
    const part = parts.at(-1);
    part.append(token);
    if (text === "\n") part.append(make("br"));
    if (part.children.length >= (text === "\n" ? PART / 2 : PART)) {
      parts.push(make("div", { className: "part" }));
    }
    watcher.observe(token);
  });
  $("text").replaceChildren(...parts);
}

const watcher = new IntersectionObserver(
  (changes) => {
    for (const { target, isIntersecting } of changes) {
      if (isIntersecting) near.add(target);
      else near.delete(target);
    }
    soon(paintTokens);
  },
  { rootMargin: "200px" },
);

function paintTokens() {
  if (!shownHead) return;
  const { arrays } = layerOf();
  const i = state.query;
  for (const token of near) {
    const j = Number(token.dataset.index);
    const seen = sees(i, j);
    token.classList.toggle("unseen", !seen);
    token.classList.toggle("query", j === i);
    token.setAttribute("aria-selected", j === i);
    token.style.setProperty("--attention-here", seen ? Math.sqrt(shownHead.attention(i, j)) : 0);
    token.style.setProperty("--gate-here", seen && arrays.gates ? shownHead.gates(i, j) : 0);
    // a new text in the same node, which is far cheaper than a new node
    token.lastChild.firstChild.data = seen ? short("positions", shownHead.positions(i, j)) : "";
  }
}

const tokenAt = (index) => $("text").querySelector(`[data-index="${index}"]`);

function choose(query, { focus = false } = {}) {
  const last = subject().texts.length - 1;
  const before = tokenAt(state.query);
  if (before) before.tabIndex = -1;
  state.query = Math.max(0, Math.min(last, query));
  const token = tokenAt(state.query);
  token.tabIndex = 0;
  near.add(token);
  if (before) near.add(before);
  if (focus) token.focus();
  soon(paintQuery);
}

function paintQuery() {
  if (!shownHead) return;
  paintTokens();
  crosshair();
  $("about").textContent = aboutQuery(state.query);
  aboutMoves();
  remember();
}

function hold(on) {
  held = on;
  $("text").classList.toggle("held", on);
  $("held").textContent = on ? "Held: click it again or press Escape to let go." : "";
}

function aboveOrBelow(token, down) {
  const { left, top } = token.getBoundingClientRect();
  const all = [...$("text").querySelectorAll(".token")];
  const rows = new Map();
  for (const other of all) {
    const at = other.getBoundingClientRect();
    if (down ? at.top > top + 2 : at.top < top - 2) rows.set(other, at);
  }
  let best = null;
  for (const [other, at] of rows) {
    const distance = [Math.abs(at.top - top), Math.abs(at.left - left)];
    if (!best || distance[0] < best[0] - 2 || (distance[0] < best[0] + 2 && distance[1] < best[1])) {
      best = [...distance, other];
    }
  }
  return best ? Number(best[2].dataset.index) : Number(token.dataset.index);
}

const indexOf = (event) => {
  const token = event.target.closest?.(".token");
  return token ? Number(token.dataset.index) : null;
};

$("text").addEventListener("pointerover", (event) => {
  const index = indexOf(event);
  if (index === null || event.pointerType === "touch") return;
  if (!held) choose(index);
  else if (shownHead) $("about").textContent = aboutPair(state.query, index);
});
$("text").addEventListener("focusin", (event) => {
  const index = indexOf(event);
  if (index !== null && index !== state.query) choose(index);
});
$("text").addEventListener("click", (event) => {
  const index = indexOf(event);
  if (index === null) return;
  hold(!(held && index === state.query));
  choose(index, { focus: true });
});
$("text").addEventListener("keydown", (event) => {
  const token = event.target.closest(".token");
  if (!token) return;
  const index = Number(token.dataset.index);
  const moves = {
    ArrowLeft: () => index - 1,
    ArrowRight: () => index + 1,
    ArrowUp: () => aboveOrBelow(token, false),
    ArrowDown: () => aboveOrBelow(token, true),
    Home: () => 0,
    End: () => subject().texts.length - 1,
  };
  if (event.key in moves) {
    event.preventDefault();
    choose(moves[event.key](), { focus: true });
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    hold(!held);
  }
});

// ---- the heads

function shareOf(counted, head, keys) {
  const rows = counted.falls[head];
  const chosen = state.by === "" ? rows : [rows[subject().classes.indexOf(state.by)]];
  const falls = chosen.reduce((sums, row) => sums.map((sum, d) => sum + row[d]), rows[0].map(() => 0));
  const total = falls.reduce((a, b) => a + b);
  return total > 0 ? falls[subject().classes.indexOf(keys)] / total : 0;
}

// What heads are sorted by, or null where they stand layer by layer
function worth(layer, head) {
  const { counted } = layerOf(layer);
  if (state.sort === "layer") return null;
  if (state.sort === "amount") return counted.amount[head];
  return shareOf(counted, head, state.sort.slice("keys ".length));
}

function everyHead() {
  return subject().layers.flatMap(({ counted }, layer) =>
    counted.amount.map((_, head) => ({ layer, head, worth: worth(layer, head) })),
  );
}

function drawHeads() {
  const heads = everyHead();
  if (state.sort !== "layer") heads.sort((a, b) => b.worth - a.worth);
  const box = $("heads");
  box.classList.toggle("by-layer", state.sort === "layer");
  box.style.setProperty("--across", layerOf(0).counted.amount.length);
  const buttons = heads.map(({ layer, head, worth: value }) => {
    const button = make("button", { type: "button", className: "head" });
    button.dataset.layer = layer;
    button.dataset.head = head;
    button.setAttribute("role", "radio");
    const label = value === null ? "" : percent(value);
    button.append(
      make("canvas", { width: 1, height: 1, ariaHidden: "true" }),
      make("span", { textContent: `${layer}.${head}` }),
      make("small", { textContent: label }),
    );
    button.setAttribute("aria-label", `layer ${layer}, head ${head}${label && `, ${label}`}`);
    return button;
  });
  box.replaceChildren(...buttons);
  const { meaning } = layerOf(0).counted;
  const share = state.sort.startsWith("keys ") && state.sort.slice("keys ".length);
  $("sorted").textContent =
    state.sort === "layer" ? "A row for each layer."
    : state.sort === "amount" ? `In %: ${meaning}.`
    : `In %: of what ${state.by ? `queries “${state.by}”` : "all queries"} count, the part in keys “${share}”.`;
  markHead();
  drawSmall();
}

function markHead() {
  for (const button of $("heads").children) {
    const chosen = Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
    button.setAttribute("aria-checked", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
}

async function drawSmall() {
  const s = state.subject;
  for (const button of [...$("heads").children]) {
    const layer = layerOf(Number(button.dataset.layer));
    const name = layer.arrays[state.picture] ? state.picture : "attention";
    const { small } = layer.arrays[name];
    const canvas = button.firstChild;
    if (small === undefined) continue;
    layer.smalls ??= {};
    const all = await (layer.smalls[name] ??= bytes(small));
    if (s !== state.subject) return;
    const side = subject().small;
    const head = Number(button.dataset.head);
    paint(canvas, side, palette(name), (at) => all[head * side * side + at]);
  }
}

async function chooseHead(layer, head) {
  state.layer = layer;
  state.head = head;
  if (!layerOf().arrays[state.picture]) state.picture = "attention";
  markHead();
  const asked = `${state.subject}-${layer}-${head}`;
  const arrays = await unpacked(state.subject, layer, head);
  if (asked !== `${state.subject}-${state.layer}-${state.head}`) return; // another was chosen since
  shownHead = arrays;
  drawLegend();
  drawPictures();
  drawTable();
  drawMoves();
  $("chosen").textContent = `Layer ${layer}, head ${head}`;
  paintQuery();
  drawHeat();
  document.documentElement.dataset.ready = asked;
}

$("heads").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) chooseHead(Number(button.dataset.layer), Number(button.dataset.head));
});
$("heads").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  stepHead(step, true);
});

function stepHead(step, focus = false) {
  const buttons = [...$("heads").children];
  const at = buttons.findIndex((button) => button.getAttribute("aria-checked") === "true");
  const next = buttons[(at + step + buttons.length) % buttons.length];
  chooseHead(Number(next.dataset.layer), Number(next.dataset.head));
  if (focus) next.focus();
}

// ---- what the chosen head counts, class by class

function drawTable() {
  const { counted } = layerOf();
  const { classes } = subject();
  const noun = counted.of === "gates" ? "gates" : "attention";
  const added = (rows) => rows.reduce((sums, row) => sums.map((sum, d) => sum + row[d]), classes.map(() => 0));
  const line = (title, row, pairs) => {
    const total = row.reduce((sum, value) => sum + value, 0);
    const cells = row.map((value, d) => {
      const cell = make("td", { textContent: total > 0 ? percent(value / total) : "–" });
      if (pairs && pairs[d] > 0) cell.append(make("small", { textContent: (value / pairs[d]).toFixed(2) }));
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", textContent: title }), ...cells);
  };
  const falls = counted.falls[state.head];
  const head = make("tr", {}, make("th", { scope: "col", textContent: "queries" }));
  head.append(...classes.map((name) => make("th", { scope: "col", textContent: name })));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {},
    line("all", added(falls), added(counted.pairs)),
    ...classes.map((name, c) => line(name, falls[c], counted.pairs[c])),
    line("if it were even", added(counted.pairs), null),
  ));
  $("table").replaceChildren(table);
  $("counts-title").textContent = `Where its ${noun} ${noun === "gates" ? "fall" : "falls"}`;
  $("counts").textContent =
    `The part of all ${noun} that each class of keys gets, by class of query; below it the mean of a pair.`;
}

function drawMoves() {
  const rows = subject().layers.map(({ moved }) => moved?.[state.head]);
  $("moved").hidden = !rows[0];
  if (!rows[0]) return;
  const canvas = $("strip");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  canvas.style.setProperty("--layers", rows.length);
  const image = new ImageData(canvas.width, canvas.height);
  const words = new Uint32Array(image.data.buffer);
  const colours = palette("gates");
  rows.flat().forEach((share, at) => (words[at] = colours[Math.round(255 * share)]));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function aboutMoves() {
  const rows = subject().layers.map(({ moved }) => moved?.[state.head]);
  if (!rows[0]) return;
  const steps = rows.map((row) => row[state.query].toFixed(2)).join(", ");
  $("moves").textContent = `Token ${named(state.query)}: ${steps} of its length.`;
}

// ---- the heat map

// Colours from the page's own to that of an array, as 256 words of RGBA
function palette(name) {
  const style = getComputedStyle(document.documentElement);
  const [from, to] = ["--page", `--${name}`].map((variable) => {
    const hex = style.getPropertyValue(variable).trim().slice(1);
    return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  });
  return Uint32Array.from({ length: 256 }, (_, level) => {
    const [r, g, b] = from.map((low, at) => Math.round(low + ((to[at] - low) * level) / 255));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

function paint(canvas, side, colours, level) {
  canvas.width = canvas.height = side;
  const image = new ImageData(side, side);
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < side; i++) {
    for (let j = 0; j <= i; j++) words[i * side + j] = colours[level(i * side + j)];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawHeat() {
  const name = state.picture;
  const { title, symbol, unit, largest } = layerOf().arrays[name];
  const value = shownHead[name];
  const side = subject().texts.length;
  let most = 1;
  if (unit === "tokens") most = Math.max(1, side - 1);
  if (unit === "count") {
    most = 0;
    for (let i = 0; i < side; i++) most = Math.max(most, value(i, seesFrom(i)));
    most = most || 1;
  }
  const root = name === "attention" || name === "alone";
  const level = (i, j) => {
    const here = unit === "cosine" ? Math.max(0, value(i, j)) : value(i, j) / most;
    return Math.round(255 * (root ? Math.sqrt(here) : here));
  };
  const block = Math.ceil(side / SHARPEST); // of so many pairs each way a pixel shows the largest
  const pixels = Math.ceil(side / block);
  paint($("heat"), pixels, palette(name), (at) => {
    const [row, column] = [Math.floor(at / pixels) * block, (at % pixels) * block];
    let top = 0;
    for (let i = row; i < Math.min(row + block, side); i++) {
      for (let j = column; j < Math.min(column + block, i + 1); j++) top = Math.max(top, level(i, j));
    }
    return top;
  });
  $("heat").style.imageRendering = side < 400 ? "pixelated" : "auto";
  $("scale").style.setProperty("--colour", `var(--${name})`);
  $("most").textContent = unit === "share" || unit === "cosine" ? "1" : String(Math.round(10 * most) / 10);
  const stops = unit === "count" && largest !== null ? `, at most ${largest}` : "";
  const blocks = block > 1 ? `; a pixel is the largest of ${block} × ${block}` : "";
  const steps = `${root ? "; the scale is that of the root" : ""}${blocks}`;
  const rest = `${stops}: a row for each query, a column for each key${steps}.`;
  $("picture-about").replaceChildren(`${title}, `, ...formula(symbol), rest);
  $("heat").setAttribute("aria-label", `${title} of layer ${state.layer}, head ${state.head}, queries by keys`);
}

function crosshair() {
  const side = subject().texts.length;
  $("row").style.height = `max(1px, ${100 / side}%)`;
  $("row").style.transform = `translateY(${(state.query * $("heat").clientHeight) / side}px)`;
}

function pairUnder(event) {
  const { left, top, width, height } = $("heat").getBoundingClientRect();
  const side = subject().texts.length;
  const place = (at, size) => Math.max(0, Math.min(side - 1, Math.floor((at / size) * side)));
  return [place(event.clientY - top, height), place(event.clientX - left, width)];
}

$("heat").addEventListener("pointermove", (event) => {
  if (shownHead) $("pair").textContent = aboutPair(...pairUnder(event));
});
$("heat").addEventListener("click", (event) => {
  const [query] = pairUnder(event);
  hold(true);
  choose(query);
  tokenAt(query).scrollIntoView({ block: "nearest" });
});

function drawPictures() {
  const { arrays } = layerOf();
  const buttons = NAMES.filter((name) => arrays[name]).map((name) => {
    const button = make("button", { type: "button", textContent: arrays[name].title });
    button.dataset.picture = name;
    button.setAttribute("aria-pressed", name === state.picture);
    return button;
  });
  $("pictures").replaceChildren(...buttons);
}

$("pictures").addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.picture;
  if (!name) return;
  state.picture = name;
  drawPictures();
  $("pictures").querySelector(`[data-picture="${name}"]`).focus();
  drawHeat();
  drawSmall();
  remember();
});

// ---- the frame

function drawLegend() {
  const { gates, positions } = layerOf().arrays;
  $("legend-gates").hidden = !gates;
  if (gates) $("legend-gates-text").replaceChildren(`${gates.title} (`, ...formula(gates.symbol), ")");
  const unit = positions.unit === "share" ? "), in %" : ")";
  $("legend-positions-text").replaceChildren(`${positions.title} (`, ...formula(positions.symbol), unit);
}

// a_ij with its indices set low
function formula(symbol) {
  return symbol.split(/_(\{[^}]*\}|\w+)/).map((part, at) =>
    at % 2 ? make("sub", { textContent: part.replace(/[{}]/g, "") }) : part,
  );
}

function drawChoices() {
  const { classes, layers } = subject();
  const option = (value, textContent) => make("option", { value, textContent });
  const what = layers.some(({ counted }) => counted.of === "gates") ? "gates" : "attention";
  $("sort").replaceChildren(
    option("amount", "how much they count"),
    option("layer", "layer and head"),
    ...classes.map((name) => option(`keys ${name}`, `${what} on ${name}`)),
  );
  $("by").replaceChildren(option("", "all queries"), ...classes.map((name) => option(name, `queries ${name}`)));
  if (![...$("sort").options].some(({ value }) => value === state.sort)) state.sort = "amount";
  if (!classes.includes(state.by)) state.by = "";
  $("sort").value = state.sort;
  $("by").value = state.by;
  $("by").disabled = !state.sort.startsWith("keys ");
}

for (const id of ["sort", "by"]) {
  $(id).addEventListener("change", () => {
    state[id] = $(id).value;
    $("by").disabled = !state.sort.startsWith("keys ");
    drawHeads();
    remember();
  });
}

$("numbers").addEventListener("change", () => $("text").classList.toggle("plain", !$("numbers").checked));

async function chooseSubject(number) {
  state.subject = number;
  shownHead = null;
  hold(false);
  document.title = `${subject().title} – Milepost`;
  for (const button of $("subjects-list").children) {
    button.setAttribute("aria-pressed", Number(button.dataset.subject) === number);
  }
  $("title").textContent = subject().title;
  $("size").textContent = subject().about;
  state.query = Math.min(state.query, subject().texts.length - 1);
  const known = layerOf(state.layer)?.counted.amount.length > state.head;
  if (!known) state.layer = state.head = 0;
  if (!layerOf().arrays[state.picture]) state.picture = layerOf().arrays.gates ? "gates" : "attention";
  drawChoices();
  drawText();
  drawHeads();
  choose(state.query);
  $("text").scrollTop = tokenAt(state.query).offsetTop - $("text").clientHeight / 2;
  await chooseHead(state.layer, state.head);
}

function drawSubjects() {
  const buttons = SUBJECTS.map(({ title }, number) => {
    const button = make("button", { type: "button", textContent: title });
    button.dataset.subject = number;
    return button;
  });
  $("subjects-list").replaceChildren(...buttons);
  $("subjects-list").hidden = SUBJECTS.length < 2;
}

$("subjects-list").addEventListener("click", (event) => {
  const number = event.target.closest("button")?.dataset.subject;
  if (number === undefined) return;
  Object.assign(state, first(Number(number)));
  chooseSubject(Number(number));
});

function setTheme(theme) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  if (shownHead) {
    drawHeat();
    drawSmall();
    drawMoves();
  }
}

$("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length]);
  remember();
});
addEventListener("resize", () => soon(crosshair));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(state.theme));

document.addEventListener("keydown", (event) => {
  if (event.target.closest("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    hold(false);
    soon(paintQuery);
  } else if (event.key === "[" || event.key === "]") stepHead(event.key === "[" ? -1 : 1);
});

// Drawing waits for the next frame, once for however many events
const waiting = new Set();
function soon(work) {
  if (waiting.has(work)) return;
  waiting.add(work);
  requestAnimationFrame(() => {
    waiting.delete(work);
    work();
  });
}

// What is chosen stands in the address, so that a view can be kept and shared
function remember() {
  clearTimeout(remember.later);
  remember.later = setTimeout(() => {
    history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  }, 200);
}

// What a model is first seen with: the head that counts most, and a token that has many before it
function first(number) {
  const heads = SUBJECTS[number].layers.flatMap(({ counted }, layer) =>
    counted.amount.map((amount, head) => ({ layer, head, amount })),
  );
  const { layer, head } = heads.reduce((a, b) => (b.amount > a.amount ? b : a));
  return { layer, head, query: Math.min(SUBJECTS[number].texts.length, FIRST) - 1 };
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name) => Math.max(0, Math.trunc(Number(given.get(name))) || 0);
  state.subject = Math.min(number("subject"), SUBJECTS.length - 1);
  Object.assign(state, first(state.subject));
  for (const name of ["layer", "head", "query"]) if (given.has(name)) state[name] = number(name);
  for (const name of ["picture", "sort", "by"]) state[name] = given.get(name) ?? state[name];
  if (!NAMES.includes(state.picture)) state.picture = "";
  setTheme(THEMES.includes(given.get("theme")) ? given.get("theme") : "auto");
  drawSubjects();
  chooseSubject(state.subject);
}

begin();
