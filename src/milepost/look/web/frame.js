// The choice of a model, the theme, the address; and the beginning.

const THEMES = ["auto", "light", "dark"];
const FIRST = 200; // the query of a long text, to begin with

function drawSubjects() {
  const buttons = SUBJECTS.map(({ title }, number) => {
    const button = make("button", { type: "button", textContent: title });
    button.dataset.subject = number;
    return button;
  });
  $("subjects-list").replaceChildren(...buttons);
  $("subjects-list").hidden = SUBJECTS.length < 2;
}

function drawChoices() {
  const { classes, layers } = subject();
  const option = (value, textContent) => make("option", { value, textContent });
  const gates = layers.some(({ counted }) => counted.of === "gates");
  $("sort").replaceChildren(
    option("selectivity", gates ? "how selectively they count" : "how selectively they attend"),
    option("amount", gates ? "how much they count" : "how much they attend elsewhere"),
    option("layer", "layer and head"),
    ...classes.map((name) => option(`keys ${name}`, `${gates ? "gates" : "attention"} on ${name}`)),
  );
  const queries = classes.map((name) => option(name, `queries ${name}`));
  $("by").replaceChildren(option("", "all queries"), ...queries);
  const known = [...$("sort").options].some(({ value }) => value === state.sort);
  if (!known) state.sort = "selectivity";
  if (!classes.includes(state.by)) state.by = "";
  $("sort").value = state.sort;
  $("by").value = state.by;
  $("by").disabled = !state.sort.startsWith("keys ");
}

// What a model is first seen with: the first head in the order, and a token with many before it
function first() {
  const [{ l, head }] = everyHead();
  return { layer: l, head, query: Math.min(subject().texts.length, FIRST) - 1 };
}

function chooseSubject(number, given = {}) {
  state.subject = number;
  drawn = null;
  hold(false);
  document.title = `${subject().title} – Milepost`;
  for (const button of $("subjects-list").children) {
    button.setAttribute("aria-pressed", Number(button.dataset.subject) === number);
  }
  $("title").textContent = subject().title;
  $("size").textContent = subject().about;
  drawChoices();
  Object.assign(state, first(), given);
  if (!(subject().layers[state.layer]?.counted.amount.length > state.head)) {
    const { layer, head } = first();
    Object.assign(state, { layer, head });
  }
  drawText();
  drawHeads();
  choose(state.query);
  bringInto($("text"), tokenAt(state.query));
  chooseHead(state.layer, state.head);
}

$("subjects-list").addEventListener("click", (event) => {
  const number = event.target.closest("button")?.dataset.subject;
  if (number === undefined) return;
  const same = SUBJECTS[number].texts.join("\0") === subject().texts.join("\0");
  chooseSubject(Number(number), same ? { query: state.query } : {});
});

function drawLegend() {
  const { gates, positions } = drawn.layer.arrays;
  $("legend-gates").hidden = !gates;
  if (gates) $("legend-gates-text").replaceChildren(`${gates.title} (`, ...formula(gates.symbol), ")");
  const unit = positions.unit === "share" ? ", in %" : "";
  const most = positions.unit === "count" && positions.largest !== null ? `, at most ${positions.largest}` : "";
  const symbol = formula(positions.symbol);
  $("legend-positions-text").replaceChildren(`${positions.title} (`, ...symbol, `)${unit}${most}`);
}

function setTheme(theme) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  if (!drawn) return;
  drawHeat();
  drawSmall();
  drawMoves();
}

$("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length]);
  remember();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(state.theme));
addEventListener("resize", () => soon(markRow));

document.addEventListener("keydown", (event) => {
  if (event.target.closest?.("select, input") || event.metaKey) return;
  // on many keyboards brackets are typed with AltGr, which some systems report as Ctrl and Alt
  if (event.key === "[" || event.key === "]") stepHead(event.key === "[" ? -1 : 1);
  else if (/^Arrow(Left|Right)$/.test(event.key) && document.activeElement === document.body) {
    event.preventDefault(); // as if the text had been gone to before
    tokenAt(state.query).focus();
    const last = subject().texts.length - 1;
    const next = state.query + (event.key === "ArrowLeft" ? -1 : 1);
    tokenAt(Math.max(0, Math.min(last, next))).focus();
  }
  else if (event.key === "Escape") {
    hold(false);
    reach(state.query);
    soon(paintQuery);
  }
});

// What is chosen stands in the address, so that a view can be kept and shared
function remember() {
  clearTimeout(remember.later);
  remember.later = setTimeout(() => {
    history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  }, 200);
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name) => Math.max(0, Math.trunc(Number(given.get(name))) || 0);
  for (const name of ["picture", "sort", "by"]) state[name] = given.get(name) ?? state[name];
  if (!NAMES.includes(state.picture)) state.picture = "";
  setTheme(THEMES.includes(given.get("theme")) ? given.get("theme") : "auto");
  const places = ["layer", "head", "query"].filter((name) => given.has(name));
  const chosen = Object.fromEntries(places.map((name) => [name, number(name)]));
  chooseSubject(Math.min(number("subject"), SUBJECTS.length - 1), chosen);
}

addEventListener("hashchange", begin);
drawSubjects();
begin();
