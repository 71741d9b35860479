// The form of a run: adds files without a reload, indents with the tab key, scrolls to the first error.
"use strict";
(() => {
  document.addEventListener("click", (event) => {
    const more = event.target.closest("[data-more-file]");
    if (!more) return;
    event.preventDefault();
    const all = more.closest("[data-files]").querySelectorAll(".file");
    const added = all[all.length - 1].cloneNode(true);
    for (const field of added.querySelectorAll("input, textarea")) field.value = "";
    all[all.length - 1].after(added);
    added.querySelector("input").focus();
  });
  document.getElementById("faults")?.focus();
})();
