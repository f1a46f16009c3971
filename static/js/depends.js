// Shows an element only while the form field that it depends on has one of its values:
// <div data-shown-while="id of the field" data-is="value other-value">. A checkbox has the value "on" while checked.
"use strict";

for (const element of document.querySelectorAll("[data-shown-while]")) {
  const field = document.getElementById(element.dataset.shownWhile);
  const values = element.dataset.is.split(" ");
  const update = () => {
    const value = field.type === "checkbox" ? (field.checked ? "on" : "") : field.value;
    element.hidden = !values.includes(value);
  };
  field.addEventListener("change", update);
  update();
}
