// The heads, in the order that is asked for, and what the chosen one counts class by class.

const total = (row) => row.reduce((sum, value) => sum + value, 0);
const added = (rows) => rows[0].map((_, d) => total(rows.map((row) => row[d])));

function shareOf(counted, head, keys) {
  const rows = counted.falls[head];
  const falls = state.by === "" ? added(rows) : rows[subject().classes.indexOf(state.by)];
  return total(falls) > 0 ? falls[subject().classes.indexOf(keys)] / total(falls) : 0;
}

// What heads are sorted by, or null where they stand layer by layer
function worth({ counted }, head) {
  if (state.sort === "layer") return null;
  if (state.sort === "amount") return counted.amount[head];
  if (state.sort === "selectivity") return counted.selectivity[head];
  return shareOf(counted, head, state.sort.slice("keys ".length));
}

// Of layers without gates, which some may be, it is the attention: they come last
function everyHead() {
  const heads = subject().layers.flatMap((layer, l) =>
    layer.counted.amount.map((_, head) => ({
      l,
      head,
      worth: worth(layer, head),
      gated: layer.counted.of === "gates",
    })),
  );
  if (state.sort === "layer") return heads;
  return heads.sort((a, b) => b.gated - a.gated || b.worth - a.worth);
}

function drawHeads() {
  const heads = everyHead();
  const box = $("heads");
  box.classList.toggle("by-layer", state.sort === "layer");
  box.style.setProperty("--across", subject().layers[0].counted.amount.length);
  const buttons = heads.map(({ l, head, worth: value }) => {
    const button = make("button", { type: "button", className: "head" });
    button.dataset.layer = l;
    button.dataset.head = head;
    button.setAttribute("role", "radio");
    const label = value === null ? "" : percent(value);
    button.append(
      make("canvas", { width: 1, height: 1, ariaHidden: "true" }),
      make("span", { textContent: `${l}.${head}` }),
      make("small", { textContent: label }),
    );
    button.setAttribute("aria-label", `layer ${l}, head ${head}${label && `, ${label}`}`);
    return button;
  });
  box.replaceChildren(...buttons);
  $("sorted").textContent = aboutOrder(heads);
  markHead();
  drawSmall();
}

function aboutOrder(heads) {
  const counts = heads.some(({ gated }) => gated) ? "count" : "attend to";
  if (state.sort === "layer") return "A row for each layer.";
  if (state.sort === "selectivity") {
    return `In %: how far what they ${counts} is from even over the classes of tokens.`;
  }
  if (state.sort === "amount") {
    const meanings = heads.map(({ l }) => subject().layers[l].counted.meaning);
    return `In %: ${[...new Set(meanings)].join("; else ")}.`;
  }
  const queries = state.by ? `queries “${state.by}”` : "all queries";
  return `In %: of what ${queries} ${counts}, the part in keys “${state.sort.slice("keys ".length)}”.`;
}

function markHead() {
  for (const button of $("heads").children) {
    const { layer, head } = button.dataset;
    const chosen = Number(layer) === state.layer && Number(head) === state.head;
    button.setAttribute("aria-checked", chosen);
    button.tabIndex = chosen ? 0 : -1;
    if (chosen) bringInto($("heads"), button);
  }
}

let drawing = 0;
async function drawSmall() {
  const mine = ++drawing;
  const side = subject().small;
  for (const button of [...$("heads").children]) {
    const layer = subject().layers[Number(button.dataset.layer)];
    const name = pictureOf(layer);
    layer.smalls ??= {};
    const all = await (layer.smalls[name] ??= bytes(layer.arrays[name].small));
    if (mine !== drawing) return; // something else is to be drawn since
    const first = Number(button.dataset.head) * side * side;
    paint(button.firstChild, side, name, (i, j) => all[first + i * side + j]);
  }
}

// What is drawn takes the place of what was all at once, when all of it is there
async function chooseHead(l, head) {
  Object.assign(state, { layer: l, head });
  markHead();
  const asked = `${state.subject}-${l}-${head}`;
  $("chosen").textContent = `Layer ${l}, head ${head} …`;
  let found;
  try {
    found = await unpacked(state.subject, l, head);
  } catch (error) {
    kept.delete(asked);
    $("about").textContent = `This browser cannot unpack the head (${error.message}): use a newer one.`;
    return;
  }
  if (asked !== `${state.subject}-${state.layer}-${state.head}`) return; // another was chosen since
  drawn = found;
  $("pair").textContent = "";
  $("chosen").textContent = `Layer ${l}, head ${head}`;
  drawLegend();
  drawPictures();
  drawTable();
  drawMoves();
  drawHeat();
  paintQuery();
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
  stepHead(step);
});

function stepHead(step) {
  const buttons = [...$("heads").children];
  const at = buttons.findIndex((button) => button.getAttribute("aria-checked") === "true");
  const next = buttons[(at + step + buttons.length) % buttons.length];
  const focused = $("heads").contains(document.activeElement);
  chooseHead(Number(next.dataset.layer), Number(next.dataset.head));
  if (focused) next.focus({ preventScroll: true });
}

function drawTable() {
  const { counted } = drawn.layer;
  const { classes } = subject();
  const noun = drawn.layer.moved ? "movement" : counted.of === "gates" ? "gates" : "attention";
  const line = (title, row, pairs) => {
    const cells = row.map((value, d) => {
      const cell = make("td", { textContent: total(row) > 0 ? percent(value / total(row)) : "–" });
      if (pairs && pairs[d] > 0) cell.append(make("small", { textContent: (value / pairs[d]).toFixed(2) }));
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", textContent: title }), ...cells);
  };
  const falls = counted.falls[drawn.head];
  const titles = ["queries", ...classes].map((name) => make("th", { scope: "col", textContent: name }));
  const body = make(
    "tbody",
    {},
    line("all", added(falls), added(counted.pairs)),
    ...classes.map((name, c) => line(name, falls[c], counted.pairs[c])),
    line("all, if even", added(counted.pairs), null),
  );
  $("table").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...titles)), body));
  $("counts-title").textContent = `Where its ${noun} ${noun === "gates" ? "fall" : "falls"}`;
  $("counts").textContent =
    `Of each class of queries (rows), the part of their ${noun} that falls on ` +
    "each class of keys (columns); below it the mean of a pair.";
}

$("sort").addEventListener("change", () => {
  state.sort = $("sort").value;
  $("by").disabled = !state.sort.startsWith("keys ");
  drawHeads();
  remember();
});
$("by").addEventListener("change", () => {
  state.by = $("by").value;
  drawHeads();
  remember();
});
