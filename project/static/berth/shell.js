// Parts of every page: theme, menu, confirmation dialogs, notices, keyboard shortcuts.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const on = (type, listener, capture = false) => document.addEventListener(type, listener, capture);

  // -- theme: follow the system, light, dark --------------------------------------------------------------------------------------
  const marks = () => {
    const chosen = document.documentElement.dataset.theme || "auto";
    for (const button of document.querySelectorAll("[data-theme-set]")) button.setAttribute("aria-pressed", button.dataset.themeSet === chosen);
  };
  on("click", (event) => {
    const button = event.target.closest("[data-theme-set]");
    if (!button) return;
    const chosen = button.dataset.themeSet;
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    try {
      if (chosen === "auto") localStorage.removeItem("theme");
      else localStorage.setItem("theme", chosen);
    } catch {
      // Without storage, the choice holds for this page only.
    }
    marks();
  });
  marks();

  // -- a disabled button shows its reason -----------------------------------------------------------------------------
  on("click", (event) => {
    if (event.target.closest("[aria-disabled=true]")) {
      event.preventDefault();
      event.stopPropagation();
    }
  }, true);

  // -- dialogs --------------------------------------------------------------------------------------------------------------------
  const dialog = document.getElementById("dialog");
  let opener = null;
  const openDialog = (element) => {
    if (element && !element.open) {
      for (const other of document.querySelectorAll("dialog[open]")) other.close();
      element.showModal();
    }
  };
  const ask = async (address, from) => {
    opener = from || document.activeElement;
    try {
      await htmx.ajax("GET", address, { target: "#dialog", swap: "innerHTML" });
    } catch {
      return;
    }
    if (dialog.firstElementChild) {
      openDialog(dialog);
      guard($("form", dialog));
      ($("[autofocus]", dialog) || $("textarea, input:not([type=hidden])", dialog) || dialog).focus();
    }
  };
  on("click", (event) => {
    const asks = event.target.closest("a[data-dialog], button[data-dialog]");
    if (asks && dialog && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      ask(asks.dataset.dialog || asks.href, asks);
    }
    const opens = event.target.closest("[data-open]");
    if (opens) openDialog(document.getElementById(opens.dataset.open));
    const closes = event.target.closest("[data-close]");
    if (closes && closes.closest("dialog")) {
      event.preventDefault();
      closes.closest("dialog").close();
    }
    if (event.target.matches("dialog[open]")) event.target.close(); // its backdrop
  });
  dialog?.addEventListener("close", () => {
    dialog.replaceChildren();
    if (opener?.isConnected) opener.focus();
  });

  // The buttons of a form are disabled, with a reason, until their required fields are filled.
  const isFilled = (field) => (field.type === "checkbox" ? field.checked : Boolean(field.value.trim()));
  const guard = (form) => {
    const whys = [];
    for (const button of form?.querySelectorAll("[data-guarded]") || []) {
      const missing = [];
      for (const field of form.querySelectorAll("[data-needed]")) {
        const isIts = !field.dataset.neededBy || field.dataset.neededBy === button.dataset.guarded;
        if (isIts && !isFilled(field)) missing.push(field.dataset.needed);
      }
      const typed = $("[data-confirm]", form);
      if (typed && typed.value !== typed.dataset.confirm) missing.push("type the name");
      const text = missing.join(" and ");
      const why = button.dataset.off || (text && `${text[0].toUpperCase()}${text.slice(1)}.`);
      if (why) {
        button.setAttribute("aria-disabled", "true");
        button.dataset.why = why;
        whys.push([button.dataset.word || button.textContent, `${why[0].toLowerCase()}${why.slice(1)}`]);
      } else {
        button.removeAttribute("aria-disabled");
        delete button.dataset.why;
      }
    }
    const said = form && $("[data-whys]", form);
    const isSame = whys.length > 1 && whys.every(([, why]) => why === whys[0][1]); // said once
    const words = isSame ? `${whys.map(([word]) => word).join(" and ")}: ${whys[0][1]}` : whys.map((pair) => pair.join(": ")).join(" ");
    if (said && said.textContent !== words) said.textContent = words;
  };
  const guardAll = (root) => {
    for (const form of root.querySelectorAll("form")) guard(form);
  };
  on("input", (event) => guard(event.target.closest("form")));
  guardAll(document);
  on("berth:changed", (event) => guardAll(event.target));
  on("submit", (event) => {
    const by = event.submitter || $("[data-guarded]", event.target);
    if (by?.matches("[data-guarded][aria-disabled=true]")) {
      event.preventDefault();
      event.stopPropagation();
    }
  }, true);
  on("htmx:afterSwap", (event) => {
    if (event.target.id !== "dialog") return;
    berth.times.localise(dialog);
    guard($("form", dialog));
    ($("[aria-invalid=true]", dialog) || $("[role=alert]", dialog))?.focus();
  });

  // -- notices --------------------------------------------------------------------------------------------------------------
  const notices = document.getElementById("notices");
  const say = (text, kind = "done") => {
    if (!notices) return;
    const note = document.createElement("p");
    note.className = `note ${kind}`;
    note.textContent = text;
    notices.replaceChildren(note);
    setTimeout(() => note.matches(":hover") || note.remove(), 12000);
  };
  on("berth:done", (event) => {
    if (dialog?.open) dialog.close();
    if (event.detail?.say) say(event.detail.say);
    berth.lists?.clear();
  });
  on("htmx:responseError", (event) => say(`The server answers ${event.detail.xhr.status}. Nothing was changed; try again.`, "failed"));
  on("htmx:sendError", () => say("The server does not answer. It is unknown whether the change was made; check when this page is live again.", "failed"));

  on("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const code = button.dataset.copy ? document.getElementById(button.dataset.copy) : $("code", button.parentNode);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl C";
    }
  });

  // On a narrow screen the bar scrolls to the present page.
  $(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

  // -- menu -----------------------------------------------------------------------------------------------------------------------
  on("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target) || event.target.closest(".menu > div [data-open], [data-theme-set]")) menu.open = false;
    }
  });

  // -- keys -----------------------------------------------------------------------------------------------------------------------
  let going = 0;
  const isTyping = (target) => target.matches("input:not([type=checkbox], [type=radio], [type=range]), textarea, select, [contenteditable]");
  const nextAttention = () => {
    const all = [...document.querySelectorAll("[data-attention]")].filter((e) => e.checkVisibility?.() ?? true);
    if (!all.length) return say("Nothing here needs attention.");
    const at = all.findIndex((e) => e === document.activeElement || e.contains(document.activeElement) || e.getAttribute("aria-selected") === "true");
    const next = all[(at + 1) % all.length];
    next.scrollIntoView({ block: "nearest" });
    if (next.matches("[role=option]")) berth.members?.pick(next);
    else if (next.matches("[role=gridcell]")) berth.ports?.pick(next);
    else next.focus();
  };
  const KEYS = {
    "?": () => openDialog(document.getElementById("help")),
    "/": () => {
      const field = $('[aria-keyshortcuts="/"]');
      field?.focus();
      field?.select?.();
    },
    n: nextAttention,
    t: () => {
      const from = document.activeElement?.closest("[data-trace]") || $("main [data-trace]");
      if (from?.dataset.trace) location.assign(from.dataset.trace);
    },
  };
  on("keydown", (event) => {
    const command = event.ctrlKey || event.metaKey;
    if (command && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return openDialog(document.getElementById("palette"));
    }
    if (command && event.key === "Enter") {
      const form = event.target.closest("dialog[open] form");
      const button = form && $("[data-guarded]", form);
      if (button) button.click();
      return;
    }
    if (command || event.altKey || isTyping(event.target) || $("dialog[open]")) return;
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) {
        if (menu.contains(document.activeElement)) $("summary", menu).focus(); // the focus stays in the page
        menu.open = false;
      }
    }
    if (Date.now() - going < 900) {
      const link = { o: "overview", c: "claims", a: "approvals", s: "scaling", e: "events" }[event.key];
      going = 0;
      const target = link && $(`.nav [data-go="${link}"]`);
      if (target) {
        event.preventDefault();
        return target.click();
      }
    }
    if (event.key === "g") {
      going = Date.now();
      return;
    }
    const act = KEYS[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  // Shows a part of a page in the panel beside a list, and names the chosen row in the address. The last call wins.
  let asked = 0;
  const showPart = async (panel, address, part, field, chosen) => {
    const mine = ++asked;
    try {
      const answer = await fetch(address, { headers: { "X-Part": part } });
      if (!answer.ok || mine !== asked) return false;
      const template = document.createElement("template");
      template.innerHTML = await answer.text();
      berth.times.localise(template.content);
      panel.replaceChildren(template.content);
      if (window.htmx) htmx.process(panel);
      guardAll(panel);
    } catch {
      return false; // the connection indicator shows the failure
    }
    const here = new URL(location.href);
    here.searchParams.set(field, chosen);
    history.replaceState(null, "", here);
    berth.live?.watch();
    return true;
  };

  berth.say = say;
  berth.showPart = showPart;
  berth.ask = ask;
  berth.openDialog = openDialog;
  berth.isTyping = isTyping;
  // Whether the user has input or an open dialog that a reload would lose.
  berth.isBusy = () => Boolean($("dialog[open]")) || [...document.querySelectorAll("main textarea, main input[type=text]")].some((f) => f.value !== f.defaultValue);
})();
