// Plots: plotly.js is unpacked, each figure is drawn in the colours of the look, and chosen blocks are picked out.

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function colours() {
  const style = getComputedStyle(root);
  const word = (name) => style.getPropertyValue(name).trim();
  return { ink: word("--ink"), line: word("--line"), accent: word("--accent"), panel: word("--panel") };
}

const figureOf = (plot) => JSON.parse(plot.nextElementSibling.textContent);
const placesOf = (figure) => (figure.blocks || []).filter(([block]) => chosen.has(block)).map(([, place]) => place);

// Blocks have the numbers of the drawing on every axis; their names are where one points.
function blockTicks(figure) {
  const places = figure.blocks || [];
  if (!places.length) return {};
  const shown = places.filter((_, index) => index % Math.ceil(places.length / 24) === 0);
  return { tickvals: shown.map(([, place]) => place), ticktext: shown.map(([block]) => String(block + 1)) };
}

// Error bars and areas are seen in both looks.
function dress(trace, ink) {
  if (trace.line && trace.line.color === "ink") trace.line.color = ink;
  if (trace.error_y) trace.error_y.color = ink;
  if (trace.fillcolor && root.dataset.theme === "dark") trace.fillcolor = trace.fillcolor.replace(/33$/, "80");
}

function pickOutBars(bars, places) {
  for (const trace of bars) trace.marker.opacity = trace.x.map((place) => (places.includes(place) ? 1 : 0.2));
}

// Beside bars it is a frame: a column filled with colour would itself look like a bar.
function column(place, colour, framed) {
  const ends = { x0: place - 0.5, x1: place + 0.5, y0: 0, y1: 1, yref: "paper" };
  const line = { width: 1, color: colour, dash: framed ? "dot" : "solid" };
  return { type: "rect", ...ends, line, fillcolor: framed ? "rgba(0,0,0,0)" : `${colour}33` };
}

// Zooming is for the mouse; without one the numbers below each plot tell more, and 10 stops a plot would be in the way.
// What is drawn is told by the plot's label; a picture must not hold buttons, so with tools it is a group.
function hideToolsFromKeyboard(plot) {
  plot.setAttribute("role", "group");
  for (const inside of all(":scope > *", plot)) inside.setAttribute("aria-hidden", "true");
  for (const button of all(".modebar-btn", plot)) button.tabIndex = -1;
}

// The names of the series stand above the plot as words of the page: they wrap, and never lie over what is drawn.
function swatch(trace) {
  const colour = trace.fillcolor || (trace.line || trace.marker || {}).color;
  const kind = trace.fillcolor || trace.type === "bar" ? "area" : trace.mode === "markers" ? "point" : "line";
  const mark = element("i", "", { className: kind });
  if (kind === "line") Object.assign(mark.style, { borderColor: colour, borderTopStyle: trace.line.dash === "dash" ? "dashed" : "solid" });
  else mark.style.background = colour;
  return mark;
}

function nameSeries(plot, figure) {
  plot.parentElement.querySelector(".series")?.remove();
  if (!figure.layout.showlegend || window.dash_clientside) return;  // there elements belong to another library
  const list = element("ul", "", { className: "series" });
  list.setAttribute("aria-hidden", "true");  // the numbers of the plot name them too
  for (const trace of figure.data.filter((trace) => trace.name && trace.showlegend !== false)) {
    const entry = element("li");
    entry.append(swatch(trace), plain(trace.name));
    list.append(entry);
  }
  plot.before(list);
}

// A picture that is saved has no page around it, so it gets its legend.
const savePicture = {
  name: "save", title: "Download plot as a PNG",
  get icon() { return Plotly.Icons.camera; },
  click: (plot) => Plotly.downloadImage({ data: plot.data, layout: { ...plot.layout, showlegend: figureOf(plot).layout.showlegend } }, { format: "png", scale: 2, filename: "plot" }),
};

// Only what we chose: the library's own tool bar offers to share a plot over the network.
const TOOLS = [[savePicture, "zoom2d", "pan2d", "resetScale2d"]];
const TOOLS_IN_SPACE = [[savePicture, "orbitRotation", "pan3d", "resetCameraDefault3d"]];

function draw(plot) {
  const { ink, line, accent, panel } = colours();
  const figure = figureOf(plot);
  const places = placesOf(figure);
  for (const trace of figure.data) dress(trace, ink);
  const bars = figure.data.filter((trace) => trace.type === "bar");
  if (places.length) pickOutBars(bars, places);
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const narrow = plot.clientWidth < 480;
  const layout = {
    ...figure.layout,
    shapes: [...(figure.layout.shapes || []), ...places.map((place) => column(place, accent, bars.length > 0))],
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: narrow ? 11 : 12 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
    xaxis: { ...axis, autotickangles: [0, -35, -90], ...figure.layout.xaxis, ...blockTicks(figure) }, yaxis: { ...axis, ...figure.layout.yaxis },
    width: plot.clientWidth, height: plot.clientHeight,
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink, size: 12 }, align: "left", namelength: -1 },
  };
  if (!window.dash_clientside) Object.assign(layout, { showlegend: false, margin: { ...figure.layout.margin, t: 24 } });
  nameSeries(plot, figure);
  const modeBarButtons = figure.data.some((trace) => trace.type === "surface") ? TOOLS_IN_SPACE : TOOLS;
  Plotly.react(plot, figure.data, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons });
  hideToolsFromKeyboard(plot);
}

// What is folded has no size; it is drawn when it is unfolded.
const isUnfolded = (plot) => !plot.closest("details:not([open])");
const drawAll = (plots = all(".plot")) => { if (window.Plotly) plots.filter(isUnfolded).forEach(draw); };

async function drawFirst() {
  if (!byId("plotly")) return;
  try {
    document.head.append(element("script", await unpacked("plotly")));
  } catch {
    for (const plot of all(".plot")) plot.replaceChildren(element("p", "This browser is too old to draw the plot; its numbers are below.", { className: "note" }));
    return;
  }
  for (const plot of all(".plot").filter(isUnfolded)) {  // one at a time, so that the page can be read and scrolled meanwhile
    draw(plot);
    await new Promise((resolve) => { setTimeout(resolve, 0); });
  }
  root.dataset.plots = "drawn";
}

let resizing = 0;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 150); });
