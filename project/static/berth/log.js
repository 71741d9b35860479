// The log of a run. The page contains only the visible rows, for any number of lines; lines are text, never HTML.
// The end is loaded first, the rest after a click, a search or a scroll. While the run goes on, the script requests more.
"use strict";
(() => {
  const box = document.querySelector("[data-log]");
  if (!box) return;
  const $ = (selector) => box.querySelector(selector);
  const view = $("[data-log-view]"), space = $("[data-log-space]"), list = $("[data-log-rows]"), said = $("[data-log-said]");
  const find = $("[data-log-find]"), hits = $("[data-log-hits]"), follow = $("[data-log-follow]"), download = $("[data-log-download]");
  const SHORT = 12, TAIL = 300, PAUSE = 250, WAIT = 20, SPARE = 12, LONGEST = 8000; // lines, lines, ms, seconds, rows, characters of a line that are shown
  const { parse, strip, settle, PLAIN, isPlain } = berth.ansi;

  let run = null; // the shown run: {generation, lines, first, styles, gaps, from, next, isWhole, isLive, isOpen}
  let rowHeight = 20, timer = 0, found = [], following = null, at = -1, needle = "", drawn = "", loading = null, isJumping = false;

  const tabs = () => [...document.querySelectorAll("[data-run]")];
  const number = (n) => n.toLocaleString("en-US");
  const address = (query) => `${box.dataset.base}${run.generation}/log/?${query}`;

  // -- lines ------------------------------------------------------------------------------------------------------------------
  // `first`: the number of the first line that is loaded. A chunk may end in the middle of a line, and the next chunk continues the line.
  const fresh = (generation) => ({ generation, lines: [], first: 0, styles: new Map(), gaps: new Map(), style: PLAIN, from: null, next: -1, isWhole: false, isOpen: false, chunks: [] });
  const append = (state, chunk) => {
    if (!state.chunks.length) {
      state.first = chunk.first_line;
      state.from = chunk.seq;
    }
    state.chunks.push(chunk);
    if (chunk.left_out) {
      state.isOpen = false;
      state.gaps.set(state.lines.length, chunk.left_out);
      push(state, "");
    }
    const parts = chunk.text.split("\n");
    const ends = parts.at(-1) === "";
    if (ends) parts.pop();
    for (const [i, part] of parts.entries()) {
      if (i === 0 && state.isOpen) {
        const last = state.lines.length - 1;
        const whole = state.lines.pop() + part;
        state.style = state.styles.get(last) || PLAIN;
        push(state, whole, false);
      } else push(state, part);
    }
    state.isOpen = !ends;
    state.next = chunk.seq;
  };
  const push = (state, line) => {
    const index = state.lines.length;
    if (isPlain(state.style)) state.styles.delete(index);
    else state.styles.set(index, state.style);
    state.lines.push(line);
    if (line.includes("\u001b")) state.style = parse(line, state.style).style;
  };
  // Omitted lines are shown as one row without a number.
  const numberOf = (index) => {
    let gaps = 0;
    for (const gap of run.gaps.keys()) if (gap < index) gaps += 1;
    return run.first + index + 1 - gaps;
  };

  // -- loading ----------------------------------------------------------------------------------------------------------------
  // Requests the pieces after the known ones. With `wait` the server holds the request until there is output.
  const ask = async (state, query, signal) => {
    const told = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, name === "after" ? value + 1 : value]));
    const answer = await fetch(`${box.dataset.base}${state.generation}/log/?${told}`, { headers: { Accept: "application/json" }, signal });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  };
  const open = async (generation) => {
    clearTimeout(timer);
    following?.abort();
    const state = run = fresh(generation);
    list.replaceChildren();
    drawn = "";
    mark();
    try {
      take(state, await ask(state, { tail: TAIL }));
    } catch (error) {
      return failed(state, error);
    }
    if (run !== state) return;
    follow.checked = true;
    draw();
    toEnd();
    if (needle) await search();
    again();
  };
  const take = (state, page) => {
    for (const chunk of page.chunks) if (chunk.seq > state.next) append(state, chunk);
    state.isWhole = page.is_whole;
    state.lineCount = page.lines;
    state.leftOut = page.left_out;
  };
  const again = () => {
    clearTimeout(timer);
    if (run && !run.isWhole) timer = setTimeout(more, PAUSE);
  };
  const more = async () => {
    const state = run;
    following?.abort();
    if (!state || state.isWhole || document.hidden) return; // loading continues when the page is visible
    const mine = (following = new AbortController());
    try {
      const before = state.lines.length, open = state.isOpen;
      let page;
      do {
        page = await ask(state, { after: state.next, wait: WAIT }, mine.signal);
        if (run !== state) return;
        take(state, page);
      } while (page.chunks.length && page.more);
      if (state.lines.length !== before || open) grown(before);
      else tell();
    } catch (error) {
      return mine.signal.aborted ? undefined : failed(state, error);
    }
    again();
  };
  const failed = (state, error) => {
    if (run !== state) return;
    said.textContent = error.message === "404" ? "The log is no longer available." : "The log could not be loaded. Trying again.";
    if (error.message !== "404") timer = setTimeout(() => (run.chunks.length ? more() : open(run.generation)), 3000);
  };
  // Loads all lines before the loaded part. The scroll position stays.
  const whole = () => {
    const state = run;
    if (!state || !state.chunks.length || state.from <= 0) return Promise.resolve();
    loading ||= (async () => {
      const chunks = [];
      let after = -1;
      try {
        while (after < state.from - 1) {
          const page = await ask(state, { after });
          if (run !== state) return;
          const wanted = page.chunks.filter((chunk) => chunk.seq < state.from);
          chunks.push(...wanted);
          if (!wanted.length) break;
          after = wanted.at(-1).seq;
          said.textContent = `Loading line ${number(wanted.at(-1).first_line)}…`;
        }
        const newer = state.chunks, before = state.lines.length;
        Object.assign(state, { lines: [], styles: new Map(), gaps: new Map(), style: PLAIN, chunks: [], isOpen: false, next: -1 });
        for (const chunk of [...chunks, ...newer]) append(state, chunk);
        const top = view.scrollTop;
        draw();
        view.scrollTop = follow.checked ? view.scrollHeight : top + (state.lines.length - before) * rowHeight;
        draw();
      } catch (error) {
        failed(state, error);
      } finally {
        loading = null;
      }
    })();
    return loading;
  };

  // -- rows -------------------------------------------------------------------------------------------------------------------
  const span = (text, css) => {
    if (!css) return document.createTextNode(text);
    const element = document.createElement("span");
    element.className = css;
    element.textContent = text;
    return element;
  };
  const pieces = (text, css, isHit) => {
    if (!needle) return [span(text, css)];
    const parts = [];
    const low = text.toLowerCase();
    let from = 0;
    for (let i = low.indexOf(needle); i >= 0; i = low.indexOf(needle, from)) {
      if (i > from) parts.push(span(text.slice(from, i), css));
      const hit = document.createElement("mark");
      if (isHit) hit.className = "at";
      hit.textContent = text.slice(i, i + needle.length);
      parts.push(hit);
      from = i + needle.length;
    }
    if (from < text.length) parts.push(span(text.slice(from), css));
    return parts;
  };
  const row = (index) => {
    const element = document.createElement("div");
    if (run.gaps.has(index)) {
      element.className = "cut";
      element.textContent = `${number(run.gaps.get(index))} bytes left out here: the pool keeps the beginning and the end`;
      return element;
    }
    const label = document.createElement("b");
    label.textContent = number(numberOf(index));
    const text = document.createElement("code");
    let line = settle(run.lines[index]);
    const cut = line.length - LONGEST;
    if (cut > 0) line = line.slice(0, LONGEST);
    const isHit = at >= 0 && found[at] === index;
    for (const [piece, css] of parse(line, run.styles.get(index) || PLAIN).pieces) text.append(...pieces(piece, css, isHit));
    if (cut > 0) text.append(span(` … ${number(cut)} more characters, in the download`, "t-dim"));
    if (isHit) element.className = "hit";
    element.append(label, text);
    return element;
  };
  const draw = () => {
    if (!run) return;
    const total = run.lines.length;
    const top = Math.max(0, Math.floor(view.scrollTop / rowHeight) - SPARE);
    const end = Math.min(total, Math.ceil((view.scrollTop + view.clientHeight) / rowHeight) + SPARE);
    const key = [run.generation, run.chunks.length, run.from, top, end, needle, at, total, run.lines[total - 1]?.length].join();
    if (key !== drawn) {
      drawn = key;
      space.style.height = `${total * rowHeight}px`;
      list.style.transform = `translateY(${top * rowHeight}px)`;
      list.style.setProperty("--digits", String(number(numberOf(Math.max(0, total - 1))).length));
      list.replaceChildren(...Array.from({ length: Math.max(0, end - top) }, (_, i) => row(top + i)));
      const height = list.firstElementChild?.getBoundingClientRect().height;
      if (height && Math.abs(height - rowHeight) > 0.5) {
        rowHeight = height;
        drawn = "";
        return draw();
      }
    }
    return tell();
  };
  const tell = () => {
    const total = run.lines.length - run.gaps.size;
    const parts = [];
    if (!total) parts.push(run.isWhole ? "No output" : "No output yet");
    else if (run.from > 0) parts.push(`last ${number(total)} of ${number(run.first + total)} lines`);
    else parts.push(`${number(total)} line${total === 1 ? "" : "s"}`);
    parts.push(run.isWhole ? "complete" : "still running");
    if (run.leftOut) parts.push(`${number(run.leftOut)} bytes left out between the beginning and the end`);
    const text = parts.join(", ");
    if (said.textContent !== text) said.textContent = text;
    const isShort = run.lines.length <= SHORT && run.from <= 0;
    view.style.height = isShort ? `${Math.max(2, run.lines.length) * rowHeight + 2}px` : "";
    $("[data-log-whole]").hidden = !run.chunks.length || isShort || (run.from <= 0 && box.hasAttribute("data-whole"));
  };
  const toEnd = () => {
    isJumping = true;
    view.scrollTop = view.scrollHeight;
    draw();
  };
  const grown = (before) => {
    if (needle) look(before);
    draw();
    if (follow.checked) toEnd();
  };

  // -- search -----------------------------------------------------------------------------------------------------------------
  const look = (from = 0) => {
    found = from ? found.filter((index) => index < from - 1) : [];
    if (!needle) return;
    for (let i = Math.max(0, from - 1); i < run.lines.length; i += 1) {
      if (!run.gaps.has(i) && strip(settle(run.lines[i])).toLowerCase().includes(needle)) found.push(i);
    }
    count();
  };
  const count = () => {
    hits.textContent = !needle ? "" : found.length ? `${at >= 0 ? `${number(at + 1)} of ` : ""}${number(found.length)}` : "no match";
    for (const button of box.querySelectorAll("[data-log-step]")) button.hidden = !needle;
  };
  const search = async () => {
    needle = find.value.trim().toLowerCase();
    at = -1;
    found = [];
    if (needle) {
      await whole();
      look();
      if (found.length) return step(found.findIndex((index) => index * rowHeight >= view.scrollTop - rowHeight), true);
    }
    count();
    draw();
  };
  const step = (by, isExact = false) => {
    if (!found.length) return;
    at = isExact ? Math.max(0, by) : (at + by + found.length) % found.length;
    follow.checked = false;
    isJumping = true;
    view.scrollTop = Math.max(0, found[at] * rowHeight - view.clientHeight / 2);
    count();
    draw();
  };
  let typing = 0;
  find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 200);
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && find.value) {
      find.value = "";
      search();
    }
  });
  box.addEventListener("submit", (event) => event.preventDefault());

  // -- controls ---------------------------------------------------------------------------------------------------------
  let frame = 0;
  view.addEventListener("scroll", () => {
    const isEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - rowHeight;
    if (isJumping) isJumping = false;
    else if (follow.checked !== isEnd) follow.checked = isEnd; // scrolling up stops following; the end resumes it
    if (view.scrollTop < rowHeight && run?.from > 0 && !follow.checked) whole();
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  }, { passive: true });
  follow.addEventListener("change", () => follow.checked && toEnd());
  box.addEventListener("click", (event) => {
    const by = event.target.closest("[data-log-step]");
    if (by) step(Number(by.dataset.logStep));
    if (event.target.closest("[data-log-whole]")) {
      box.setAttribute("data-whole", "");
      whole().then(() => {
        draw();
        view.focus({ preventScroll: true });
      });
    }
  });
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-run]");
    if (tab) open(tab.dataset.run);
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[data-run]");
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!tab || !by) return;
    event.preventDefault();
    const all = tabs(), next = all[(all.indexOf(tab) + by + all.length) % all.length];
    open(next.dataset.run);
    next.focus();
  });

  // The shown run. A new run replaces the followed one.
  const mark = () => {
    for (const tab of tabs()) {
      const is = run !== null && tab.dataset.run === run.generation;
      tab.setAttribute("aria-selected", is);
      tab.tabIndex = is ? 0 : -1;
      if (is) view.setAttribute("aria-label", `Log of ${tab.dataset.step}`);
    }
    if (run) download.href = address("format=text");
    box.hidden = !tabs().length;
  };
  let newest = "";
  const watch = () => {
    const all = tabs();
    const last = all.at(-1)?.dataset.run || "";
    if (!last) return mark();
    if (last !== newest && (!run || follow.checked)) open(last);
    else if (run && !run.isWhole) mark();
    else mark();
    newest = last;
  };
  document.addEventListener("berth:changed", watch);
  document.addEventListener("visibilitychange", () => (document.hidden ? following?.abort() : run?.chunks && more()));
  new ResizeObserver(() => run && draw()).observe(view);
  watch();
  berth.log = { whole, get lines() { return run?.lines.length || 0; }, get rows() { return list.childElementCount; } };
})();
