// Tells the site, once a minute, that somebody types. Staff who send nothing are signed out after a while, and would
// lose what they have typed until then.
"use strict";

const EVERY = 60_000;
let told = Date.now();
document.addEventListener("input", () => {
  if (Date.now() - told < EVERY) return;
  told = Date.now();
  fetch(location.href, { method: "HEAD" });
});
