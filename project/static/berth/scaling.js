// Charts of capacity, demand and use. Colours are the page's tokens; a change of theme or width redraws the charts.
"use strict";
(() => {
  const plots = new Map(); // element -> { json, list }

  // Tokens are light-dark() pairs; a canvas needs the colour of the present theme.
  const probe = document.createElement("span");
  probe.hidden = true;
  const colour = (token, alpha = 1) => {
    probe.style.color = `var(--${token})`;
    const found = getComputedStyle(probe).color;
    if (alpha === 1) return found;
    const parts = found.match(/[\d.]+/g) || ["0", "0", "0"];
    return `rgba(${parts.slice(0, 3).join(",")},${alpha})`;
  };

  const font = () => `11px ${getComputedStyle(document.body).fontFamily}`;
  const axis = (more) => ({ stroke: colour("ink3"), font: font(), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), size: 4, width: 1 }, ...more });
  // At least a minute between two ticks, because their labels show no seconds.
  const minute = 60, hour = 3600, day = 86400;
  const steps = [minute, 2 * minute, 5 * minute, 15 * minute, 30 * minute, hour, 2 * hour, 4 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day];
  const whole = (u, value) => (value == null ? "–" : String(Math.round(value)));
  const share = (u, value) => (value == null ? "–" : `${value.toFixed(1)} %`);
  const two = (n) => String(n).padStart(2, "0");
  const moment = (u, seconds) => {
    if (seconds == null) return "–";
    const at = new Date(seconds * 1000);
    return `${at.toLocaleDateString("en-GB", { weekday: "short" })} ${two(at.getHours())}:${two(at.getMinutes())}`;
  };
  const clocks = (u, values) => values.map((v) => moment(u, v).slice(values.length && values[values.length - 1] - values[0] > 90000 ? 0 : 4));

  // A mark for each creation (up) and removal (down).
  const marks = (data) => (u) => {
    const { ctx } = u, size = 4 * devicePixelRatio;
    ctx.save();
    for (const [at, delta] of data.marks) {
      const x = Math.round(u.valToPos(at, "x", true));
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
      const y = u.bbox.top + (delta > 0 ? size * 1.6 : size * 0.6);
      ctx.fillStyle = colour(delta > 0 ? "run" : "ink3");
      ctx.beginPath();
      ctx.moveTo(x - size, y);
      ctx.lineTo(x + size, y);
      ctx.lineTo(x, y + (delta > 0 ? -size * 1.5 : size * 1.5));
      ctx.fill();
    }
    ctx.restore();
  };

  const limits = (data) => (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = colour("ink3");
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const value of [data.grow, data.shrink]) {
      if (value == null) continue;
      const y = Math.round(u.valToPos(value, "y", true)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, y);
      ctx.lineTo(u.bbox.left + u.bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  };

  const draw = (element) => {
    const json = element.dataset.scaling;
    const width = Math.floor(element.clientWidth);
    if (!json || !width || !window.uPlot) return;
    for (const plot of plots.get(element)?.list || []) plot.destroy();
    const data = JSON.parse(json);
    const taken = data.held.map((held, i) => (held == null ? null : held + data.reserved[i])); // null: no sample
    const use = data.slots.map((slots, i) => (slots == null ? null : slots ? (100 * taken[i]) / slots : 0));
    const stepped = uPlot.paths.stepped({ align: 1 });
    const both = { width, legend: { live: true, isolate: false }, cursor: { sync: { key: "scaling" }, drag: { x: false, y: false }, points: { show: false } }, padding: [8, 18, 0, 0] };
    const first = new uPlot({
      ...both, height: 180, hooks: { draw: [marks(data)] },
      scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.12)] } },
      axes: [axis({ size: 26, incrs: steps, values: clocks }), axis({ size: 44, values: (u, values) => values.map((v) => (Number.isInteger(v) ? v : "")) })],
      series: [
        { label: "", value: moment },
        { label: "reserved to", value: whole, width: 0, fill: colour("rsv", 0.5), points: { show: false } },
        { label: "held", value: whole, width: 0, fill: colour("run", 0.75), points: { show: false } },
        { label: "wanted", value: whole, width: 1.5, stroke: colour("ink2"), dash: [5, 4], points: { show: false } },
        { label: "there", value: whole, width: 2, stroke: colour("ink"), paths: stepped, points: { show: false } },
      ],
    }, [data.at, taken, data.held, data.wanted, data.slots], element);
    const second = new uPlot({
      ...both, height: 92, hooks: { draw: [limits(data)] },
      scales: { y: { range: () => [0, 108] } },
      axes: [axis({ size: 26, incrs: steps, values: clocks }), axis({ size: 44, splits: () => [0, 50, 100], values: (u, values) => values.map((v) => `${v} %`) })],
      series: [{ label: "", value: moment }, { label: "in use", value: share, width: 1.5, stroke: colour("run"), fill: colour("run", 0.15), points: { show: false } }],
    }, [data.at, use], element);
    plots.set(element, { json, width, list: [first, second] });
  };

  const all = (again) => {
    if (!probe.isConnected) document.body.append(probe);
    for (const element of plots.keys()) if (!element.isConnected) plots.delete(element);
    for (const element of document.querySelectorAll("[data-scaling]")) {
      const known = plots.get(element);
      if (again || !known || known.json !== element.dataset.scaling || known.width !== Math.floor(element.clientWidth)) draw(element);
    }
  };

  document.addEventListener("berth:changed", () => all(false));
  new MutationObserver(() => all(true)).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(true));
  let waits = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waits); waits = requestAnimationFrame(() => all(false)); });
  all(false);
})();
