// Shows what only works with a script, and says when a key was not read.
for (const part of document.querySelectorAll("[data-needs-script]")) part.hidden = false;
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  const told = document.querySelector("[data-key-error]");
  if (told) told.hidden = false;
});
