// Plots: plotly.js is unpacked, each figure is drawn in the colours of the look, and chosen blocks are picked out.

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~";

// Four bytes in five letters; the last group is filled up with the last letter, and as many bytes are left out.
function bytesOf(text) {
  const digits = new Uint8Array(128).fill(84), groups = Math.ceil(text.length / 5), bytes = new Uint8Array(4 * groups);
  [...LETTERS].forEach((letter, digit) => { digits[letter.charCodeAt(0)] = digit; });
  for (let group = 0, from = 0, to = 0; group < groups; group += 1) {
    let number = 0;
    for (const end = from + 5; from < end; from += 1) number = number * 85 + digits[text.charCodeAt(from) & 127];
    for (let byte = 3; byte >= 0; byte -= 1, number = Math.floor(number / 256)) bytes[to + byte] = number % 256;
    to += 4;
  }
  return bytes.subarray(0, 4 * groups - (5 * groups - text.length));
}

async function unpacked(id) {
  const bytes = bytesOf(byId(id).textContent);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function colours() {
  const style = getComputedStyle(root);
  const word = (name) => style.getPropertyValue(name).trim();
  return { ink: word("--ink"), line: word("--line"), accent: word("--accent"), panel: word("--panel"), paper: word("--paper") };
}

// What becomes of colours on a dark page, as plots/figure.py has it.
const DARK = {
  "#0072B2": "#56B4E9", "#56B4E9": "#0072B2", "#009E73": "#3FB98F", "#D55E00": "#F0A440", "#B3261E": "#FF8A80",
  "#8C6D31": "#A88B5A", "#44337A": "#A79BE8", "#C0A900": "#E6D14F",
};
const inLook = (text) => (root.dataset.theme === "dark" ? text.replace(/#[0-9A-F]{6}/g, (shade) => DARK[shade] || shade) : text);
const figureOf = (plot) => JSON.parse(inLook(plot.nextElementSibling.textContent));
const placesOf = (figure) => (figure.blocks || []).filter(([block]) => chosen.has(block)).map(([, place]) => place);

const STRIDES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];  // between two numbers of blocks

// Blocks have the numbers of the drawing on every axis; their names are where one points.
function blockTicks(figure, pixels) {
  const places = figure.blocks || [];
  if (!places.length) return {};
  const room = pixels / (8 + 7 * String(places.length).length), step = STRIDES.find((size) => size * room >= places.length) || 1;
  const shown = places.filter(([block]) => (block + 1) % step === 0);
  return { tickvals: shown.map(([, place]) => place), ticktext: shown.map(([block]) => String(block + 1)) };
}

// Ticks of a logarithmic axis: as many as there is room for, and as people write them.
const power = (value) => value.toExponential(2).replace(/\.?0*e\+?/, "×10<sup>").replace("-", "−").replace(/^1×/, "") + "</sup>";
const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const written = (value) => (value >= 1e-4 && value < 1e6 ? format.format(value) : power(value));

function logTicks(figure, name, room) {
  const [axis, letter] = [figure.layout[name] || {}, name[0]];
  if (axis.type !== "log" || axis.tickvals) return {};
  const lines = (figure.layout.shapes || []).filter((shape) => shape[`${letter}ref`] !== "paper").map((shape) => shape[`${letter}0`]);
  const logs = figure.data.flatMap((trace) => trace[letter] || []).concat(lines).filter((value) => value > 0).map(Math.log10);
  const [low, high] = [logs.reduce((a, b) => Math.min(a, b), Infinity), logs.reduce((a, b) => Math.max(a, b), -Infinity)];
  if (!(high > low)) return { nticks: Math.min(6, room) };
  if (high - low <= 0.5) return { ...roundTicks(10 ** low, 10 ** high, Math.min(6, room)) };
  const step = Math.ceil((high - low) / room);
  const digits = room < 4 || high - low >= 1.5 ? [1] : high - low < 1 ? [1, 2, 3, 5] : [1, 2, 5];
  const tickvals = [];
  for (let decade = step * Math.floor(low / step - 1); decade <= high + 1; decade += step) tickvals.push(...digits.map((digit) => digit * 10 ** decade));
  return { tickvals, ticktext: tickvals.map((value) => written(Number(value.toPrecision(1)))) };
}

// Where less than half a decade is seen: round numbers at equal distances.
function roundTicks(low, high, room) {
  const rough = (high - low) / Math.max(1, room - 1), unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const tickvals = [];
  for (let place = Math.floor(low / step); place <= Math.ceil(high / step); place += 1) if (place > 0) tickvals.push(Number((place * step).toPrecision(6)));
  return { tickvals, ticktext: tickvals.map((value) => new Intl.NumberFormat("en", { maximumSignificantDigits: 6 }).format(value)) };
}

// What is counted has ticks at whole numbers; words under bars stand on two lines where they would meet.
function plainTicks(figure, room) {
  const axis = figure.layout.xaxis || {};
  if (axis.ticktext) {
    const crowd = (7 * Math.max(...axis.ticktext.map((text) => text.length)) * axis.ticktext.length) / Math.max(40, 40 * room - 80);
    if (crowd <= 1) return {};
    if (!axis.ticktext.every((text) => Number.isFinite(Number(text)))) return { ticktext: axis.ticktext.map(onTwoLines) };
    const kept = (_, place) => place % Math.ceil(1.3 * crowd) === 0;  // of numbers some say enough
    return { tickvals: axis.tickvals.filter(kept), ticktext: axis.ticktext.filter(kept) };
  }
  const places = axis.type === "log" ? [] : figure.data.flatMap((trace) => trace.x || []);
  const span = places.reduce((a, b) => Math.max(a, b), -Infinity) - places.reduce((a, b) => Math.min(a, b), Infinity);
  return places.every(Number.isInteger) && span > 0 && span <= room ? { dtick: 1 } : {};
}

// The words along an axis stand on several lines where one is longer than the axis, those at its ticks where they would take half of the plot.
function brokenWords(figure, plot) {
  const letter = 6.5, { ticktext } = figure.layout.yaxis || {};
  const longest = (texts) => Math.max(0, ...texts.flatMap((text) => plain(text).split("<br>")).map((line) => line.length));
  const isLong = ticktext && letter * longest(ticktext) > plot.clientWidth / 2;
  const beside = isLong ? ticktext.map((text) => (text.length > 18 ? onTwoLines(text) : text)) : ticktext;
  const room = plot.clientWidth - (beside ? letter * longest(beside) : 60);
  const yaxis = { ...brokenTitle(figure, "yaxis", (plot.clientHeight - 110) / letter), ...(isLong ? { ticktext: beside } : {}) };
  return { xaxis: brokenTitle(figure, "xaxis", room / letter), yaxis, height: isLong ? 34 * ticktext.length + 120 : 0 };
}

function brokenTitle(figure, name, letters) {
  const title = figure.layout[name]?.title;
  return title && plain(title.text).length > letters ? { title: { ...title, text: inLines(title.text, Math.max(12, letters)) } } : {};
}

function inLines(text, letters) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`;
    if (lines.length && plain(longer).length <= letters) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.join("<br>");
}

function onTwoLines(text) {
  const spaces = [...text.matchAll(/ /g)].map((found) => found.index);
  const middle = spaces.sort((a, b) => Math.abs(a - text.length / 2) - Math.abs(b - text.length / 2))[0];
  return middle === undefined ? text : `${text.slice(0, middle)}<br>${text.slice(middle + 1)}`;
}

// The name of a line across the plot stands at its right end, or where fewer curves run through it; beside bars it is outside.
function clearOfCurves(annotation, figure, plot) {
  if (annotation.xref !== "paper" || annotation.x !== 1) return annotation;
  if (namesBesideBars(figure)) return { ...annotation, xanchor: "left", yanchor: "middle" };
  const place = (value, axis) => (axis.type !== "log" ? value : value > 0 ? Math.log10(value) : NaN);
  const lines = figure.data.filter((trace) => trace.mode === "lines" && trace.hoverinfo !== "skip" && trace.x?.length > 1);
  const curves = lines.map((trace) => trace.x.map((x, index) => [place(x, figure.layout.xaxis), place(trace.y[index], figure.layout.yaxis)]).filter((point) => point.every(Number.isFinite)));
  const [xs, ys] = [0, 1].map((side) => curves.flat().map((point) => point[side]));
  const ends = (values) => [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  const [[left, right], [low, high]] = [ends(xs), ends([...ys, annotation.y])];
  const wide = ((right - left) * 7 * annotation.text.length) / Math.max(100, plot.clientWidth - 80);
  const tall = ((high - low) * 20) / Math.max(60, plot.clientHeight - 90);
  const isIn = (y, side) => (y - annotation.y) * (y - annotation.y - (side === "top" ? -tall : tall)) < 0;
  const met = (from, side) => curves.reduce((sum, curve) => sum + [0, 0.25, 0.5, 0.75, 1].filter((part) => isIn(heightAt(curve, from + part * wide), side)).length, 0);
  const alone = figure.layout.annotations.filter((other) => other.xref === "paper").length === 1;
  const sides = [annotation.yanchor, ...(alone ? [annotation.yanchor === "top" ? "bottom" : "top"] : [])];
  const ways = sides.flatMap((yanchor) => [{ yanchor, x: 1, xanchor: "right" }, { yanchor, x: 0, xanchor: "left" }]);
  const [best] = ways.map((way) => [met(way.x ? right - wide : left, way.yanchor), way]).sort((a, b) => a[0] - b[0]);
  return { ...annotation, ...best[1] };
}

// Pixels that the names of lines across bars take at the right, none where they are long or there are no bars.
function namesBesideBars(figure) {
  const letters = (figure.layout.annotations || []).filter((name) => name.xref === "paper").map((name) => plain(name.text).length);
  const longest = Math.max(0, ...letters);
  return figure.data.some((trace) => trace.type === "bar") && longest < 12 ? 7 * longest : 0;
}

function heightAt(curve, x) {
  const next = curve.findIndex((point) => point[0] >= x);
  if (next < 1) return next === 0 && curve[0][0] === x ? curve[0][1] : NaN;
  const [[x0, y0], [x1, y1]] = [curve[next - 1], curve[next]];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

// Where one has come near, the library finds ticks between ours.
function freeTicks(plot, change) {
  const names = ["xaxis", "yaxis"].filter((name) => `${name}.range[0]` in change && plot.layout[name].type === "log" && plot.layout[name].tickvals);
  if (names.length) Plotly.relayout(plot, Object.fromEntries(names.map((name) => [`${name}.tickmode`, "auto"])));
}

// Error bars and areas are seen in both looks.
function dress(trace, ink) {
  if (trace.line && trace.line.color === "ink") trace.line.color = ink;
  if (trace.error_y) trace.error_y.color = ink;
  if (trace.fillcolor && root.dataset.theme === "dark") trace.fillcolor = trace.fillcolor.replace(/33$/, "80");
  if (trace.opacity < 0.5 && root.dataset.theme === "dark") trace.opacity = 0.6;
}

// The bar of colours stands above a narrow plot.
function placeColourBar(trace, narrow) {
  if (!trace.colorbar) return;
  Object.assign(trace.colorbar, { thickness: 12, outlinewidth: 0 }, narrow ? { orientation: "h", x: 0.5, y: 1.02, yanchor: "bottom", ypad: 0 } : {});
  trace.colorbar.title.side = narrow ? "top" : "right";  // above an upright bar it would lie on its highest number
}

// What became of runs that diverged stands beside their crosses; where several did the words would lie over their curves.
function labelCrosses(data, ink) {
  const [trace, ...others] = data.filter(isCrossed);
  if (!trace || others.length) return;
  const end = data.flatMap((other) => other.x || []).reduce((a, b) => Math.max(a, b), 0);
  const [first, last] = [Math.min(...trace.x), Math.max(...trace.x)], isLeft = end - last < first;
  const beside = trace.x.indexOf(isLeft ? first : last), words = `  ${trace.name.split(": ").pop()}  `;
  const text = { text: trace.x.map((_, index) => (index === beside ? words : "")), textfont: { color: ink } };
  Object.assign(trace, text, { textposition: `middle ${isLeft ? "left" : "right"}`, mode: "markers+text", cliponaxis: false });
}

function pickOutBars(bars, places) {
  for (const trace of bars) trace.marker.opacity = trace.x.map((place) => (places.includes(place) ? 1 : 0.2));
}

// Beside bars it is a frame: a column filled with colour would itself look like a bar. What is measured after each block,
// and before the first, changes from the block before to this one.
const isBetween = (figure) => figure.data.some((trace) => trace.mode === "lines" && trace.x?.[0] === figure.blocks?.[0]?.[1] - 1);

function column(place, colour, framed, between) {
  const ends = { x0: place - (between ? 1 : 0.5), x1: place + (between ? 0 : 0.5), y0: 0, y1: 1, yref: "paper" };
  const line = { width: 1, color: colour, dash: framed ? "dot" : "solid" };
  return { type: "rect", ...ends, line, fillcolor: framed ? "rgba(0,0,0,0)" : `${colour}33` };
}

// Zooming is for the mouse; without one the numbers below each plot tell more. A picture must not hold buttons: it is a group.
function hideToolsFromKeyboard(plot) {
  plot.setAttribute("role", "group");
  for (const inside of all(":scope > *", plot)) inside.setAttribute("aria-hidden", "true");
  for (const button of all(".modebar-btn", plot)) button.tabIndex = -1;
}

// The library writes a hyphen before numbers where one points, and has no setting for it.
function writeMinuses(layer) {
  if (layer.dataset.watched) return;
  layer.dataset.watched = "yes";
  const texts = () => all("tspan", layer).flatMap((line) => [...line.childNodes]).filter((node) => node.nodeType === Node.TEXT_NODE);
  const write = () => { for (const text of texts()) text.data = text.data.replace(/(^|[ (])-(?=\d)/g, "$1−"); };
  new MutationObserver(write).observe(layer, { childList: true, subtree: true });
}

// The names of the series are words of the page above the plot: they wrap, and lie over nothing.
const isCrossed = (trace) => trace.marker?.symbol === "x";

function swatch(trace) {
  const colour = trace.fillcolor || (trace.line || trace.marker || {}).color;
  if (isCrossed(trace)) return Object.assign(element("b", "✕ "), { style: `color: ${colour}` });
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
    entry.append(swatch(trace), plain(trace.name).replace(/^✕ /, ""));
    list.append(entry);
  }
  plot.before(list);
}

// In a narrow explorer the names stand two in a row, and the plot grows by the rows beyond two.
function makeRoomForNames(plot, figure, layout, narrow) {
  const names = figure.layout.showlegend ? figure.data.filter((trace) => trace.name && trace.showlegend !== false) : [];
  plot.dataset.tall ||= plot.clientHeight;
  plot.style.height = narrow && names.length > 4 ? `${Number(plot.dataset.tall) + 20 * Math.ceil(names.length / 2 - 2)}px` : "";
  layout.height = plot.clientHeight;
  if (narrow && names.length > 2) Object.assign(layout.legend, { entrywidth: 0.48, entrywidthmode: "fraction" });
}

// Samples that are images are seen along both axes of their matrix; the two that one points at stand above.
const picturesOf = (figure) => (figure.data.find((trace) => trace.meta?.pictures)?.meta.pictures || []).map((source) => (source.startsWith("data:image/png;base64,") ? source : ""));

function alongAxes(sources) {
  const fixed = { xref: "x", yref: "y", xanchor: "center", yanchor: "middle", sizex: 0.94, sizey: 0.94, sizing: "contain", layer: "above" };
  return sources.flatMap((source, index) => !source ? [] : [{ ...fixed, source, x: index, y: sources.length }, { ...fixed, source, x: -1, y: index }]);
}

function showPair(plot, sources, point) {
  const known = plot.parentElement.querySelector(".pointed"), pair = known || element("p", "", { className: "pointed" });
  pair.setAttribute("aria-hidden", "true");  // what it says is in the numbers of the plot
  if (!known) plot.before(pair);
  const drawn = point ? [point.y, point.x].filter((place) => sources[place]).map((place) => element("img", "", { src: sources[place], alt: "" })) : [];
  pair.replaceChildren(...drawn, element("span", drawn.length ? `correlation ${format.format(point.z)}` : "Point at a cell to see its two samples."));
}

// A picture that is saved has no page around it, so it gets its legend.
const savePicture = {
  name: "save", title: "Download plot as a PNG",
  get icon() { return Plotly.Icons.camera; },
  click: (plot) => Plotly.downloadImage({ data: plot.data, layout: { ...plot.layout, showlegend: figureOf(plot).layout.showlegend } }, { format: "png", scale: 2, filename: "plot" }),
};

// Only what we chose: the library's own tool bar offers to share a plot over the network.
const TOOLS = [[savePicture, "zoom2d", "pan2d", "resetScale2d"]];

function draw(plot) {
  const { ink, line, accent, panel, paper } = colours();
  const figure = figureOf(plot);
  const places = placesOf(figure), sources = picturesOf(figure);
  const square = sources.length > 0 || figure.data.some((trace) => trace.type === "contour");
  const narrow = plot.clientWidth < 480;
  if (square) plot.style.height = `${Math.min(440, plot.clientWidth + 50 * narrow)}px`;  // nearly, so that pictures and planes have room
  for (const trace of figure.data) { dress(trace, ink); placeColourBar(trace, narrow); }
  labelCrosses(figure.data, ink);
  const bars = figure.data.filter((trace) => trace.type === "bar");
  if (places.length) pickOutBars(bars, places);
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const words = brokenWords(figure, plot);
  if (words.height > plot.clientHeight) plot.style.height = `${words.height}px`;
  const layout = {
    ...figure.layout,
    annotations: (figure.layout.annotations || []).map((annotation) => ({ ...clearOfCurves(annotation, figure, plot), bgcolor: `${paper}b3` })),
    shapes: [...(figure.layout.shapes || []), ...places.map((place) => column(place, accent, bars.length > 0, isBetween(figure)))],
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: narrow ? 11 : 12 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
    xaxis: { ...axis, ...(bars.length ? { zeroline: false, showgrid: false } : {}), autotickangles: [0, -35, -90], ...figure.layout.xaxis, ...words.xaxis, ...blockTicks(figure, plot.clientWidth - 80) }, yaxis: { ...axis, ...figure.layout.yaxis, ...words.yaxis },
    width: plot.clientWidth, height: plot.clientHeight,
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink, size: 12 }, align: "left", namelength: -1 },
  };
  if (!figure.blocks?.length) Object.assign(layout.xaxis, plainTicks(figure, Math.floor(plot.clientWidth / 40)));
  Object.assign(layout.xaxis, logTicks(figure, "xaxis", Math.floor(plot.clientWidth / 90)));
  Object.assign(layout.yaxis, logTicks(figure, "yaxis", Math.floor(plot.clientHeight / 45)));
  const above = layout.annotations.some((annotation) => annotation.yref === "paper" && annotation.y === 1);
  if (above) layout.legend = { ...layout.legend, y: 1 + 24 / Math.max(60, plot.clientHeight - 100) };  // clear of the words there
  if (window.dash_clientside && !square) makeRoomForNames(plot, figure, layout, narrow);
  else if (!window.dash_clientside) Object.assign(layout, { showlegend: false, margin: { ...figure.layout.margin, r: figure.layout.margin.r + namesBesideBars(figure), t: above ? 24 : 8, b: figure.layout.xaxis?.title?.text ? 50 : 30 } });
  if (sources.length && plot.clientWidth / sources.length > 14) {  // smaller ones are seen where one points only
    Object.assign(layout, { images: alongAxes(sources) });
    Object.assign(layout.xaxis, { range: [-1.6, sources.length - 0.5], constrain: "domain", showgrid: false, zeroline: false });
    Object.assign(layout.yaxis, { autorange: false, range: [sources.length + 0.6, -0.5], scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false });
  }
  if (sources.length) showPair(plot, sources);
  nameSeries(plot, figure);
  Plotly.react(plot, figure.data, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons: TOOLS });
  hideToolsFromKeyboard(plot);
  writeMinuses(plot.querySelector(".hoverlayer"));
  plot.removeAllListeners("plotly_relayout");
  plot.on("plotly_relayout", (change) => freeTicks(plot, change));
  plot.removeAllListeners("plotly_hover");
  if (sources.length) plot.on("plotly_hover", ({ points }) => showPair(plot, sources, points[0]));
}

// A plot costs nothing until it comes near what is seen; what is folded never does.
const isUnfolded = (plot) => !plot.closest("details:not([open])");
const drawAll = (plots = all(".plot.js-plotly-plot")) => { if (window.Plotly) plots.filter(isUnfolded).forEach(draw); };
const NEAR = "40% 0px";

let library = null;
function loaded() {
  library ||= unpacked("plotly").then((text) => { document.head.append(element("script", text)); });
  return library;
}

async function drawWaiting(plots) {
  root.dataset.plots = "drawing";
  try {
    if (plots.length) await loaded();
  } catch {
    for (const plot of plots) plot.replaceChildren(element("p", "This browser is too old to draw the plot; its numbers are below.", { className: "note" }));
    return;
  }
  for (const plot of plots) {  // one at a time, so that the page can be read and scrolled meanwhile
    await new Promise((resolve) => { setTimeout(resolve, 0); });
    if (!plot.matches(".js-plotly-plot")) draw(plot);
  }
  root.dataset.plots = "drawn";  // all that is near
}

function drawNear() {
  if (!byId("plotly")) return;
  const near = new IntersectionObserver((entries) => {
    const plots = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    for (const plot of plots) near.unobserve(plot);
    drawWaiting(plots);
  }, { rootMargin: NEAR });
  for (const plot of all(".plot")) near.observe(plot);
  (window.requestIdleCallback || setTimeout)(() => loaded().catch(() => {}));  // who prints has not scrolled
}

let resizing = 0;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 150); });
