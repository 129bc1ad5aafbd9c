// The text: one token is the query, and the others show what it makes of them.

const PART = 256; // tokens that are laid out together, at the most twice as many
const near = new Set(); // the tokens on the screen: only they are kept up to date
let held = false; // the query stays while another token is pointed at
let pressedAt = null; // the query as a pointer went down

const tokenAt = (index) => $("text").querySelector(`[data-index="${index}"]`);

// Tokens stand in parts, of which a browser lays out and paints those on the screen alone
function drawText() {
  const parts = [make("div", { className: "part" })];
  near.clear();
  watcher.disconnect();
  subject().texts.forEach((text, index) => {
    const token = make("span", { className: "token", tabIndex: -1 });
    token.append(make("b", { textContent: visible(text) }), make("i", {}, ""));
    token.dataset.index = index;
    token.setAttribute("role", "option");
    token.setAttribute("aria-label", `token ${index}: ${visible(text)}`);
    const part = parts.at(-1);
    part.append(token);
    const [line, word] = [text.endsWith("\n"), /\s$|^\s/.test(text)];
    if (line) part.append(make("br"));
    const count = part.children.length;
    if ((line && count >= PART / 4) || (word && count >= PART) || count >= 2 * PART) {
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
  if (!drawn) return;
  const { layer, arrays } = drawn;
  const i = state.query;
  for (const token of near) {
    const j = Number(token.dataset.index);
    const seen = sees(layer, i, j);
    token.classList.toggle("unseen", !seen);
    token.classList.toggle("query", j === i);
    token.setAttribute("aria-selected", j === i);
    token.style.setProperty("--attention-here", Math.sqrt(arrays.attention(i, j)));
    token.style.setProperty("--gate-here", arrays.gates ? arrays.gates(i, j) : 0);
    // a new text in the same node, which is far cheaper than a new node
    token.lastChild.firstChild.data = seen ? short(layer.arrays.positions, arrays.positions(i, j)) : "";
  }
}

// Make a token the query
function choose(query) {
  const before = tokenAt(state.query);
  if (before) near.add(before);
  state.query = Math.max(0, Math.min(subject().texts.length - 1, query));
  near.add(tokenAt(state.query));
  reach(state.query);
  soon(paintQuery);
}

// The token that the keyboard reaches first
function reach(index) {
  for (const other of $("text").querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  tokenAt(index).tabIndex = 0;
}

function paintQuery() {
  if (!drawn) return;
  paintTokens();
  markRow();
  $("about").textContent = aboutQuery(state.query);
  aboutMoves();
  remember();
}

// Point at a token: it is the query, or where one is held, the other of a pair
function point(index) {
  if (!held) choose(index);
  else if (drawn) {
    reach(index);
    $("about").textContent = aboutPair(state.query, index);
  }
}

function hold(on) {
  held = on;
  $("text").classList.toggle("held", on);
  $("held").textContent = on
    ? "Held: point at another token to compare the two. Click it again or press Escape to let go."
    : "";
}

// The token above or below, as they happen to be laid out
function besideRow(token, down) {
  const here = token.getBoundingClientRect();
  let best = null;
  for (const other of $("text").querySelectorAll(".token")) {
    const { top, left } = other.getBoundingClientRect();
    if (down ? top < here.top + 2 : top > here.top - 2) continue;
    const [rows, columns] = [Math.abs(top - here.top), Math.abs(left - here.left)];
    if (!best || rows < best.rows - 2 || (rows < best.rows + 2 && columns < best.columns)) {
      best = { rows, columns, other };
    }
  }
  return Number((best?.other ?? token).dataset.index);
}

const indexOf = (event) => {
  const token = event.target.closest?.(".token");
  return token ? Number(token.dataset.index) : null;
};

$("text").addEventListener("pointerover", (event) => {
  const index = indexOf(event);
  if (index !== null && event.pointerType !== "touch") point(index);
});
$("text").addEventListener("pointerdown", () => (pressedAt = held ? state.query : null));
$("text").addEventListener("focusin", (event) => {
  const index = indexOf(event);
  if (index !== null && index !== state.query) point(index);
});
$("text").addEventListener("click", (event) => {
  const index = indexOf(event);
  if (index === null) return;
  hold(index !== pressedAt);
  choose(index);
});
$("text").addEventListener("keydown", (event) => {
  const index = indexOf(event);
  if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = subject().texts.length - 1;
  const moves = {
    ArrowLeft: () => Math.max(0, index - 1),
    ArrowRight: () => Math.min(last, index + 1),
    ArrowUp: () => besideRow(event.target, false),
    ArrowDown: () => besideRow(event.target, true),
    Home: () => 0,
    End: () => last,
  };
  if (Object.hasOwn(moves, event.key)) {
    event.preventDefault();
    tokenAt(moves[event.key]()).focus();
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    hold(!(held && index === state.query));
    choose(index);
  }
});
$("numbers").addEventListener("change", () => $("text").classList.toggle("plain", !$("numbers").checked));
