// Puts a slider under each <input type="number" data-slider>, on a logarithmic scale; both always show the same number.
"use strict";

const [LEAST, MOST, STEPS] = [0.05, 10, 200];
const clamp = (value) => Math.min(Math.max(value, LEAST), MOST);

for (const number of document.querySelectorAll("input[data-slider]")) {
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: STEPS, className: "slider" });
  slider.setAttribute("aria-label", number.labels[0].textContent);
  const follow = () => {
    slider.value = STEPS * Math.log(clamp(Number(number.value) || LEAST) / LEAST) / Math.log(MOST / LEAST);
    slider.setAttribute("aria-valuetext", `ε = ${number.value}`);
  };
  slider.addEventListener("input", () => {
    number.value = Number((LEAST * (MOST / LEAST) ** (slider.value / STEPS)).toPrecision(2));
    slider.setAttribute("aria-valuetext", `ε = ${number.value}`);
  });
  number.addEventListener("input", follow);
  number.after(slider);
  follow();
}
