// Announces the state of a run on its page.
"use strict";

function announce() {
  const place = document.getElementById("run-announcement");
  const state = document.querySelector("[data-announce]")?.dataset.announce;
  if (place && place.textContent !== state) place.textContent = state;
}

document.addEventListener("htmx:afterSettle", announce);
announce();
