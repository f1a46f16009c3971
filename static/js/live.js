// Keeps the state of a part of a page when htmx replaces it: open folds, visible columns, the scroll position of a
// table, and the focus.
"use strict";

const REACHED = "a[href], button, input, select, summary, [tabindex]";
const within = (part, selector) => [...part.querySelectorAll(selector)];

let kept = null;
document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
  kept = {
    id: target.id,
    opened: within(target, "details[open]").map((details) => details.id),
    columns: within(target, ".all-columns input").map((box) => box.checked),
    scrolled: within(target, ".table-wrap").map((wrap) => wrap.scrollLeft),
    focus: within(target, REACHED).indexOf(document.activeElement),
    words: document.activeElement.textContent,
  };
});
document.addEventListener("htmx:afterSwap", () => {
  const part = kept && document.getElementById(kept.id);
  if (!part) return;
  for (const details of within(part, "details[id]")) if (kept.opened.includes(details.id)) details.open = true;
  within(part, ".all-columns input").forEach((box, place) => { box.checked = kept.columns[place] ?? false; });
  within(part, ".table-wrap").forEach((wrap, place) => { wrap.scrollLeft = kept.scrolled[place] ?? 0; });
  const focused = within(part, REACHED)[kept.focus];
  if (focused && focused.textContent === kept.words && document.activeElement === document.body) focused.focus({ preventScroll: true });
  kept = null;
});
