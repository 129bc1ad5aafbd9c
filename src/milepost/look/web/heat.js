// Heat maps: of the chosen head, of every head in small, and of TAPE's places.

const NAMES = ["gates", "positions", "attention", "alone"];
const SHARPEST = 1000; // pixels of the heat map each way

// Which array is drawn of a layer: the one that is wished for, if it has it
function pictureOf(layer) {
  const wishes = [state.picture, "gates", "attention"];
  return wishes.find((name) => layer.arrays[name]?.small !== undefined);
}

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

// A triangle of levels from 0 to 255; null is left empty
function paint(canvas, side, name, level) {
  canvas.width = canvas.height = side;
  const colours = palette(name);
  const image = new ImageData(side, side);
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < side; i++) {
    for (let j = 0; j <= i; j++) {
      const here = level(i, j);
      if (here !== null) words[i * side + j] = colours[here];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawHeat() {
  const { l, head, layer, arrays } = drawn;
  const name = pictureOf(layer);
  const { title, symbol, unit, largest } = layer.arrays[name];
  const value = arrays[name];
  const side = subject().texts.length;
  const root = name === "attention" || name === "alone";
  let most = 1;
  if (unit === "count" || unit === "tokens") {
    for (let i = 0; i < side; i++) most = Math.max(most, value(i, layer.from[i]));
  }
  const level = (i, j) => {
    const here = Math.max(0, value(i, j)) / most;
    return Math.round(255 * (root ? Math.sqrt(here) : here));
  };
  const block = Math.ceil(side / SHARPEST); // of so many pairs each way a pixel shows the largest
  paint($("heat"), Math.ceil(side / block), name, (row, column) => {
    let top = null;
    for (let i = row * block; i < Math.min((row + 1) * block, side); i++) {
      for (let j = column * block; j < Math.min((column + 1) * block, i + 1); j++) {
        if (sees(layer, i, j)) top = Math.max(top, level(i, j));
      }
    }
    return top;
  });
  $("heat").style.imageRendering = side < 400 ? "pixelated" : "auto";
  $("scale").style.setProperty("--colour", `var(--${name})`);
  $("most").textContent = String(Math.round(10 * most) / 10);
  const notes = [
    unit === "count" && largest !== null ? `, at most ${largest}` : "",
    ": a row for each query, a column for each key",
    root ? "; the scale is that of the root" : "",
    unit === "cosine" ? "; what is below 0 is drawn as 0" : "",
    block > 1 ? `; a pixel is the largest of ${block} × ${block}` : "",
  ];
  $("picture-about").replaceChildren(`${title}, `, ...formula(symbol), `${notes.join("")}.`);
  $("heat").setAttribute("aria-label", `${title} of layer ${l}, head ${head}, queries by keys`);
}

function markRow() {
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
  if (drawn) $("pair").textContent = aboutPair(...pairUnder(event));
});
$("heat").addEventListener("click", (event) => {
  const [query] = pairUnder(event);
  hold(true);
  choose(query);
  bringInto($("text"), tokenAt(query));
});

function drawPictures() {
  const { arrays } = drawn.layer;
  const names = NAMES.filter((name) => arrays[name]?.small !== undefined);
  const box = $("pictures");
  if ([...box.children].map((button) => button.dataset.picture).join() !== names.join()) {
    const buttons = names.map((name) => make("button", { type: "button" }));
    buttons.forEach((button, at) => (button.dataset.picture = names[at]));
    box.replaceChildren(...buttons);
  }
  for (const button of box.children) {
    button.textContent = arrays[button.dataset.picture].title;
    button.setAttribute("aria-pressed", button.dataset.picture === pictureOf(drawn.layer));
  }
}

$("pictures").addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.picture;
  if (!name || !drawn) return;
  state.picture = name;
  drawPictures();
  drawHeat();
  drawSmall();
  remember();
});

// TAPE: of the chosen head, a row for each layer and a column for each token
function drawMoves() {
  const rows = subject().layers.map(({ moved }) => moved?.[drawn.head]);
  $("moved").hidden = !rows[0];
  if (!rows[0]) return;
  const canvas = $("strip");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  canvas.style.setProperty("--layers", rows.length);
  const image = new ImageData(canvas.width, canvas.height);
  const words = new Uint32Array(image.data.buffer);
  const colours = palette("gates");
  rows.flat().forEach((share, at) => (words[at] = colours[Math.round(255 * Math.min(1, share))]));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function aboutMoves() {
  const rows = subject().layers.map(({ moved }) => moved?.[drawn.head]);
  if (!rows[0]) return;
  const steps = rows.map((row) => row[state.query].toFixed(2)).join(", ");
  $("moves").textContent = `Token ${named(state.query)}: ${steps} of its length.`;
}
