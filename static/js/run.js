// On a run's page: what must survive when htmx replaces its live part, and the announcement of its state.
"use strict";

function announce() {
  const place = document.getElementById("run-announcement");
  const state = document.querySelector("[data-announce]")?.dataset.announce;
  if (place && place.textContent !== state) place.textContent = state;
}

let opened = [];
document.addEventListener("htmx:beforeSwap", () => {
  opened = [...document.querySelectorAll("#run-live details[open]")].map((details) => details.id);
});
document.addEventListener("htmx:afterSettle", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  announce();
});
announce();
