// Shows parts that only work with scripts, and reports keys that could not be read.
for (const part of document.querySelectorAll("[data-needs-script]")) part.hidden = false;
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  const told = document.querySelector("[data-key-error]");
  if (told) told.hidden = false;
});
