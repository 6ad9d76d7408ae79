"use strict";
(function () {
  const root = document.documentElement;
  const chosen = new Set();
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const element = (tag, text = "", fields = {}) => Object.assign(document.createElement(tag), { textContent: text }, fields);
  const say = (words) => { byId("status").textContent = words; };

  // ---- plots ----

  async function unpackPlotly() {
    const bytes = Uint8Array.from(atob(byId("plotly").textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(element("script", await new Response(stream).text()));
  }

  function colours() {
    const style = getComputedStyle(root);
    const word = (name) => style.getPropertyValue(name).trim();
    return { ink: word("--ink"), line: word("--line"), accent: word("--accent") };
  }

  const figureOf = (plot) => JSON.parse(plot.nextElementSibling.textContent);
  const placesOf = (figure) => (figure.blocks || []).filter(([block]) => chosen.has(block)).map(([, place]) => place);

  function pickOutBars(figure, places) {
    for (const trace of figure.data) {
      if (trace.type !== "bar") continue;
      trace.marker.opacity = trace.x.map((place) => (places.includes(place) ? 1 : 0.2));
    }
  }

  function column(place, colour) {
    const ends = { x0: place - 0.5, x1: place + 0.5, y0: 0, y1: 1, yref: "paper" };
    return { type: "rect", ...ends, line: { width: 1, color: colour }, fillcolor: colour, opacity: 0.18, layer: "above" };
  }

  function draw(plot) {
    const { ink, line, accent } = colours();
    const figure = figureOf(plot);
    const places = placesOf(figure);
    for (const trace of figure.data) if (trace.line && trace.line.color === "ink") trace.line.color = ink;
    if (places.length) pickOutBars(figure, places);
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
    const narrow = plot.clientWidth < 480;
    const layout = {
      ...figure.layout,
      shapes: [...(figure.layout.shapes || []), ...places.map((place) => column(place, accent))],
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: narrow ? 11 : 12 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
      xaxis: { ...axis, ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
      width: plot.clientWidth, height: plot.clientHeight,
    };
    plot.dataset.chosen = places.length;
    return Plotly.react(plot, figure.data, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover" });
  }

  const drawAll = (plots = all(".plot")) => { if (window.Plotly) plots.forEach(draw); };

  async function drawFirst() {
    if (!byId("plotly")) return;
    try {
      await unpackPlotly();
    } catch {
      for (const plot of all(".plot")) plot.replaceChildren(element("p", "This browser is too old to draw the plot; its numbers are below.", { className: "note" }));
      return;
    }
    for (const plot of all(".plot")) {  // one at a time, so that the page can be read and scrolled meanwhile
      draw(plot);
      await new Promise((resolve) => { setTimeout(resolve, 0); });
    }
    root.dataset.plots = "drawn";
  }

  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 150); });

  // ---- the numbers of a plot as a table ----

  const plain = (text) => String(text ?? "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const number = (value) => (typeof value === "number" ? String(Number(value.toPrecision(5))) : plain(value));

  function rowsOf(trace, layout) {
    if (trace.z) return trace.z.map((row, index) => [number(trace.y ? trace.y[index] : index + 1), ...row.map(number)]);
    const words = trace.hovertext || [];
    const errors = trace.error_y ? trace.error_y.array : [];
    return [...trace.x].map((x, index) => [
      plain(trace.name) || plain(layout.yaxis.title.text),
      plain(words[index]) || number(x),
      number(trace.y[index]) + (errors[index] ? ` ± ${number(errors[index])}` : ""),
    ]);
  }

  function headOf(figure) {
    const { xaxis, yaxis } = figure.layout;
    const matrix = figure.data.find((trace) => trace.z);
    if (!matrix) return ["series", plain(xaxis.title.text), plain(yaxis.title.text)];
    const across = matrix.x || matrix.z[0].map((_, index) => index + 1);
    return [`${plain(yaxis.title.text)} \\ ${plain(xaxis.title.text)}`, ...across.map(number)];
  }

  function rowOf(cells, tag) {
    const row = element("tr");
    row.append(...cells.map((cell) => element(tag, cell, tag === "th" ? { scope: "col" } : {})));
    return row;
  }

  function tableOf(head, rows) {
    const [table, top, body] = ["table", "thead", "tbody"].map((tag) => element(tag));
    top.append(rowOf(head, "th"));
    body.append(...rows.map((cells) => rowOf(cells, "td")));
    table.append(top, body);
    return table;
  }

  function withCopyButton(table, label) {
    const [whole, frame] = [element("div", "", { className: "rows" }), element("div", "", { className: "table", tabIndex: 0 })];
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", label);
    frame.append(table);
    whole.append(element("button", "Copy table", { type: "button", className: "copy" }), frame);
    return whole;
  }

  function fillNumbers(details) {
    if (!details.open || details.querySelector("table")) return;
    const figure = figureOf(details.parentElement.querySelector(".plot"));
    const rows = figure.data.flatMap((trace) => rowsOf(trace, figure.layout));
    details.append(withCopyButton(tableOf(headOf(figure), rows), details.querySelector("summary").textContent));
  }

  // ---- choosing blocks ----

  const blockButtons = all(".drawing .block");
  const nameOf = (block) => blockButtons[block].dataset.name;

  function gathered(blocks) {
    const rows = [];
    for (const table of all("table[data-title]")) {
      const found = blocks.map((block) => table.querySelector(`tr[data-block="${block}"]`));
      if (!found.some(Boolean)) continue;
      [...table.tHead.rows[0].cells].slice(1).forEach((head, index) => {
        rows.push([`${table.dataset.title}: ${head.textContent}`, ...found.map((row) => (row ? row.cells[index + 1].textContent : "–"))]);
      });
    }
    return rows;
  }

  function showChosen(blocks) {
    const panel = byId("chosen");
    panel.hidden = !blocks.length;
    panel.replaceChildren();
    if (!blocks.length) return;
    const head = ["", ...blocks.map((block) => `${block + 1}: ${nameOf(block)}`)];
    panel.append(element("h3", "The chosen blocks in numbers"), withCopyButton(tableOf(head, gathered(blocks)), "The chosen blocks in numbers"));
  }

  function filterRows() {
    for (const table of all("table[data-title]")) {
      const rows = all("tr[data-block]", table);
      for (const row of rows) row.hidden = chosen.size > 0 && !chosen.has(Number(row.dataset.block));
    }
    for (const card of all(".finding")) {
      const named = card.dataset.blocks.split(" ").filter(Boolean).map(Number);
      card.classList.toggle("concerned", named.some((block) => chosen.has(block)));
    }
  }

  function showFilter(blocks) {
    const bar = byId("filter");
    const shown = blocks.slice(0, 3).map((block) => `${block + 1} (${nameOf(block)})`).join(", ");
    const words = blocks.length ? `Only block ${shown}${blocks.length > 3 ? ` and ${blocks.length - 3} more` : ""}` : "All blocks";
    bar.hidden = !blocks.length;
    bar.firstElementChild.textContent = words;
    say(words);
  }

  function applyChoice() {
    const blocks = [...chosen].sort((a, b) => a - b);
    for (const button of blockButtons) button.setAttribute("aria-pressed", String(chosen.has(Number(button.dataset.block))));
    filterRows();
    showChosen(blocks);
    showFilter(blocks);
    drawAll(all(".plot").filter((plot) => figureOf(plot).blocks?.length));
  }

  function choose(button) {
    const block = Number(button.dataset.block);
    if (!chosen.delete(block)) chosen.add(block);
    applyChoice();
  }

  function walk(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape" && chosen.size) { chosen.clear(); applyChoice(); return; }
    if (!(event.key in steps)) return;
    const last = blockButtons.length - 1;
    const next = blockButtons[Math.min(last, Math.max(0, blockButtons.indexOf(event.target) + steps[event.key]))];
    event.preventDefault();
    for (const button of blockButtons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  // ---- copying, downloading, themes, printing ----

  function tableText(table) {
    const rows = [...table.rows].filter((row) => !row.hidden);
    return rows.map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n");
  }

  function copyBySelection(text) {
    const area = element("textarea", "", { value: text, className: "unseen", readOnly: true });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  async function copy(button, text) {
    const label = button.dataset.label || (button.dataset.label = button.textContent);
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = copyBySelection(text);
      button.focus();
    }
    button.textContent = done ? "Copied" : "Could not copy";
    say(button.textContent);
    setTimeout(() => { button.textContent = label; }, 1500);
  }

  function download() {
    const source = byId("readings");
    const blob = new Blob([source.textContent], { type: "application/json" });
    const link = element("a", "", { href: URL.createObjectURL(blob), download: source.dataset.file || "readings.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const toggle = byId("theme");

  function setTheme(name) {
    root.dataset.theme = name;
    toggle.textContent = name === "dark" ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `${toggle.textContent} look`);
    drawAll();
  }

  let before = null;

  function beginPrint() {
    before = { theme: root.dataset.theme, closed: all("details:not([open]):not(.numbers)") };
    for (const details of before.closed) details.open = true;
    root.classList.add("printing");
    setTheme("light");
  }

  function endPrint() {
    if (!before) return;
    root.classList.remove("printing");
    for (const details of before.closed) details.open = false;
    setTheme(before.theme);
    before = null;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("copy")) copy(button, tableText(button.parentElement.querySelector("table")));
    if (button.classList.contains("copy-code")) copy(button, button.nextElementSibling.textContent);
    if (button.classList.contains("block")) choose(button);
    if (button.parentElement.id === "filter") { chosen.clear(); applyChoice(); }
  });
  for (const button of blockButtons) button.addEventListener("keydown", walk);
  for (const details of all("details.numbers")) details.addEventListener("toggle", () => fillNumbers(details));
  toggle.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  byId("download").addEventListener("click", download);
  window.addEventListener("beforeprint", beginPrint);
  window.addEventListener("afterprint", endPrint);
  setTheme(root.dataset.theme);
  drawFirst();
})();
