// Downloading, the light and the dark look, printing; and what happens when something is pressed.

async function download() {
  const source = byId("readings");
  const text = source.type === "application/json" ? source.textContent : await unpacked("readings");
  const blob = new Blob([text], { type: "application/json" });
  const link = element("a", "", { href: URL.createObjectURL(blob), download: source.dataset.file || "readings.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const toggle = byId("theme");

function setTheme(name, plots) {
  root.dataset.theme = name;
  toggle.textContent = name === "dark" ? "Light" : "Dark";
  toggle.setAttribute("aria-label", `${toggle.textContent} look`);
  drawAll(plots);
}

let before = null;

function beginPrint() {
  before = { theme: root.dataset.theme, closed: all("details:not([open]):not(.numbers)") };
  for (const details of before.closed) details.open = true;
  root.classList.add("printing");
  setTheme("light", all(".plot"));
}

function endPrint() {
  if (!before) return;
  root.classList.remove("printing");
  for (const details of before.closed) details.open = false;
  setTheme(before.theme);
  before = null;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button, .block, .stage");
  if (!button) return;
  if (button.classList.contains("copy")) copy(button, tableText(button.parentElement.querySelector("table")));
  if (button.classList.contains("copy-code")) copy(button, button.parentElement.querySelector("pre").textContent);
  if (button.classList.contains("block")) choose(button);
  if (button.classList.contains("stage")) unfold(button);
  if (button.classList.contains("morph")) morph(button);
  if (button.classList.contains("save-card")) saveCard(button.dataset.kind);
  if (button.dataset.zoom) fit(Number(button.dataset.zoom));
  if (button.parentElement.id === "filter") { chosen.clear(); applyChoice(); }
});
for (const button of [...blockButtons, ...stageButtons]) button.addEventListener("keydown", walk);
for (const details of all("details.more")) details.addEventListener("toggle", () => drawAll(all(".plot.js-plotly-plot", details.parentElement)));  // its card is wider now
for (const details of all("details.numbers")) details.addEventListener("toggle", () => fillNumbers(details));
toggle.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
byId("download").addEventListener("click", download);
window.addEventListener("message", ({ data, source }) => {  // in a frame it looks as the page around it
  if (source === parent && parent !== window && ["dark", "light"].includes(data && data.look)) setTheme(data.look);
});
window.addEventListener("beforeprint", beginPrint);
window.addEventListener("afterprint", endPrint);
setTheme(root.dataset.theme);
drawNear();
