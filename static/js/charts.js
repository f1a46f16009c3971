// Draws every <canvas data-chart="ID"> with Chart.js from the JSON in the element ID-data (ipate_web/staff/charts.py).
"use strict";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// If there are more series than colours, the second round differs in its points.
const colour = (index) => css(`--series-${(index % 3) + 1}`);
const point = (index) => ["circle", "rect", "triangle"][Math.floor(index / 3) % 3];

const axis = (text, font, { ticks, ...options }) => ({
  title: { display: Boolean(text), text, font, color: css("--ink-soft") },
  ticks: { color: css("--ink-soft"), font, ...ticks },
  grid: { color: css("--line") },
  ...options,
});

function datasets({ kind, scale, x, connected, series }) {
  const place = scale === "category" ? (values) => values : (values) => values.map((y, i) => ({ x: x[i], y: shown(scale, y) }));
  return series.flatMap(({ name, values, limit }, index) => {
    const line = { borderColor: colour(index), backgroundColor: colour(index) };
    const sets = [
      {
        ...line,
        label: name,
        data: place(values),
        borderWidth: kind === "line" ? 2.5 : 0,
        spanGaps: connected,
        stepped: scale === "time",
        pointStyle: point(index),
        pointRadius: isMark(values) ? 8 : index < 3 && x.length > 1 ? 0 : 3,
      },
    ];
    if (limit !== null) {
      sets.push({ ...line, data: place(values.map(() => limit)), borderWidth: 1.5, borderDash: [6, 5], pointRadius: 0, pointHitRadius: 0 });
    }
    return sets;
  });
}

// A series with one value marks a point of another.
const isMark = (values) => values.length > 1 && values.filter((value) => value !== null).length === 1;

// Milliseconds as words: days if there are several, and the time of day within one or two.
function moments(x) {
  const day = 86400000;
  const range = x.at(-1) - x[0];
  // Within half a day, only the table of numbers shows the date.
  const options = range > 3 * day ? { dateStyle: "short" } : { ...(range > day / 2 ? { dateStyle: "short" } : {}), timeStyle: range > day / 24 ? "short" : "medium" };
  // English pages write dates as Sweden does: 2026-11-28.
  const { lang } = document.documentElement;
  const format = new Intl.DateTimeFormat(lang === "en" ? "sv" : lang, options);
  return (value) => format.format(value);
}

const shown = (scale, y) => (scale === "logarithmic" && !(y > 0) ? null : y);

// A text in two lines of about the same length.
function halved(text) {
  const middle = text.length / 2;
  const [place] = [...text.matchAll(/ /g)].map(({ index }) => index).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
  return place ? [text.slice(0, place), text.slice(place + 1)] : text;
}

function configuration(chart, height) {
  // Text takes less space where there is little.
  const isLow = height < 250;
  const font = isLow ? { size: 12 } : {};
  const logarithmic = chart.scale === "logarithmic";
  const time = chart.scale === "time" ? moments(chart.x) : null;
  return {
    type: chart.kind,
    data: { labels: chart.scale === "category" ? chart.x : undefined, datasets: datasets(chart) },
    options: {
      maintainAspectRatio: false,
      animation: false,
      scales: {
        x: { type: time ? "linear" : chart.scale, ...(chart.scale === "category" ? {} : { bounds: "data" }), ...axis(chart.xLabel, font, time ? { ticks: { maxTicksLimit: 5, maxRotation: 0, callback: time } } : {}) },
        y: axis(isLow ? halved(chart.yLabel) : chart.yLabel, font, { type: logarithmic ? "logarithmic" : "linear", beginAtZero: !logarithmic, ...(chart.yMax === null ? {} : { max: chart.yMax }) }),
      },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: {
        ...(time ? { tooltip: { callbacks: { title: (items) => time(items[0].parsed.x) } } } : {}),
        legend: { position: "bottom", display: chart.series.length > 1, labels: { color: css("--ink"), font, padding: isLow ? 6 : 10, usePointStyle: true, boxWidth: 8, boxHeight: 8, filter: (item) => item.text } },
      },
    },
  };
}

function drawCharts() {
  for (const canvas of document.querySelectorAll("canvas[data-chart]")) {
    const wanted = configuration(JSON.parse(document.getElementById(`${canvas.dataset.chart}-data`).textContent), canvas.parentElement.clientHeight);
    const chart = Chart.getChart(canvas);
    if (chart) {
      chart.data = wanted.data;
      chart.options = wanted.options;
      chart.update();
    } else {
      new Chart(canvas, wanted);
    }
  }
}

Object.assign(Chart.defaults.font, { family: getComputedStyle(document.body).fontFamily, size: 14 });
Chart.defaults.locale = document.documentElement.lang;
// Twice the pixels of an ordinary screen, so that plots are sharp on paper.
Chart.defaults.devicePixelRatio = Math.max(2, devicePixelRatio);
for (const medium of ["(prefers-color-scheme: dark)", "print"]) matchMedia(medium).addEventListener("change", drawCharts);
document.addEventListener("htmx:afterSettle", drawCharts);
drawCharts();
