// The arrays of a head, unpacked when it is chosen (milepost.look.pack has the codes).
"use strict";

const SUBJECTS = JSON.parse(document.getElementById("subjects").textContent);
const MOST_KEPT = 6; // heads whose arrays stay unpacked
const kept = new Map();

const below = (i, j) => (i * (i + 1)) / 2 + j; // where a pair stands in an array

async function bytes(text) {
  const packed = atob(text);
  const raw = new Uint8Array(packed.length);
  for (let at = 0; at < raw.length; at++) raw[at] = packed.charCodeAt(at);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Whether a query sees a key: not one that comes later, nor one before its window
const sees = (layer, i, j) => j >= layer.from[i] && (j < i || (j === i && layer.itself));

// What is drawn of a head, all at once: by name a function from query and key to the number there,
// 0 where the query does not see the key; and `counts`, the sums of gates before they are cut off
async function unpack(s, l, head) {
  const layer = SUBJECTS[s].layers[l];
  const read = (name) => bytes(document.getElementById(`${s}-${l}-${head}-${name}`).textContent);
  const arrays = {};
  let counts = null;
  for (const [name, { code, levels, largest }] of Object.entries(layer.arrays)) {
    let number;
    if (code === "distance") number = (i, j) => i - j;
    else if (code === "sums") {
      const sums = suffixSums(await read("gates"));
      counts = (i, j) => sums[below(i, j)] / levels;
      number = (i, j) => Math.min(counts(i, j), largest ?? Infinity);
    } else {
      const found = await read(name);
      if (code === "square") number = (i, j) => (found[below(i, j)] / levels) ** 2;
      else if (code === "cosine") number = (i, j) => (2 * found[below(i, j)]) / levels - 1;
      else number = (i, j) => found[below(i, j)] / levels;
    }
    arrays[name] = (i, j) => (sees(layer, i, j) ? number(i, j) : 0);
  }
  return { s, l, head, layer, arrays, counts };
}

// Σ_{k=j}^{i}, row by row
function suffixSums(read) {
  const sums = new Uint32Array(read.length);
  for (let i = 0, end = 0; end < read.length; i++) {
    end += i + 1;
    for (let at = end - 1, sum = 0; at >= end - 1 - i; at--) sums[at] = sum += read[at];
  }
  return sums;
}

async function unpacked(s, l, head) {
  const key = `${s}-${l}-${head}`;
  const found = kept.get(key) ?? unpack(s, l, head);
  kept.delete(key); // the newest stand last
  kept.set(key, found);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return found;
}
