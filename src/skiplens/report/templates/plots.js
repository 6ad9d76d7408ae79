// Plots: plotly.js is unpacked, each figure is drawn in the colours of the look, and chosen blocks are picked out.

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
function hideToolsFromKeyboard(plot) {
  for (const tools of all(".modebar", plot)) tools.setAttribute("aria-hidden", "true");
  for (const button of all(".modebar-btn", plot)) button.tabIndex = -1;
}

// Only what we chose: the library's own tool bar offers to share a plot over the network.
const TOOLS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
const TOOLS_IN_SPACE = [["toImage", "orbitRotation", "pan3d", "resetCameraDefault3d"]];

function draw(plot) {
  const { ink, line, accent } = colours();
  const figure = figureOf(plot);
  const places = placesOf(figure);
  for (const trace of figure.data) if (trace.line && trace.line.color === "ink") trace.line.color = ink;
  const bars = figure.data.filter((trace) => trace.type === "bar");
  if (places.length) pickOutBars(bars, places);
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const narrow = plot.clientWidth < 480;
  const layout = {
    ...figure.layout,
    shapes: [...(figure.layout.shapes || []), ...places.map((place) => column(place, accent, bars.length > 0))],
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: narrow ? 11 : 12 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
    xaxis: { ...axis, autotickangles: [0, -35, -90], ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
    width: plot.clientWidth, height: plot.clientHeight,
  };
  const modeBarButtons = figure.data.some((trace) => trace.type === "surface") ? TOOLS_IN_SPACE : TOOLS;
  Plotly.react(plot, figure.data, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons });
  hideToolsFromKeyboard(plot);
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
