// Events as of a moment: the time track, and a field with the browser's local time.
"use strict";
(() => {
  const form = document.querySelector("[data-asof]");
  if (!form) return;
  const local = form.querySelector("[name=local]"), at = form.querySelector("[name=at]"), track = form.querySelector("[data-track]");
  const now = Date.parse(form.dataset.now);
  const show = (moment) => {
    local.value = berth.times.toLocalInput(moment);
    at.value = new Date(moment).toISOString();
    track.setAttribute("aria-valuetext", `${berth.times.say(moment, "moment")} ${berth.times.zoneName}`);
  };
  show(Date.parse(local.dataset.utc));
  local.addEventListener("input", () => {
    const moment = new Date(local.value).getTime();
    if (!Number.isNaN(moment)) at.value = new Date(moment).toISOString();
  });
  track.addEventListener("input", () => show(now - (1440 - track.valueAsNumber) * 60000));
  track.addEventListener("change", () => form.requestSubmit());
  form.addEventListener("submit", () => { local.disabled = true; }); // the address contains the moment in UTC only
})();
