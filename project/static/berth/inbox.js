// Approvals: the plan of the clicked or focused row is shown beside the list.
"use strict";
(() => {
  const panel = document.getElementById("peek");
  if (!panel) return;
  const rows = () => [...document.querySelectorAll("[data-peek]")];
  let shown = new URL(location.href).searchParams.get("claim") || rows()[0]?.dataset.key || "", timer = 0;

  const isThere = () => getComputedStyle(panel).display !== "none";
  const mark = () => {
    for (const row of rows()) {
      if (row.dataset.key === shown && isThere()) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  };
  const open = (row) => {
    if (shown === row.dataset.key) return;
    shown = row.dataset.key;
    mark();
    berth.showPart(panel, row.dataset.peek, "peek", "claim", shown);
  };
  // Runs before the list opens the clicked row: a click shows the plan beside the list, and a click on its name opens the page.
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-peek]");
    if (!row || event.target.closest("a, button, input, label") || !isThere()) return;
    event.stopImmediatePropagation();
    open(row);
  }, true);
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("[data-peek]");
    if (!row || event.target !== row || !isThere()) return;
    clearTimeout(timer);
    timer = setTimeout(() => open(row), 200); // a held key sends one request
  });
  document.addEventListener("berth:changed", mark);
  mark();
})();
