// Members of a pool: arrows move between boxes and between rows of the dense form; the panel shows the selection; one attribute
// dims ten thousand cells; a readout instead of ten thousand tooltips.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // -- the panel ------------------------------------------------------------------------------------------------------------------
  const open = async (address, name) => {
    const panel = $("#member-panel");
    if (!panel || !address || !await berth.showPart(panel, address, "panel", "member", name)) return;
    if (matchMedia("(max-width: 1180px)").matches) panel.scrollIntoView({ block: "nearest" });
  };

  // -- boxes ----------------------------------------------------------------------------------------------------------------------
  const choose = (box) => {
    for (const other of all(".mem[aria-current]")) other.removeAttribute("aria-current");
    box.setAttribute("aria-current", "true");
    open(box.dataset.panel, box.dataset.name);
  };
  document.addEventListener("click", (event) => {
    const box = event.target.closest("a.mem");
    if (box && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      choose(box);
    }
  });
  const moveBox = (box, key) => {
    const boxes = all(".mem"), at = boxes.indexOf(box);
    const columns = boxes.filter((b) => b.offsetTop === boxes[0].offsetTop).length || 1;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
    boxes[Math.max(0, Math.min(boxes.length - 1, at + step))]?.focus();
  };

  // -- dense form -----------------------------------------------------------------------------------------------------------------
  let chosen = null, timer = 0;
  const pick = (option) => {
    for (const other of all(".heat [aria-selected=true]")) other.removeAttribute("aria-selected");
    option.setAttribute("aria-selected", "true");
    const list = option.closest(".heat");
    list.setAttribute("aria-activedescendant", option.id);
    list.focus({ preventScroll: true });
    option.scrollIntoView({ block: "nearest" });
    chosen = option;
    clearTimeout(timer);
    timer = setTimeout(() => open(option.dataset.panel, option.dataset.name), 150); // held arrow keys send one request
  };
  const moveRow = (list, key) => {
    const options = [...list.querySelectorAll("[role=option]")];
    const at = options.indexOf(list.querySelector("[aria-selected=true]"));
    const top = options[Math.max(0, at)].getBoundingClientRect();
    let next = { ArrowDown: options[at + 1], ArrowUp: options[at - 1], Home: options[0], End: options.at(-1) }[key];
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const side = options.filter((o) => {
        const r = o.getBoundingClientRect();
        return key === "ArrowRight" ? r.left > top.left + 5 : r.left < top.left - 5;
      });
      const far = (o) => Math.abs(o.getBoundingClientRect().left - top.left) * 10 + Math.abs(o.getBoundingClientRect().top - top.top);
      next = side.sort((a, b) => far(a) - far(b))[0];
    }
    if (next) pick(next);
  };
  const readout = (cell) => {
    const option = cell.closest("[role=option]"), line = $("[data-readout]");
    if (!line || !option) return;
    const word = { idle: "open" }[cell.className] || cell.className;
    line.textContent = `${option.dataset.name} · ${cell.dataset.place || [...option.querySelectorAll("i")].indexOf(cell)}: ${word}`;
  };
  document.addEventListener("pointerover", (event) => event.target.matches?.(".heat i") && readout(event.target));
  document.addEventListener("click", (event) => {
    const option = event.target.closest(".heat [role=option]");
    if (option) pick(option);
    const only = event.target.closest("button[data-hl]");
    if (only) {
      const was = only.getAttribute("aria-pressed") === "true";
      for (const other of all("button[data-hl]")) other.setAttribute("aria-pressed", other === only && !was);
      for (const heat of all(".heat")) {
        if (was) delete heat.dataset.hl;
        else heat.dataset.hl = only.dataset.hl;
      }
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || berth.isTyping(event.target)) return;
    const heat = event.target.closest?.(".heat"), box = event.target.closest?.("a.mem");
    if (heat && ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      moveRow(heat, event.key);
    } else if (box && event.key.startsWith("Arrow")) {
      event.preventDefault();
      moveBox(box, event.key);
    }
  });

  // Counts at the row's end and in the chips follow the cells.
  const recount = () => {
    const totals = {};
    for (const option of all(".heat [role=option]")) {
      let free = 0;
      for (const cell of option.querySelectorAll("i")) {
        totals[cell.className] = (totals[cell.className] || 0) + 1;
        if (cell.className === "idle") free += 1;
      }
      const end = option.querySelector("u");
      if (end && end.dataset.n !== String(free || "")) end.dataset.n = free || "";
    }
    for (const chip of all("button[data-hl] b")) chip.textContent = (totals[chip.closest("button").dataset.hl] || 0).toLocaleString("en-US");
  };
  let counting = 0;
  document.addEventListener("berth:cells", () => {
    if (!counting && $(".heat")) counting = setTimeout(() => { counting = 0; recount(); }, 500);
  });

  // -- go to a member -------------------------------------------------------------------------------------------------------------
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-goto]")) return;
    const wanted = event.target.value.trim().toLowerCase();
    if (!wanted) return;
    const found = all(".heat [role=option], .mem").find((e) => e.dataset.name.toLowerCase() === wanted)
      || all(".heat [role=option], .mem").find((e) => e.dataset.name.toLowerCase().includes(wanted));
    if (!found) return;
    found.scrollIntoView({ block: "center" });
    if (found.matches("[role=option]")) {
      for (const other of all(".heat [aria-selected=true]")) other.removeAttribute("aria-selected");
      found.setAttribute("aria-selected", "true");
      chosen = found;
    }
  });
  document.addEventListener("submit", (event) => {
    const field = event.target.querySelector?.("[data-goto]");
    if (!field) return;
    event.preventDefault();
    const box = all(".mem").find((e) => e.dataset.name.toLowerCase().includes(field.value.trim().toLowerCase()));
    if (chosen) pick(chosen);
    else if (box) choose(box);
  });

  // The selection, which survives rendering; at first the member that the page selected.
  const mark = () => {
    const name = new URL(location.href).searchParams.get("member") ?? document.querySelector("[data-chosen]")?.dataset.chosen;
    for (const box of all(".mem")) {
      if (box.dataset.name === name) box.setAttribute("aria-current", "true");
      else box.removeAttribute("aria-current");
    }
  };
  document.addEventListener("berth:changed", mark);
  mark();
  berth.members = { pick };
})();
