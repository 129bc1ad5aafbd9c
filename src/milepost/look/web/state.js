// What is chosen, what is drawn, and small tools.

const $ = (id) => document.getElementById(id);
const state = { subject: 0, layer: 0, head: 0, query: 0, picture: "", sort: "selectivity", by: "", theme: "auto" };
let drawn = null; // what `unpack` gave of the head that is on the screen, which lags behind the choice
const subject = () => SUBJECTS[state.subject];

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

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

// Scroll a box, and nothing around it, so far that it shows an element
function bringInto(box, element) {
  const [outer, inner] = [box.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    box.scrollTop += inner.top - outer.top - (box.clientHeight - inner.height) / 2;
  }
  if (inner.left < outer.left || inner.right > outer.right) {
    box.scrollLeft += inner.left - outer.left - (box.clientWidth - inner.width) / 2;
  }
}
