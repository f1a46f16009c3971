// Keyboard shortcuts of staff pages: Ctrl-K or / moves to the search field, j and k move through the rows of a list.
// People who use speech input can switch off the single keys behind the "?" of the page (WCAG 2.1.4).
"use strict";

const KEY = "single-keys";
const field = document.querySelector(".site-search [name=words]");
const part = document.querySelector(".site-search .found");
const box = document.querySelector("[data-single-keys]");
const areOn = () => localStorage.getItem(KEY) !== "off";
const ways = () => [...(part?.hidden === false ? part : document.querySelector("main")).querySelectorAll(
  ".found a, .list tbody th a, .list tbody tr:not(:has(th a)) > :first-child",
)].filter((each) => each.checkVisibility());

function go(step) {
  const all = part?.hidden === false ? [...part.querySelectorAll("a")] : ways();
  const here = all.findIndex((each) => each === document.activeElement || each.contains(document.activeElement));
  const next = all[here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step];
  if (!next) return false;
  if (!next.matches("a")) next.tabIndex = -1;
  next.focus();
  return true;
}

if (box) {
  box.closest("label").hidden = false;
  box.checked = areOn();
  box.addEventListener("change", () => localStorage.setItem(KEY, box.checked ? "on" : "off"));
}

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const isTyping = target.matches("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
  if (field && key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
    field.focus();
    field.select();
  } else if (part && !part.hidden && ["ArrowDown", "ArrowUp"].includes(key) && event.target.closest(".site-search")) {
    go(key === "ArrowDown" ? 1 : -1);
  } else if (part && !part.hidden && key === "Escape") {
    part.hidden = true;
    field.focus();
  } else if (key === "Escape" && target.closest(".list-more[open]")) {
    const panel = target.closest(".list-more");
    panel.open = false;
    panel.querySelector("summary").focus();
  } else if (event.ctrlKey || event.metaKey || event.altKey || isTyping || !areOn()) {
    return;
  } else if (key === "/" && field) {
    field.focus();
  } else if (!((key === "j" && go(1)) || (key === "k" && go(-1)))) {
    return;
  }
  event.preventDefault();
});

// Whatever lies over the page closes when the focus leaves it, because it could cover what has the focus next.
document.addEventListener("focusin", ({ target }) => {
  for (const each of document.querySelectorAll(".list-more[open], :popover-open")) {
    if (each.contains(target) || target.getAttribute("popovertarget") === each.id) continue;
    if (each.popover) each.hidePopover(); else each.open = false;
  }
  if (part && !target.closest(".site-search")) part.hidden = true;
});

if (field) {
  let wait = 0;
  let asked = 0;
  field.addEventListener("input", () => {
    clearTimeout(wait);
    const number = ++asked;
    wait = setTimeout(async () => {
      const body = new FormData(field.form);
      body.set("part", "1");
      const answer = await fetch(field.form.action, { method: "POST", body, redirect: "error" }).catch(() => null);
      const text = answer?.ok && field.value.trim() ? await answer.text() : "";
      if (number !== asked) return;
      part.innerHTML = text;
      part.hidden = !text.trim();
    }, 200);
  });
  document.addEventListener("click", ({ target }) => { if (!target.closest(".site-search")) part.hidden = true; });
}
