// The command palette: the server searches for the typed text; arrows select, Enter opens a page or a dialog.
"use strict";
(() => {
  const palette = document.getElementById("palette");
  if (!palette) return;
  const input = palette.querySelector("input"), list = palette.querySelector("[role=listbox]"), said = palette.querySelector("[data-search-said]");
  let asked = 0, timer = 0, looking = null; // looking: the pending search

  const options = () => [...list.querySelectorAll("[role=option]")];
  const current = () => list.querySelector("[aria-selected=true]");
  const choose = (option) => {
    for (const other of options()) other.setAttribute("aria-selected", other === option);
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const look = async () => {
    const mine = ++asked;
    try {
      const answer = await fetch(`${input.dataset.search}?q=${encodeURIComponent(input.value)}`, { headers: { "X-Part": "palette" } });
      if (mine !== asked) return;
      list.innerHTML = answer.ok ? await answer.text() : "";
      said.textContent = answer.ok ? "" : "The server does not answer.";
    } catch {
      said.textContent = "The server does not answer.";
    }
    choose(options()[0]);
  };
  const go = (option, inNewTab) => {
    if (!option) return;
    const href = option.dataset.href;
    if (inNewTab) return window.open(href, "_blank");
    palette.close();
    if ("question" in option.dataset) berth.ask(href, document.body);
    else location.assign(href);
  };

  const soon = () => {
    clearTimeout(timer);
    looking = new Promise((done) => {
      timer = setTimeout(() => look().finally(done), 90);
    });
  };
  input.addEventListener("input", soon);
  input.addEventListener("keydown", (event) => {
    const all = options(), at = all.indexOf(current());
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      choose(all[(at + step + all.length) % all.length]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const inNewTab = event.ctrlKey || event.metaKey;
      Promise.resolve(looking).then(() => palette.open && go(current(), inNewTab)); // Enter waits for the results of the typed text
    }
  });
  list.addEventListener("pointermove", (event) => {
    const option = event.target.closest("[role=option]");
    if (option && option !== current()) choose(option);
  });
  list.addEventListener("click", (event) => go(event.target.closest("[role=option]"), event.ctrlKey || event.metaKey));
  new MutationObserver(() => {
    if (!palette.open) return;
    input.value = "";
    list.replaceChildren();
    looking = look();
    input.focus();
  }).observe(palette, { attributes: true, attributeFilter: ["open"] });
})();
