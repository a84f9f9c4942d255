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
  button.textContent = isDark() ? "Light" : "Dark";
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    button.textContent = isDark() ? "Light" : "Dark";
  });
}

// --- the live part of a page, which stops while the page is hidden
for (const box of document.querySelectorAll("[data-refresh]")) {
  box.closest("[hidden]").hidden = false;
  box.checked = localStorage.getItem("refresh") !== "off";
  box.addEventListener("change", () => {
    localStorage.setItem("refresh", box.checked ? "on" : "off");
  });
  setInterval(() => {
    const live = document.getElementById("live");
    const isReading = live && live.contains(document.activeElement);
    if (!box.checked || document.hidden || !live || isReading || getSelection().toString()) return;
    htmx.ajax("GET", live.dataset.live, {target: "#live", select: "#live", swap: "outerHTML"});
  }, REFRESH_MS);
}

// The menu scrolls on narrow screens.
document.querySelector("nav a[aria-current]")?.scrollIntoView({block: "nearest", inline: "center"});

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
  form.querySelector("[data-select-all]").replaceChildren(all);
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
