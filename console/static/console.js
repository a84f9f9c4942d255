// The few things that the pages do by themselves. Everything can be read without this file.
"use strict";

// --- the theme: the system decides until the user does
const root = document.documentElement;
const savedTheme = localStorage.getItem("theme");
if (savedTheme) root.dataset.theme = savedTheme;

const REFRESH_MS = 5000;

function isDark() {
  return root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
}

for (const button of document.querySelectorAll("[data-theme-toggle]")) {
  button.hidden = false;
  const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  show();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    show();
    drawCharts();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    show();
    drawCharts();
  });
}

// --- the live part of a page, which rests while the page is hidden. All browsers refresh at the same
// moments, so that the console makes the part once for all of them.
let refreshed = Date.now();

function refresh(box) {
  const live = document.getElementById("live");
  const isReading = live && live.contains(document.activeElement);
  if (!box.checked || document.hidden || !live || isReading || getSelection().toString()) return;
  refreshed = Date.now();
  htmx.ajax("GET", live.dataset.live, {target: "#live", select: "#live", swap: "outerHTML"});
}

for (const box of document.querySelectorAll("[data-refresh]")) {
  box.closest("[hidden]").hidden = false;
  box.checked = localStorage.getItem("refresh") !== "off";
  box.addEventListener("change", () => {
    localStorage.setItem("refresh", box.checked ? "on" : "off");
  });
  const wait = () => setTimeout(() => { refresh(box); wait(); },
    REFRESH_MS - Date.now() % REFRESH_MS);
  wait();
  document.addEventListener("visibilitychange", () => {
    if (Date.now() - refreshed > REFRESH_MS) refresh(box);
  });
}

// --- charts
const CHART_PX = 150;
const AXIS_PX = 12, CHARACTER_PX = 8;
// Half a time fits beside the line at each end, so that no time is cut.
const HALF_TIME_PX = 28;
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
  43200, 86400];
const LINE_COLOURS = ["--accent", "--good"];
const shortNumber = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 2});
let plots = [];

function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

// The whole steps between the first and the last time, and none beyond them.
function timeMarks(plot, axis, first, last, step) {
  const marks = [];
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) marks.push(at);
  return marks;
}

function drawCharts() {
  for (const plot of plots) plot.destroy();
  plots = [];
  const style = getComputedStyle(root);
  const soft = style.getPropertyValue("--soft").trim(), line = style.getPropertyValue("--line").trim();
  const colours = LINE_COLOURS.map((each) => style.getPropertyValue(each).trim());
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const chart = JSON.parse(figure.dataset.chart);
    if (chart.times.length < 2 || typeof uPlot === "undefined") continue;
    const box = figure.querySelector(".plot");
    const names = Object.keys(chart.series);
    const values = names.map((name) => figure.querySelector(`[data-line="${CSS.escape(name)}"]`));
    const latest = values.map((each) => each.textContent);
    // A chart of whole numbers has no fractions beside it.
    const isWhole = Object.values(chart.series).flat().every((each) => each === null || Number.isInteger(each));
    const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {show: false}};
    box.hidden = false;
    plots.push(new uPlot({
      width: box.clientWidth, height: CHART_PX, padding: [8, HALF_TIME_PX, 0, 0],
      legend: {show: false},
      cursor: {y: false, drag: {setScale: false}},
      scales: {y: {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]}},
      axes: [{...axis, size: 28, space: 80, incrs: TIME_STEPS_S, splits: timeMarks,
        values: (_, marks) => marks.map(clockTime)},
        {...axis, space: 24, size: (_, texts) => Math.max(HALF_TIME_PX, AXIS_PX + CHARACTER_PX
          * Math.max(...(texts || [""]).map((each) => each.length))),
        values: (_, marks) => marks.map((each) => (
          isWhole && !Number.isInteger(each) ? "" : shortNumber.format(each)))}],
      series: [{}, ...names.map((name, at) => ({
        label: name, width: 2, spanGaps: false, stroke: colours[at % colours.length],
        points: {size: 5, fill: colours[at % colours.length]}}))],
      hooks: {setCursor: [(plot) => names.forEach((name, at) => {
        const value = plot.cursor.idx == null ? null : chart.series[name][plot.cursor.idx];
        values[at].textContent = value == null ? latest[at] : shortNumber.format(value);
      })]},
    }, [chart.times.map((each) => each / 1000), ...Object.values(chart.series)], box));
  }
}

