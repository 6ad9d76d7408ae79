// Names that the theme leaves out, for readers of the screen: the search, and the parts of the navigation that are pages too.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const part of document.querySelectorAll("nav[aria-labelledby]")) {
    if (document.getElementById(part.getAttribute("aria-labelledby"))?.textContent.trim()) continue;
    part.removeAttribute("aria-labelledby");
    part.setAttribute("aria-label", part.querySelector(".md-nav__title").textContent.trim());
  }
  // The theme adds the buttons of a block of code when the block is seen, as parts of the navigation without a name.
  const nameTools = () => document.querySelectorAll("nav.md-code__nav").forEach((tools, place) => tools.setAttribute("aria-label", `Code ${place + 1}`));
  new MutationObserver(nameTools).observe(document.body, { childList: true, subtree: true });
  nameTools();
  // An empty corner of a table heads nothing; tables wider than the page are scrolled with the keyboard too.
  for (const corner of document.querySelectorAll("th:empty")) corner.replaceWith(document.createElement("td"));
  const scrolled = () => {
    for (const frame of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0; else frame.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", scrolled);
  addEventListener("load", scrolled);
});
