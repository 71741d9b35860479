// The live socket, one for each page. It sends the log position at which the page was rendered and receives all later changes.
"use strict";
(() => {
  const body = document.body;
  if (!body.dataset.socket) return;

  const conn = document.getElementById("conn");
  const STALE_AFTER = 8000, SILENT_AFTER = 13000; // ms; the server sends its position every 5 s
  const SIGNED_OUT = 4401;
  let socket = null, position = body.dataset.at, lastAt = Date.now(), lastHeard = 0, downSince = 0;
  let tries = 0, timer = 0, nextTry = 0, watched = new Set(), refreshing = null, mustRefresh = false, heldFor = 0;

  const regions = () => [...document.querySelectorAll("[data-region]")];
  const names = () => new Set([...regions().map((e) => e.dataset.region), ...[...document.querySelectorAll("[data-cells]")].map((e) => e.dataset.cells)]);

  // -- status display ---------------------------------------------------------------------------------------------------------
  const LABEL = { live: "Live", reconnecting: "Reconnecting", stale: "Stale since" };
  const show = () => {
    const isPast = body.hasAttribute("data-past");
    const isOpen = socket?.readyState === WebSocket.OPEN;
    const state = isOpen && !heldFor ? "live" : Date.now() - (downSince || Date.now()) > STALE_AFTER || heldFor ? "stale" : "reconnecting";
    const time = berth.times.clock(new Date(lastAt));
    conn.className = `conn st ${state}`;
    conn.querySelector("[data-conn]").textContent = isPast && state === "live" ? "Connected" : LABEL[state];
    conn.querySelector("[data-conn-at]").textContent = `${time} ${berth.times.zoneName}`;
    conn.querySelector("[data-conn-at]").dateTime = new Date(lastAt).toISOString();
    conn.title = isOpen ? `Connected. Last change ${time} ${berth.times.zoneName}, position ${position}` : "Not connected. Press to try now";
    banner(state, time);
  };
  const banner = (state, time) => {
    let bar = document.getElementById("stale");
    if (state !== "stale") return bar?.remove();
    if (!bar) {
      document.querySelector(".top").insertAdjacentHTML("afterend", '<div class="past stale" id="stale" role="status"><b></b><span></span><button type="button" class="lnk">Try now</button></div>');
      bar = document.getElementById("stale");
      bar.querySelector("button").addEventListener("click", () => connect(true));
    }
    const wait = Math.max(0, Math.ceil((nextTry - Date.now()) / 1000));
    const text = heldFor
      ? "A transaction in the database holds the log back. Numbers are looked up again every 5 s."
      : `Numbers are from then. ${wait ? `Next try in ${wait} s` : "Trying now"}; what you typed stays.`;
    if (bar.querySelector("b").textContent !== `Stale since ${time}`) bar.querySelector("b").textContent = `Stale since ${time}`;
    if (bar.querySelector("span").textContent !== text) bar.querySelector("span").textContent = text;
    bar.querySelector("button").hidden = heldFor > 0;
  };

  // -- the connection -------------------------------------------------------------------------------------------------------------
  const connect = (now = false) => {
    clearTimeout(timer);
    if (socket && socket.readyState <= WebSocket.OPEN) {
      if (!now) return;
      socket.onclose = null;
      socket.close();
    }
    if (now) tries = 0;
    nextTry = 0;
    const opened = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${body.dataset.socket}`);
    socket = opened;
    opened.onmessage = (event) => hear(JSON.parse(event.data));
    opened.onclose = (event) => {
      if (socket === opened) lost(event.code);
    };
    show();
  };
  const lost = (code) => {
    downSince ||= Date.now();
    watched = new Set();
    if (code === SIGNED_OUT) return signedOut();
    const pause = Math.min(15000, 400 * 2 ** tries) * (0.7 + Math.random() * 0.6);
    tries += 1;
    nextTry = Date.now() + pause;
    timer = setTimeout(connect, pause);
    show();
  };
  const signedOut = () => {
    const next = encodeURIComponent(location.pathname + location.search);
    location.assign(`/login/?next=${next}`);
  };
  const say = (message) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));

  // Opened panels add and remove regions; each region is watched from the position at which it was rendered.
  const watch = () => {
    if (socket?.readyState !== WebSocket.OPEN || body.hasAttribute("data-past")) return;
    const wanted = names();
    const fresh = [...wanted].filter((n) => !watched.has(n)), left = [...watched].filter((n) => !wanted.has(n));
    if (left.length) say({ unwatch: left });
    const byPosition = new Map();
    for (const name of fresh) {
      const element = document.querySelector(`[data-region="${CSS.escape(name)}"][data-at]`);
      const at = element && !element.dataset.seen ? element.dataset.at : position;
      if (element) element.dataset.seen = "1";
      byPosition.set(at, [...(byPosition.get(at) || []), name]);
    }
    for (const [after, list] of byPosition) say({ watch: list, after });
    watched = wanted;
  };

  // -- messages --------------------------------------------------------------------------------------------------------------
  const hear = (message) => {
    lastHeard = Date.now();
    if (message.hello) return hello(message.hello);
    if (message.at) return told(message);
    if (message.reload) return refresh();
    lastAt = Date.now();
    if (message.region) swap(message.region, message.html);
    if (message.cells) cells(message.set);
    if (message.gone) refresh();
    show();
  };
  const hello = (build) => {
    tries = 0;
    downSince = 0;
    if (build !== body.dataset.build && !berth.isBusy?.()) return location.reload();
    if (mustRefresh) refresh();
    else watch();
    show();
  };
  const told = (message) => {
    position = message.at;
    heldFor = message.held || 0;
    berth.times.setServerTime(message.now);
    if (!heldFor) lastAt = Date.now();
    show();
  };
  const swap = (name, html) => {
    for (const element of regions()) if (element.dataset.region === name) berth.morph(element, html);
    watch();
  };
  const cells = (set) => {
    for (const [name, ids] of Object.entries(set)) {
      for (const id of ids) {
        const cell = document.getElementById(`s${id}`);
        if (!cell || cell.className === name) continue;
        cell.className = name;
        if (cell.firstElementChild) cell.replaceChildren(); // the region brings the duration
      }
    }
    document.dispatchEvent(new CustomEvent("berth:cells"));
  };

  // After a gap or a change of permissions, the server renders the page again, and the result is merged into this page.
  const refresh = () => {
    mustRefresh = true;
    refreshing ||= (async () => {
      try {
        await new Promise((r) => setTimeout(r, Math.random() * 400));
        const answer = await fetch(location.href, { headers: { "X-Requested-With": "berth" }, redirect: "manual" });
        if (answer.type === "opaqueredirect") return location.reload();
        if (!answer.ok) return answer.status < 500 ? location.reload() : setTimeout(refresh, 3000);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const newer = new Map([...page.querySelectorAll("[data-region]")].map((e) => [e.dataset.region, e]));
        const here = regions();
        if (here.some((e) => !newer.has(e.dataset.region)) && !berth.isBusy?.()) return location.reload(); // the page has changed
        for (const element of here) {
          const found = newer.get(element.dataset.region);
          if (found) berth.morph(element, found.innerHTML);
        }
        position = page.body.dataset.at || position;
        mustRefresh = false;
        watched = new Set();
        watch();
      } catch {
        setTimeout(() => mustRefresh && refresh(), 2000); // the server does not answer; the socket shows it
      } finally {
        refreshing = null;
      }
    })();
  };

  setInterval(() => {
    if (socket?.readyState === WebSocket.OPEN && lastHeard && Date.now() - lastHeard > SILENT_AFTER) socket.close(); // the connection is dead
    if (!socket || socket.readyState !== WebSocket.OPEN || heldFor) show();
  }, 1000);
  conn.addEventListener("click", () => connect(true));
  addEventListener("online", () => connect(true));
  addEventListener("pageshow", (event) => event.persisted && connect(true));
  document.addEventListener("visibilitychange", () => !document.hidden && socket?.readyState !== WebSocket.OPEN && connect(true));
  document.addEventListener("htmx:afterSettle", watch);
  berth.live = { watch, refresh, reconnect: () => connect(true), get position() { return position; } };
  connect();
})();