drawCharts();
document.addEventListener("htmx:afterSettle", drawCharts);
addEventListener("resize", () => {
  for (const plot of plots) {
    plot.setSize({width: plot.root.parentElement.clientWidth, height: CHART_PX});
  }
});

// --- the live tail: it asks for what is new, and rests while the page is hidden
const TAIL_ROWS_MAX = 500;
const TAIL_SLOWEST_MS = 10000;
const TAIL_ENDS_MS = 30 * 60 * 1000;

function startTail(tail) {
  const state = document.querySelector("[data-tail-state]");
  const button = document.querySelector("[data-tail-pause]");
  const period = Number(tail.dataset.period);
  let wait = period, isPaused = false, began = Date.now(), timer = 0;

  function say(text) { if (state.textContent !== text) state.textContent = text; }

  function pause(isNowPaused, text) {
    isPaused = isNowPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    say(text);
    clearTimeout(timer);
    if (!isPaused) { began = Date.now(); wait = period; look(); }
  }

  function add(part) {
    const rows = [...part.querySelectorAll("tbody tr")];
    const body = tail.querySelector("tbody");
    if (body) {
      body.prepend(...rows);
      while (body.rows.length > TAIL_ROWS_MAX) body.lastElementChild.remove();
      for (const each of tail.querySelectorAll(".warning, .hint")) each.remove();
      tail.prepend(...part.querySelectorAll(".warning, .hint"));
    } else {
      tail.replaceChildren(...part.children);
    }
    tail.dataset.tail = part.dataset.tail;
  }

  async function look() {
    if (isPaused) return;
    if (Date.now() - began > TAIL_ENDS_MS) return pause(true, "paused after half an hour");
    if (!document.hidden) {
      try {
        const answer = await fetch(tail.dataset.tail);
        const text = await answer.text();
        const part = new DOMParser().parseFromString(text, "text/html").querySelector("[data-tail]");
        if (isPaused) return;
        if (answer.redirected) return location.reload();
        if (answer.ok && part) {
          add(part);
          wait = period;
          say("live");
        } else {
          wait = Math.min(wait * 2, TAIL_SLOWEST_MS);
          say(answer.status === 429 ? "slower: too many tails are open" : `no answer (${answer.status})`);
        }
      } catch {
        wait = Math.min(wait * 2, TAIL_SLOWEST_MS);
        say("the console does not answer");
      }
    }
    timer = setTimeout(look, wait);
  }

  button.hidden = false;
  button.addEventListener("click", () => pause(!isPaused, isPaused ? "live" : "paused"));
  say("live");
  timer = setTimeout(look, wait);
}

for (const tail of document.querySelectorAll("[data-tail]")) startTail(tail);

// --- forms
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// A form that must not be carried out twice.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-once]")) return;
  for (const button of event.target.querySelectorAll("button")) button.disabled = true;
});

// A list with boxes: one box selects all rows, and the button tells how many are selected.
for (const form of document.querySelectorAll("[data-selection]")) {
  const boxes = [...form.querySelectorAll('td input[type="checkbox"]')];
  const button = form.querySelector("button");
  const all = document.createElement("input");
  all.type = "checkbox";
  all.setAttribute("aria-label", "Select all rows");
  const tell = () => {
    const count = boxes.filter((box) => box.checked).length;
    all.checked = count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
    if (!button) return;
    button.disabled = count === 0;
    button.textContent = count === 0 ? "Select messages to resend"
      : `Resend ${count} ${count === 1 ? "message" : "messages"}`;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    tell();
  });
  form.addEventListener("change", tell);
  // A console that is read-only has no boxes.
  form.querySelector("[data-select-all]")?.replaceChildren(all);
  tell();
}

// "/" moves to the search field, as in many lists.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-slash]");
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && field && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    field.focus();
  }
});

// A page that has expired is loaded as a whole, so that the login page is shown.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.detail.xhr.responseText.includes('id="live"')) {
    event.detail.shouldSwap = false;
    if (event.detail.xhr.responseURL.includes("/login")) location.reload();
  }
});
