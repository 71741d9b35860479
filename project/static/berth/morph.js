// Updates a part of the page to new HTML and keeps focus, selection, open details, scroll position and input.
// Rows under the pointer or the focus do not move: while a list is in use or paused, rows change in place, and the new
// order waits.
"use strict";
(() => {
  // State that belongs to this browser, not to the server.
  const KEPT = new Set([
    "open", "aria-selected", "aria-expanded", "aria-activedescendant", "tabindex", "data-held", "data-selected", "data-traced",
  ]);
  const waiting = new Map(); // list -> its newest children, applied when the pointer leaves

  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || "" : "");
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  let freeUntil = 0; // the user has just acted here and expects a change
  const isPaused = (list) => Boolean(list.closest("[data-paused]"));
  const inUse = (list) =>
    isPaused(list) || (Date.now() > freeUntil && (list.matches(":hover") || (list.contains(document.activeElement) && document.activeElement !== list)));

  // Each function returns whether a visible change occurred: only such changes are tinted.
  const attributes = (from, to) => {
    let changed = false;
    for (const { name, value } of [...to.attributes]) {
      if ((KEPT.has(name) && from.hasAttribute(name)) || from.getAttribute(name) === value) continue;
      from.setAttribute(name, value);
      changed ||= name === "class" || name === "style";
    }
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !KEPT.has(name)) from.removeAttribute(name);
    return changed;
  };

  const node = (from, to) => {
    if (from.isEqualNode(to)) return false;
    if (from.nodeType !== 1) {
      const changed = from.nodeValue !== to.nodeValue;
      if (changed) from.nodeValue = to.nodeValue;
      return changed && Boolean(from.nodeValue.trim());
    }
    from.classList.remove("new", "gone");
    const changed = attributes(from, to);
    if (from.matches("input, textarea, select")) return changed; // input stays
    if (from.dataset.keep && from.dataset.keep === to.dataset.keep) return changed; // filled by its own script
    if (from.dataset.f && from.getAttribute("datetime") === to.getAttribute("datetime") && from.dataset.t === to.dataset.t) return changed; // the clock updates it
    return children(from, to) || changed;
  };

  const children = (from, to) => {
    if (from.hasAttribute("data-list") && from.isConnected && inUse(from)) return inPlace(from, to);
    waiting.delete(from);
    let changed = false;
    const byKey = new Map();
    for (const child of from.children) if (keyOf(child)) byKey.set(keyOf(child), child);
    const later = new Set([...to.children].map(keyOf).filter(Boolean));
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = keyOf(wanted);
      let found = key ? byKey.get(key) : null;
      if (found && !same(found, wanted)) found = null;
      if (!found && !key) {
        // The next element of the same kind. Elements between are removed; if one of them is needed later, this element moves forward instead.
        let next = at;
        while (next && (keyOf(next) || !same(next, wanted))) next = next.nextSibling;
        while (next && at !== next && !later.has(keyOf(at))) {
          const stale = at;
          at = at.nextSibling;
          stale.remove();
          changed = true;
        }
        found = next;
      }
      if (!found) {
        from.insertBefore(mark(wanted.cloneNode(true), from), at);
        changed = true;
        continue;
      }
      if (found === at) at = at.nextSibling;
      else from.insertBefore(found, at);
      if (node(found, wanted)) {
        changed = true;
        if (key) tint(found, from);
      }
    }
    while (at) {
      const stale = at;
      at = at.nextSibling;
      stale.remove();
      changed = true;
    }
    return changed;
  };

  const mark = (added, list) => {
    tint(added, list);
    return added;
  };
  const tint = (element, list) => {
    if (element.nodeType !== 1 || !list.hasAttribute("data-list")) return;
    element.classList.remove("new");
    void element.offsetWidth; // so that the animation starts again
    element.classList.add("new");
  };

  // The list is in use: present rows change and keep their order.
  const inPlace = (from, to) => {
    waiting.set(from, to.cloneNode(true));
    const wanted = new Map([...to.children].filter(keyOf).map((c) => [keyOf(c), c]));
    for (const child of [...from.children]) {
      const newer = wanted.get(keyOf(child));
      if (newer) {
        if (node(child, newer)) tint(child, from);
      } else if (keyOf(child)) child.classList.add("gone");
    }
    const more = [...wanted.keys()].filter((key) => ![...from.children].some((c) => keyOf(c) === key)).length;
    from.dataset.held = more;
    return false; // its rows are tinted one by one
  };

  const release = () => {
    for (const [list, to] of [...waiting]) {
      if (list.isConnected && inUse(list)) continue;
      waiting.delete(list);
      delete list.dataset.held;
      if (list.isConnected) {
        for (const gone of list.querySelectorAll(":scope > .gone")) gone.classList.remove("gone");
        children(list, to);
        berth.times.localise(list);
      }
    }
  };
  document.addEventListener("berth:done", () => {
    freeUntil = Date.now() + 4000;
    release();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pause]");
    const part = button && document.getElementById(button.dataset.pause);
    if (!part) return;
    const is = part.toggleAttribute("data-paused");
    button.textContent = is ? "Resume" : "Pause";
    if (!is) release();
  });
  document.addEventListener("pointerout", () => requestAnimationFrame(release));
  document.addEventListener("focusout", () => requestAnimationFrame(release));

  berth.morph = (element, html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const shadow = element.cloneNode(false);
    shadow.append(template.content);
    berth.times.localise(shadow);
    const scroll = new Map([...element.querySelectorAll(".log, .scroll")].map((e) => [e, e.scrollTop]));
    children(element, shadow);
    for (const [e, top] of scroll) e.scrollTop = top;
    if (window.htmx) htmx.process(element);
    element.dispatchEvent(new CustomEvent("berth:changed", { bubbles: true }));
  };
})();
