// Charts, drawn from the JSON beside them, and, on a run's page, what must survive when htmx replaces its live part.
"use strict";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const data = (id) => JSON.parse(document.getElementById(id).textContent);
// Where there are more series than colours, the second round is told apart by its points.
const colour = (index) => css(`--series-${(index % 3) + 1}`);
const point = (index) => ["circle", "rect", "triangle"][Math.floor(index / 3) % 3];

const axis = (text) => ({
  title: { display: Boolean(text), text, color: css("--ink-soft") },
  ticks: { color: css("--ink-soft") },
  grid: { color: css("--line") },
  beginAtZero: true,
});
const common = { maintainAspectRatio: false, animation: false };
const legend = () => ({ position: "bottom", labels: { color: css("--ink"), usePointStyle: true, filter: (item) => item.text } });

const costSeries = (costs) => {
  const last = Math.max(...costs.series.map((series) => series.points.at(-1).x));
  return costs.series.flatMap((series, index) => [
    {
      label: series.name,
      data: [{ x: 0, y: series.start }, ...series.points],
      borderColor: colour(index),
      backgroundColor: colour(index),
      pointStyle: point(index),
      pointRadius: index < 3 ? 0 : 3,
      borderWidth: 2.5,
    },
    {
      data: [{ x: 0, y: series.budget }, { x: last, y: series.budget }],
      borderColor: colour(index),
      borderDash: [6, 5],
      borderWidth: 1.5,
      pointRadius: 0,
      pointHitRadius: 0,
    },
  ]);
};

const charts = {
  costs(canvas) {
    const costs = data("costs-data");
    const scales = { x: { type: "linear", bounds: "data", ...axis(costs.x) }, y: axis(costs.y) };
    return new Chart(canvas, {
      type: "line",
      data: { datasets: costSeries(costs) },
      options: { ...common, scales, plugins: { legend: legend() }, interaction: { mode: "nearest", axis: "x", intersect: false } },
    });
  },
  levels(canvas) {
    const levels = data("levels-data");
    const datasets = levels.series.map((series, index) => ({
      label: series.name,
      data: series.values,
      borderColor: colour(index),
      backgroundColor: colour(index),
      borderWidth: 2.5,
      pointStyle: ["circle", "rect", "triangle"][index],
    }));
    return new Chart(canvas, {
      type: "line",
      data: { labels: levels.labels, datasets },
      options: { ...common, scales: { x: axis(""), y: axis(levels.y) }, plugins: { legend: legend() } },
    });
  },
  classes(canvas) {
    const classes = data("classes-data");
    const datasets = classes.series.map((series, index) => ({
      label: series.name,
      data: series.values,
      backgroundColor: colour(index),
    }));
    const scales = { x: { ...axis(""), grid: { display: false } }, y: { ...axis(""), max: 1 } };
    return new Chart(canvas, {
      type: "bar",
      data: { labels: classes.labels, datasets },
      options: { ...common, scales, plugins: { legend: legend() } },
    });
  },
};

Object.assign(Chart.defaults.font, { family: getComputedStyle(document.body).fontFamily, size: 14 });

function draw() {
  for (const canvas of document.querySelectorAll("canvas[data-chart]")) {
    const chart = Chart.getChart(canvas);
    if (!chart) {
      charts[canvas.dataset.chart](canvas);
    } else if (canvas.dataset.chart === "costs") {
      chart.data.datasets = costSeries(data("costs-data"));
      chart.update();
    }
  }
}

function redraw() {
  for (const canvas of document.querySelectorAll("canvas[data-chart]")) Chart.getChart(canvas)?.destroy();
  draw();
}

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
  draw();
  announce();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
draw();
announce();
