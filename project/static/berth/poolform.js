// The form of a new pool: only the section of the selected provider is shown and sent.
"use strict";
(() => {
  const choice = document.querySelector(".poolform select[name=provider]");
  if (!choice) return;
  const show = () => {
    for (const section of document.querySelectorAll(".poolform [data-provider]")) {
      section.hidden = section.disabled = section.dataset.provider !== choice.value;
    }
  };
  choice.addEventListener("change", show);
  addEventListener("pageshow", show); // a form that the browser restores
  show();
})();
