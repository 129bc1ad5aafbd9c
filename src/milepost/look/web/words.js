// Tokens and numbers as they are read.

const SIGNS = new Map([["\n", "⏎"], ["\t", "⇥"], ["\r", "␍"], [" ", "␣"]]);
const LONGEST = 24; // letters of a token in a sentence

// What cannot be seen, or changes what is, is shown by a sign or its number. A space within a token
// stays as it is: it is seen by what it stands between.
function visible(text) {
  if (text === "") return "∅";
  return text.replace(/[\s\p{C}]/gu, (sign, at) => {
    if (sign === " " && at > 0 && at < text.length - 1 && text[at - 1] !== " ") return sign;
    return SIGNS.get(sign) ?? `\\u{${sign.codePointAt(0).toString(16)}}`;
  });
}

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

// A number with room for its digits
function inWords(array, value) {
  if (array.unit === "share") return percent(value);
  if (array.unit === "count" && value === array.largest) return `${value}+`; // it counts no further
  return array.unit === "tokens" ? String(value) : value.toFixed(2);
}

// A number under a token
function short(array, value) {
  if (array.unit === "share") return String(Math.round(100 * value));
  if (array.unit === "count" && value === array.largest) return `${value}+`;
  return array.unit === "tokens" || value >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

// A token in a sentence; it is set apart, as it may be of a script that is written leftwards
function named(j) {
  const text = visible(subject().texts[j]);
  return `${j} “\u2068${text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text}\u2069”`;
}

function aboutPair(i, j) {
  const { layer, arrays } = drawn;
  if (!sees(layer, i, j)) return `Query ${named(i)} does not see key ${named(j)}.`;
  const parts = Object.entries(layer.arrays).map(
    ([name, array]) =>
      `${array.title} ${inWords(array, arrays[name](i, j))}${name === "alone" ? " of the largest" : ""}`,
  );
  return `Query ${named(i)}, key ${named(j)}: ${parts.join(", ")}.`;
}

function aboutQuery(i) {
  const { l, head, layer, arrays, counts } = drawn;
  const place = `Layer ${l}, head ${head}: query ${named(i)}`;
  const keys = [...subject().texts.keys()].filter((j) => sees(layer, i, j));
  if (!keys.length) return `${place} sees no key.`;
  const most = keys.sort((a, b) => arrays.attention(i, b) - arrays.attention(i, a)).slice(0, 3);
  const told = most.filter((j, at) => at === 0 || arrays.attention(i, j) >= 0.005);
  const parts = [
    `attends ${told.map((j) => `${percent(arrays.attention(i, j))} to key ${named(j)}`).join(", ")}`,
  ];
  if (counts) parts.push(`counts ${counts(i, layer.from[i]).toFixed(2)} in all`);
  if (layer.remainder) parts.push(`leaves ${percent(layer.remainder[head][i])} of the stick`);
  return `${place} ${parts.join("; ")}.`;
}

// a_ij with its indices set low
function formula(symbol) {
  return symbol
    .split(/_(\{[^}]*\}|\w+)/)
    .map((part, at) => (at % 2 ? make("sub", { textContent: part.replace(/[{}]/g, "") }) : part));
}
