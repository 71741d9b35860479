// A plan: details are loaded when opened, long lists by page; the search covers the whole plan.
"use strict";
(() => {
  const get = async (address) => {
    const answer = await fetch(address, { headers: { "X-Part": "plan" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const template = document.createElement("template");
    template.innerHTML = await answer.text();
    return template.content;
  };
  const load = async (details) => {
    const address = details.dataset.load, into = details.querySelector("[data-into]");
    if (!address || !into || details.dataset.loading) return;
    details.dataset.loading = "1";
    try {
      into.replaceChildren(await get(address));
      delete details.dataset.load;
    } catch {
      into.textContent = "This part could not be loaded. Close it and open it again.";
    } finally {
      delete details.dataset.loading;
    }
  };
  document.addEventListener("toggle", (event) => event.target.matches?.("details[data-load]") && event.target.open && load(event.target), true);

  document.addEventListener("click", async (event) => {
    const more = event.target.closest("[data-more]");
    if (more && !more.dataset.loading) {
      more.dataset.loading = "1";
      try {
        const found = await get(more.dataset.more);
        const first = found.querySelector("summary, button"), item = more.closest("li");
        item.replaceWith(found);
        first?.focus({ preventScroll: true });
      } catch {
        delete more.dataset.loading;
        more.textContent = "Loading failed: try again";
      }
    }
    const all = event.target.closest("[data-expand]");
    if (all) {
      const open = all.dataset.expand === "open";
      const list = [...document.querySelectorAll("[data-plan-list] details")].filter((d) => d.open !== open);
      for (const details of open ? list.slice(0, 100) : list) details.open = open;
      all.dataset.expand = open ? "close" : "open";
      all.textContent = open ? "Close all" : "Expand all";
    }
  });

  // An empty search restores the list.
  let timer = 0, asked = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-plan-search]")) return;
    clearTimeout(timer);
    const field = event.target, root = field.closest("[data-plan]");
    const list = root.querySelector("[data-plan-list]"), found = root.querySelector("[data-plan-found]");
    timer = setTimeout(async () => {
      const text = field.value.trim(), mine = ++asked;
      if (!text) {
        found.replaceChildren();
        found.hidden = true;
        list.hidden = false;
        return;
      }
      try {
        const content = await get(`${field.dataset.planSearch}?${new URLSearchParams({ q: text })}`);
        if (mine !== asked) return;
        found.replaceChildren(content);
        found.hidden = false;
        list.hidden = true;
      } catch {
        berth.say("The search failed. Change the text to try again.", "failed");
      }
    }, 200);
  });
  document.addEventListener("submit", (event) => event.target.matches("[data-plan-form]") && event.preventDefault());
})();
