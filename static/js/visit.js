// Warns in the last ten minutes of a visit by invitation that it will end, and extends it without leaving the page.
const WARNING = 10 * 60 * 1000;
const visit = document.querySelector("[data-visit-ends]");
const part = (name) => visit.querySelector(`[data-visit-${name}]`);
const form = visit.querySelector("form");
let timers = [];

function begin() {
  const left = Date.parse(visit.dataset.visitEnds) - Date.now();
  timers.forEach(clearTimeout);
  visit.classList.remove("is-ending");
  part("soon").hidden = true;
  timers = [
    setTimeout(() => {
      visit.classList.add("is-ending");
      part("soon").hidden = false;
    }, Math.max(left - WARNING, 0)),
    setTimeout(() => {
      part("soon").hidden = part("note").hidden = form.hidden = true;
      part("over").hidden = false;
    }, left),
  ];
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch(form.action, {
    method: "POST", body: new FormData(form), headers: { Accept: "application/json" }, redirect: "error",
  }).catch(() => null);
  if (!answer?.ok) {
    form.submit(); // the page that comes says what to do
    return;
  }
  const { ends, text } = await answer.json();
  visit.dataset.visitEnds = ends;
  part("time").textContent = text;
  begin();
});

begin();
