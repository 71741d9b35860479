// Before the first paint: the theme somebody chose. Without a choice the system decides.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage in this browser: the system decides.
}
