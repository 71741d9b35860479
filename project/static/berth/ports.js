// The port map: one tab stop, arrows move the selection, the panel shows the selected port, and all ports of a claim are marked
// while one of them is pointed at or selected.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const grid = () => $("#port-grid");
  const selectedIn = (root) => root && $("[role=gridcell][aria-selected=true]", root);
  const cellsOf = (row) => [...row.querySelectorAll("i[id]")];
  // The column of a cell, gaps included.
  const columnOf = (cell) => [...cell.parentNode.children].indexOf(cell);

  // -- the panel ------------------------------------------------------------------------------------------------------------------
  let asked = 0, timer = 0;
  const open = async (id, isShown) => {
    const panel = $("#port-panel"), map = grid();
    if (!panel || !map) return;
    const mine = ++asked;
    try {
      const answer = await fetch(`${map.dataset.panel}${id}/`, { headers: { "X-Part": "panel" } });
      if (!answer.ok || mine !== asked) return;
      const template = document.createElement("template");
      template.innerHTML = await answer.text();
      berth.times.localise(template.content);
      panel.replaceChildren(template.content);
      if (window.htmx) htmx.process(panel);
    } catch {
      return; // the connection indicator shows the failure
    }
    const here = new URL(location.href);
    here.searchParams.set("port", id);
    history.replaceState(null, "", here);
    berth.live?.watch();
    if (isShown && matchMedia("(max-width: 1180px)").matches) panel.scrollIntoView({ block: "nearest" });
  };

  // -- trace ----------------------------------------------------------------------------------------------------------------------
  const trace = (cell) => {
    for (const other of document.querySelectorAll(".ports [data-traced]")) delete other.dataset.traced;
    const claim = cell?.dataset.c;
    if (!claim) return;
    for (const same of document.querySelectorAll(`.ports [data-c="${CSS.escape(claim)}"]`)) same.dataset.traced = "";
  };
  const readout = (cell) => {
    const line = $("[data-port-readout]");
    if (!line || !cell) return;
    const text = `${$("[role=rowheader] b", cell.parentNode).textContent} · ${cell.title}`;
    if (line.textContent !== text) line.textContent = text;
  };

  // -- selection ------------------------------------------------------------------------------------------------------------------
  const select = (cell) => {
    const map = grid();
    for (const other of map.querySelectorAll("[aria-selected=true]")) other.removeAttribute("aria-selected");
    cell.setAttribute("aria-selected", "true");
    map.setAttribute("aria-activedescendant", cell.id);
    if (cell.dataset.c) map.dataset.trace = `/claims/${cell.dataset.c}/`;
    else delete map.dataset.trace;
  };
  const pick = (cell, isPointed = false) => {
    select(cell);
    grid().focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    trace(cell);
    readout(cell);
    clearTimeout(timer);
    const id = cell.id.slice(1);
    timer = setTimeout(() => open(id, isPointed), 150); // held arrow keys send one request
  };
  const move = (map, key) => {
    const at = selectedIn(map) || $("i[id]", map);
    if (!at) return;
    const inRow = cellsOf(at.parentNode), here = inRow.indexOf(at);
    const sides = { ArrowRight: inRow[here + 1], ArrowLeft: inRow[here - 1], Home: inRow[0], End: inRow.at(-1) };
    if (key in sides) return sides[key] && pick(sides[key]);
    const step = key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
    const column = columnOf(at);
    for (let row = at.parentNode[step]; row && !row.matches(".axis"); row = row[step]) {
      const near = cellsOf(row).sort((a, b) => Math.abs(columnOf(a) - column) - Math.abs(columnOf(b) - column))[0];
      if (near) return pick(near);
    }
  };

  // The map keeps the mark of the selected port while it has the focus.
  const rest = () => trace(document.activeElement === grid() ? selectedIn(grid()) : null);
  document.addEventListener("focusout", (event) => event.target.id === "port-grid" && trace(null));
  document.addEventListener("pointerover", (event) => {
    const cell = event.target.closest?.(".ports i");
    if (cell) {
      trace(cell);
      readout(cell);
    } else if ($(".ports [data-traced]") && !event.target.closest?.(".ports")) rest();
  });
  document.addEventListener("focusin", (event) => {
    if (event.target !== grid()) return;
    const cell = selectedIn(event.target) || $("i[id]", event.target);
    if (!cell) return;
    select(cell);
    trace(cell);
    readout(cell);
  });
  document.addEventListener("click", (event) => {
    const cell = event.target.closest(".ports i[id]");
    if (cell) return pick(cell, true);
    const link = event.target.closest("a[data-goto-port]");
    const there = link && document.getElementById(`s${link.dataset.gotoPort}`);
    if (there && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      pick(there, true);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== grid()) return;
    if (["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      move(event.target, event.key);
    }
  });

  // The selection survives rendering; at first it is the port of the panel.
  const mark = () => {
    const map = grid();
    if (!map || selectedIn(map)) return;
    const id = new URL(location.href).searchParams.get("port") ?? $("[data-port]")?.dataset.port;
    const cell = id && document.getElementById(`s${id}`);
    if (cell) select(cell);
  };
  document.addEventListener("berth:changed", mark);
  mark();
  berth.ports = { pick };
})();
