// Splits terminal output into pieces of text with classes. Colours and weights are kept, all other escapes are dropped. The output is
// never parsed as HTML: pieces become text nodes.
"use strict";
window.berth = window.berth || {};
(() => {
  // CSI ... final byte; OSC ... BEL or ST; other two-byte escapes; and control characters without meaning in a log.
  const ESCAPE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_]|)/g;
  const CONTROL = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  const NAMES = ["k", "r", "g", "y", "b", "m", "c", "w"];
  const PLAIN = { fg: "", bg: "", bold: false, dim: false, italic: false, under: false, swap: false };

  // The nearest of 16 named colours, because each theme of the page has its own shades.
  const nearest = (r, g, b) => {
    const high = Math.max(r, g, b), low = Math.min(r, g, b);
    if (high - low < 40) return high < 60 ? "k" : high < 190 ? "K" : "W";
    const middle = (high + low) / 2;
    const name = NAMES[(r > middle ? 1 : 0) + (g > middle ? 2 : 0) + (b > middle ? 4 : 0)];
    return high > 200 ? name.toUpperCase() : name;
  };
  const ofTable = (n) => {
    if (!(n >= 0 && n < 256)) return "";
    if (n < 16) return n < 8 ? NAMES[n] : NAMES[n - 8].toUpperCase();
    if (n > 231) return nearest(...Array(3).fill(8 + (n - 232) * 10));
    const level = (i) => (i ? 55 + i * 40 : 0);
    return nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6));
  };

  const apply = (style, text) => {
    const codes = text.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
    let next = { ...style };
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) next = { ...PLAIN };
      else if (code === 1) next.bold = true;
      else if (code === 2) next.dim = true;
      else if (code === 3) next.italic = true;
      else if (code === 4) next.under = true;
      else if (code === 7) next.swap = true;
      else if (code === 22) next.bold = next.dim = false;
      else if (code === 23) next.italic = false;
      else if (code === 24) next.under = false;
      else if (code === 27) next.swap = false;
      else if (code >= 30 && code <= 37) next.fg = NAMES[code - 30];
      else if (code >= 90 && code <= 97) next.fg = NAMES[code - 90].toUpperCase();
      else if (code >= 40 && code <= 47) next.bg = NAMES[code - 40];
      else if (code >= 100 && code <= 107) next.bg = NAMES[code - 100].toUpperCase();
      else if (code === 39) next.fg = "";
      else if (code === 49) next.bg = "";
      else if (code === 38 || code === 48) {
        const side = code === 38 ? "fg" : "bg";
        if (codes[i + 1] === 5) {
          next[side] = ofTable(codes[i + 2]);
          i += 2;
        } else if (codes[i + 1] === 2) {
          next[side] = nearest(codes[i + 2] || 0, codes[i + 3] || 0, codes[i + 4] || 0);
          i += 4;
        } else break;
      }
    }
    return next;
  };
  const shade = (c) => (c === c.toLowerCase() ? c : `h${c.toLowerCase()}`);
  const classes = (s) => {
    const [fg, bg] = s.swap ? [s.bg || "-", s.fg || "-"] : [s.fg, s.bg];
    const found = [];
    if (bg) found.push(bg === "-" ? "bx" : `b${shade(bg)}`);
    if (fg && (fg !== "-" || bg === "-")) found.push(fg === "-" ? "fx" : `f${shade(fg)}`); // a background brings its own text colour
    for (const name of ["bold", "dim", "italic", "under"]) if (s[name]) found.push(`t-${name}`);
    return found.join(" ");
  };

  // Takes a line and its initial style; returns its pieces, [text, classes], and its final style.
  const parse = (line, style = PLAIN) => {
    const pieces = [];
    let now = style, from = 0;
    const add = (text) => {
      const clean = text.replace(CONTROL, "");
      if (clean) pieces.push([clean, classes(now)]);
    };
    if (line.includes("\u001b")) {
      ESCAPE.lastIndex = 0;
      for (let match = ESCAPE.exec(line); match; match = ESCAPE.exec(line)) {
        add(line.slice(from, match.index));
        if (match[2] === "m") now = apply(now, match[1]);
        from = match.index + match[0].length;
      }
    }
    add(line.slice(from));
    return { pieces, style: now };
  };
  const strip = (line) => (line.includes("\u001b") ? line.replace(ESCAPE, "") : line).replace(CONTROL, "");
  // A carriage return starts the line again, as a terminal shows it.
  const settle = (line) => {
    if (!line.includes("\r")) return line;
    const parts = line.replace(/\r+$/, "").split("\r");
    return parts.at(-1) || parts.at(-2) || "";
  };
  const isPlain = (style) => style === PLAIN || !(style.fg || style.bg || style.bold || style.dim || style.italic || style.under || style.swap);

  berth.ansi = { parse, strip, settle, PLAIN, isPlain };
})();
