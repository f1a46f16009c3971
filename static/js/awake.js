// Tells the site once a minute that the user is typing. Staff who send nothing are signed out after a while and would
// lose the text typed so far.
"use strict";

const EVERY = 60_000;
let told = Date.now();
document.addEventListener("input", () => {
  if (Date.now() - told < EVERY) return;
  told = Date.now();
  fetch(location.href, { method: "HEAD" });
});
