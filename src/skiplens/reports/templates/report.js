"use strict";
(function () {
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const dark = () => root.dataset.theme === "dark";

  function colours() {
    const style = getComputedStyle(root);
    const word = (name) => style.getPropertyValue(name).trim();
    return { ink: word("--ink"), line: word("--line") };
  }

  function draw() {
    const { ink, line } = colours();
    for (const plot of document.querySelectorAll(".plot")) {
      const figure = JSON.parse(plot.nextElementSibling.textContent);
      for (const trace of figure.data) if (trace.line && trace.line.color === "ink") trace.line.color = ink;
      const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
      const layout = Object.assign({}, figure.layout, {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
        xaxis: Object.assign({}, axis, figure.layout.xaxis), yaxis: Object.assign({}, axis, figure.layout.yaxis),
      });
      Plotly.react(plot, figure.data, layout, { responsive: true, displaylogo: false });
    }
  }

  function setTheme(name) {
    root.dataset.theme = name;
    toggle.textContent = name === "dark" ? "Light" : "Dark";
    toggle.setAttribute("aria-pressed", String(name === "dark"));
    if (window.Plotly) draw();
  }

  function tableText(button) {
    const rows = [...button.parentElement.querySelectorAll("tr")];
    return rows.map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n");
  }

  async function copy(button, text) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  }

  function download() {
    const source = document.getElementById("readings");
    const blob = new Blob([source.textContent], { type: "application/json" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: source.dataset.file || "readings.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  toggle.addEventListener("click", () => setTheme(dark() ? "light" : "dark"));
  document.getElementById("download").addEventListener("click", download);
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", () => copy(button, tableText(button)));
  }
  for (const button of document.querySelectorAll(".copy-code")) {
    button.addEventListener("click", () => copy(button, button.nextElementSibling.textContent));
  }
  window.addEventListener("beforeprint", () => setTheme("light"));
  setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})();
