// Shows times in the browser's time zone and counts durations. The title of a <time> stays exact UTC.
// data-f selects the format: clock, day, moment, date (fixed), ago, for, left (counting), brief, brief-left (for cells).
"use strict";
window.berth = window.berth || {};
(() => {
  const locale = undefined; // the browser's
  const two = (n) => String(n).padStart(2, "0");
  const zoneName = (() => {
    const part = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(new Date()).find((p) => p.type === "timeZoneName");
    return part ? part.value : "";
  })();
  let skew = 0; // ms that the server's clock is ahead of the browser's

  const now = () => Date.now() + skew;
  const clock = (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  const date = (d) => d.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  const sameDay = (a, b) => a.toDateString() === b.toDateString();

  // The same rules as project/kernel/ui/formatting.py.
  const pair = (big, unit, small, sub) => (small ? `${big} ${unit} ${small} ${sub}` : `${big} ${unit}`);
  const duration = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return pair(Math.floor(s / 60), "min", s % 60, "s");
    if (s < 86400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
    return pair(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
  };
  const brief = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 86400) return `${Math.floor(s / 3600)}:${two(Math.floor((s % 3600) / 60))}`;
    return `${Math.floor(s / 86400)} d`;
  };
  const coarse = (seconds) => duration(seconds).split(" ").slice(0, 2).join(" ");

  const say = (at, form) => {
    const moment = new Date(at), today = new Date(now()), age = (now() - at) / 1000;
    switch (form) {
      case "ago": return age < 1 ? "now" : `${coarse(age)} ago`;
      case "for": return duration(age);
      case "left": return duration(-age);
      case "brief": return brief(age);
      case "brief-left": return brief(-age);
      case "date": return date(moment);
      case "hour": return `${sameDay(moment, today) ? "" : `${moment.toLocaleDateString("en-GB", { weekday: "short" })} `}${clock(moment).slice(0, 5)}`;
      case "moment": return `${date(moment)}, ${clock(moment)}`;
      case "day":
        if (sameDay(moment, today)) return clock(moment);
        return Math.abs(age) < 6 * 86400
          ? `${moment.toLocaleDateString("en-GB", { weekday: "short" })} ${clock(moment)}`
          : `${moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${clock(moment).slice(0, 5)}`;
      default: return clock(moment);
    }
  };
  const COUNTING = new Set(["ago", "for", "left", "brief", "brief-left"]);

  const show = (element) => {
    const at = Date.parse(element.dateTime || element.dataset.t);
    if (Number.isNaN(at)) return;
    const text = say(at, element.dataset.f);
    if (element.textContent !== text) element.textContent = text;
  };
  const localise = (root = document) => {
    for (const element of root.querySelectorAll("[data-f]")) show(element);
    for (const element of root.querySelectorAll("[data-zone]")) if (element.textContent !== zoneName) element.textContent = zoneName;
  };
  const tick = () => {
    if (document.hidden || document.body.hasAttribute("data-past")) return;
    for (const element of document.querySelectorAll("[data-f]")) if (COUNTING.has(element.dataset.f)) show(element);
  };

  berth.times = {
    localise, duration, clock, say, zoneName,
    setServerTime(ms) { skew = Math.abs(ms - Date.now()) > 1500 ? ms - Date.now() : 0; },
    toLocalInput(at) { const d = new Date(at); return new Date(at - d.getTimezoneOffset() * 60000).toISOString().slice(0, 19); },
  };
  localise();
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", () => tick());
})();
