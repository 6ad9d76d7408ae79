// Names that the theme leaves out, for readers of the screen: the search, and the parts of the navigation that are pages too.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const part of document.querySelectorAll("nav[aria-labelledby]")) {
    if (document.getElementById(part.getAttribute("aria-labelledby"))?.textContent.trim()) continue;
    part.removeAttribute("aria-labelledby");
    part.setAttribute("aria-label", part.querySelector(".md-nav__title").textContent.trim());
  }
  // The buttons of a block of code, which the theme adds when the block is seen, are no part of the navigation.
  const nameTools = () => { for (const tools of document.querySelectorAll("nav.md-code__nav:not([role])")) tools.setAttribute("role", "group"); };
  new MutationObserver(nameTools).observe(document.body, { childList: true, subtree: true });
  nameTools();
});
