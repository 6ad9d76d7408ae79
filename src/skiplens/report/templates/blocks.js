// Choosing residual blocks: what is not about them steps back in plots, tables and findings.

const blockButtons = all("#hero .block").sort((a, b) => a.dataset.block - b.dataset.block);
const nameOf = (block) => blockButtons[block].dataset.name;
const labelOf = (block) => (nameOf(block) === String(block + 1) ? nameOf(block) : `${block + 1} (${nameOf(block)})`);

function gathered(blocks) {
  const rows = [];
  for (const table of all("table[data-title]")) {
    const found = blocks.map((block) => table.querySelector(`tr[data-block="${block}"]`));
    if (!found.some(Boolean)) continue;
    rows.push([table.dataset.title]);
    [...table.tHead.rows[0].cells].slice(1).forEach((head, index) => {
      rows.push([head.textContent, ...found.map((row) => (row ? row.cells[index + 1].textContent : "–"))]);
    });
  }
  return rows;
}

function showChosen(blocks) {
  byId("drawer").hidden = !blocks.length;
  if (root.classList.contains("with-drawer") !== blocks.length > 0) {
    root.classList.toggle("with-drawer");  // the page makes room, so that nothing lies under it
    dispatchEvent(new Event("resize"));
  }
  const head = ["number", ...blocks.map((block) => `block ${labelOf(block)}`)];
  byId("chosen").replaceChildren(withCopyButton(tableOf(head, blocks.length ? gathered(blocks) : []), "The chosen blocks in numbers"));
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
  const shown = blocks.slice(0, 3).map(labelOf).join(", ");
  const words = blocks.length ? `Only block ${shown}${blocks.length > 3 ? ` and ${blocks.length - 3} more` : ""}` : "All blocks";
  bar.firstElementChild.textContent = words;
  say(words);
}

function applyChoice() {
  const blocks = [...chosen].sort((a, b) => a - b);
  for (const button of blockButtons) button.setAttribute("aria-pressed", String(chosen.has(Number(button.dataset.block))));
  filterRows();
  showChosen(blocks);
  showFilter(blocks);
  drawAll(all(".plot.js-plotly-plot").filter((plot) => figureOf(plot).blocks?.length));
}

function choose(button) {
  const block = Number(button.dataset.block);
  if (!chosen.delete(block)) chosen.add(block);
  applyChoice();
}

function walk(event) {
  const isStage = event.currentTarget.matches(".stage");
  const row = isStage ? stageButtons : blockButtons;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); (isStage ? unfold : choose)(event.currentTarget); return; }
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  if (event.key === "Escape" && chosen.size) { chosen.clear(); applyChoice(); return; }
  if (!(event.key in steps)) return;
  const next = row[Math.min(row.length - 1, Math.max(0, row.indexOf(event.currentTarget) + steps[event.key]))];
  event.preventDefault();
  for (const button of row) button.setAttribute("tabindex", button === next ? "0" : "-1");
  next.focus();
}
