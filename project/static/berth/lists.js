// Lists of rows: one tab stop, j and k or arrows, x selects, Shift x selects a range, Enter opens. A bar shows what is selected.
// The selection is stored by key, so live changes keep it.
"use strict";
(() => {
  const selected = new Set();
  let anchor = null;

  const table = () => document.querySelector("[data-rows]");
  const rows = () => [...document.querySelectorAll("[data-rows] [data-key][tabindex]")];
  const box = (row) => row.querySelector("input[type=checkbox]");
  const at = () => rows().findIndex((row) => row === document.activeElement || row.contains(document.activeElement));

  const show = () => {
    const all = rows();
    const there = new Set(all.map((row) => row.dataset.key));
    for (const key of [...selected]) if (!there.has(key)) selected.delete(key);
    for (const row of all) {
      const is = selected.has(row.dataset.key);
      if (row.matches("tr")) row.setAttribute("aria-selected", is);
      else row.toggleAttribute("data-selected", is);
      if (box(row)) box(row).checked = is;
    }
    const whole = document.querySelector("[data-select-all]");
    if (whole) {
      whole.checked = all.length > 0 && selected.size === all.length;
      whole.indeterminate = selected.size > 0 && selected.size < all.length;
    }
    if (all.length && !all.some((row) => row.tabIndex === 0)) all[0].tabIndex = 0;
    bar(all.filter((row) => selected.has(row.dataset.key)));
  };

  const bar = (chosen) => {
    const element = document.querySelector(".bulk");
    if (!element) return;
    element.hidden = !chosen.length;
    if (!chosen.length) return;
    element.setAttribute("aria-label", `${chosen.length} selected`);
    element.querySelector("b").textContent = `${chosen.length} selected`;
    const names = chosen.map((row) => row.dataset.brief || row.dataset.name || row.dataset.key);
    element.querySelector("[data-chosen]").textContent = names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more` : "");
    for (const button of element.querySelectorAll("[data-for]")) {
      const fits = chosen.filter((row) => (row.dataset.can || "").split(" ").includes(button.dataset.for));
      button.dataset.dialog = `${button.dataset.base}?${fits.map((row) => `claim=${row.dataset.key}`).join("&")}`;
      const why = fits.length ? "" : button.dataset.none;
      if (why) {
        button.setAttribute("aria-disabled", "true");
        button.dataset.why = why;
      } else {
        button.removeAttribute("aria-disabled");
        delete button.dataset.why;
      }
      button.textContent = fits.length && chosen.length > 1 ? `${button.dataset.word} ${fits.length}…` : `${button.dataset.word}…`;
    }
  };

  const select = (row, is, isRange = false) => {
    const all = rows();
    const from = isRange && anchor ? all.findIndex((r) => r.dataset.key === anchor) : -1;
    const to = all.indexOf(row);
    const range = from < 0 ? [row] : all.slice(Math.min(from, to), Math.max(from, to) + 1);
    for (const r of range) {
      if (is) selected.add(r.dataset.key);
      else selected.delete(r.dataset.key);
    }
    anchor = row.dataset.key;
    show();
  };
  const clear = () => {
    selected.clear();
    anchor = null;
    show();
  };
  const go = (step) => {
    const all = rows(), now = at();
    if (!all.length) return;
    const next = all[now < 0 ? 0 : Math.max(0, Math.min(all.length - 1, now + step))];
    for (const row of all) row.tabIndex = row === next ? 0 : -1;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("click", (event) => {
    const whole = event.target.closest("[data-select-all]");
    if (whole) {
      for (const row of rows()) selected[whole.checked ? "add" : "delete"](row.dataset.key);
      return show();
    }
    const row = event.target.closest("[data-rows] [data-key]");
    if (!row) return;
    if (event.target.matches("input[type=checkbox]")) return select(row, event.target.checked, event.shiftKey);
    if (row.dataset.href && !event.target.closest("a, button, input, label") && !getSelection().toString()) location.assign(row.dataset.href);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || berth.isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && selected.size) return clear();
    if (!table()) return;
    const now = at();
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step && (now >= 0 || event.key.length === 1)) {
      event.preventDefault();
      return go(step);
    }
    const row = rows()[now];
    if (!row) return;
    if (event.key.toLowerCase() === "x" && box(row)) {
      event.preventDefault();
      select(row, event.shiftKey ? true : !selected.has(row.dataset.key), event.shiftKey);
    }
    if (event.key === "Enter" && row === event.target && row.dataset.href) location.assign(row.dataset.href);
  });
  document.addEventListener("berth:changed", show);
  show();
  berth.lists = { clear, selected };
})();
