// The explorer's page: plots follow the figures that the server sends, sliders and fields move together, and the
// address says what is shown. The functions of the report's page (all, byId, draw, fillNumbers, copy …) come before.

const numberOf = (text) => (String(text).trim() === "" ? NaN : Number(text));
const placeOf = (value, meta) => (meta.logarithmic ? Math.log10(value) : value);

function valueAt(place, meta) {
  let value = meta.logarithmic ? Number((10 ** place).toPrecision(3)) : Number(Number(place).toPrecision(12));
  if (meta.whole) value = Math.round(value);
  return Math.min(meta.high, Math.max(meta.low, value));
}

let lacked = "";  // the words that fields were asked for last
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  explorer: {
    together(text, place, meta) {
      const same = window.dash_clientside.no_update;
      const moved = window.dash_clientside.callback_context.triggered_id;
      if (!moved || !meta) return [same, same];
      if (moved.kind === "range") return [String(valueAt(Number(place), meta)), same];
      // A slider that is being moved is ahead of its field: the field must not call it back.
      if (document.activeElement && document.activeElement.type === "range") return [same, same];
      const value = numberOf(text);
      return [same, value >= meta.low && value <= meta.high ? placeOf(value, meta) : same];
    },
    tell(shown, ...values) {
      // Answers may come in another order than they were asked for: an old one on top is asked for again.
      const isNow = shown && JSON.stringify(shown.asked) === JSON.stringify(values);
      root.dataset.settled = isNow && shown.whole ? "yes" : "no";
      if (isNow && shown.whole) lacked = "";
      // A choice may bring fields of its own; those of a view that was just opened are on their way already.
      if (isNow && !shown.whole && lacked !== shown.query && !byId("renewed").disabled) {
        lacked = shown.query;
        window.dash_clientside.set_props("lacking", { data: Date.now() });
      }
      if (shown && !isNow) {
        window.dash_clientside.set_props("measured", { data: Date.now() });
      } else if (shown) {
        const address = `/${shown.view}${shown.query}`;
        if (location.pathname + location.search !== address) history.replaceState(history.state, "", address);
        document.title = `${byId("title").textContent} · Skiplens explorer`;
      }
      return window.dash_clientside.no_update;
    },
  },
});

// A figure is drawn when its JSON changes; React writes the JSON and leaves the inside of a plot alone.
const drawnFrom = new WeakMap();

function drawChanged() {
  if (!window.Plotly) return;
  for (const plot of all(".plot")) {
    const source = plot.nextElementSibling && plot.nextElementSibling.textContent;
    if (!source || drawnFrom.get(plot) === source) continue;
    drawnFrom.set(plot, source);
    draw(plot);
    renewNumbers(plot);
    soon();  // when it is drawn its axes are known
  }
  shareAxes();
  linkPlanes();
}

// The words below the main figure stand apart from it, so that on a phone the figure alone stays in sight.
const wordsOf = (plot) => plot.parentElement.querySelector("details.numbers") || document.querySelector(".below details.numbers");
const plotOf = (details) => details.parentElement.querySelector(".plot") || document.querySelector("#hero .plot");

function renewNumbers(plot) {
  const details = wordsOf(plot);
  if (!details) return;
  for (const rows of all(".rows", details)) rows.remove();
  fillNumbers(details, plot);
}

// A picture that is held stands beside the one that changes, both on axes that fit both.
function hold() {
  const held = byId("held"), plot = document.querySelector("#hero .plot"), button = byId("hold");
  const isHeld = held.childElementCount > 0;
  if (!isHeld && !plot) return;
  if (isHeld) {
    forget([held]);
    held.replaceChildren();
  } else {
    const figure = element("figure");
    const title = element("h3", `A: ${plot.parentElement.querySelector("h3").textContent}`);
    const words = element("p", (document.querySelector(".below .caption") || plot).textContent, { className: "caption" });
    words.append(" ", element("a", "Back to it", { href: location.pathname + location.search }));
    figure.append(title, element("div", "", { className: "plot" }), element("script", plot.nextElementSibling.textContent, { type: "application/json" }), words);
    held.append(figure);
  }
  byId("main").classList.toggle("holding", !isHeld);
  button.textContent = isHeld ? "Hold this picture beside the next" : "Let go of A";
  button.setAttribute("aria-pressed", String(!isHeld));
  requestAnimationFrame(() => drawAll(all(".plot")));
}

const ownAxes = new WeakMap();  // the ranges that a picture has by itself, for the figure it shows
function axesOf(plot) {
  const source = plot.nextElementSibling.textContent, known = ownAxes.get(plot);
  if (known && known.source === source) return known;
  const found = { source };
  for (const name of ["xaxis", "yaxis"]) {
    const axis = plot._fullLayout && plot._fullLayout[name];
    if (axis && axis.range) found[name] = { type: axis.type, title: axis.title.text, range: [...axis.range] };
  }
  ownAxes.set(plot, found);
  return found;
}

function shareAxes() {
  const plots = all("#held .js-plotly-plot, #hero .js-plotly-plot");
  if (plots.length < 2) return;
  const [first, second] = plots.map(axesOf);
  const change = {};
  for (const name of ["xaxis", "yaxis"]) {
    const [a, b] = [first[name], second[name]];
    if (!a || !b || a.type !== b.type || a.title !== b.title || a.type === "category") continue;
    change[`${name}.range`] = [Math.min(a.range[0], b.range[0]), Math.max(a.range[1], b.range[1])];
  }
  const wanted = JSON.stringify([first.source, second.source]);
  if (!Object.keys(change).length || shareAxes.done === wanted) return;
  shareAxes.done = wanted;
  for (const plot of plots) Plotly.relayout(plot, change);
}

// Two planes beside each other have one scale of colours; where one comes near or turns in one, the other follows.
function linkPlanes() {
  const plots = all("#hero .js-plotly-plot").filter((plot) => plot.data.some((trace) => trace.z));
  if (plots.length < 2 || plots.every((plot) => plot.data[0].zauto === false)) return;
  const heights = plots.flatMap((plot) => plot.data.flatMap((trace) => trace.z.flat())).filter(Number.isFinite);
  const half = (value, round) => round(2 * value) / 2;
  const [low, high] = [half(heights.reduce((a, b) => Math.min(a, b), Infinity), Math.floor), half(heights.reduce((a, b) => Math.max(a, b), -Infinity), Math.ceil)];
  const levels = { autocontour: false, "contours.start": low, "contours.end": high, "contours.size": (high - low) / 20 || 1 };
  for (const plot of plots) {
    Plotly.restyle(plot, { zauto: false, zmin: low, zmax: high, ...levels });
    plot.on("plotly_relayout", (change) => follow(plots.filter((other) => other !== plot), change));
  }
}

let following = false;
async function follow(others, change) {
  const seen = Object.entries(change).filter(([name]) => /^(xaxis|yaxis)\.(range|autorange)/.test(name));
  if (following || !seen.length) return;
  following = true;
  for (const other of others) await Plotly.relayout(other, Object.fromEntries(seen));
  following = false;
}

// The main picture with the title of the view, 1200 × 630 pixels: into the clipboard, or a file where that is closed.
async function copyCard() {
  const plot = document.querySelector("#hero .js-plotly-plot");
  if (!plot) { say("There is no picture here."); return; }
  const title = `${byId("title").textContent}: ${plot.parentElement.querySelector("h3").textContent}`;
  const layout = { ...plot.layout, title: { text: title.replace(/</g, "&lt;") }, margin: { l: 80, r: 40, t: 110, b: 70 }, paper_bgcolor: getComputedStyle(root).getPropertyValue("--paper").trim() };
  const address = await Plotly.toImage({ data: plot.data, layout }, { format: "png", width: 1200, height: 630 });
  try {
    const bytes = Uint8Array.from(atob(address.split(",")[1]), (character) => character.charCodeAt(0));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
    say("The card was copied.");
  } catch {
    element("a", "", { href: address, download: "skiplens-card.png" }).click();
    say("The card was saved.");
  }
}

// The network itself as a control: its end is pulled for depth, its branches for their strength, and light moves between
// them: a branch has the share s/(1 + s) of a block whose branch adds s times what the trunk carries.
const SVG = "http://www.w3.org/2000/svg";
const HIGH = 136, TRUNK = 118;  // pixels of the drawing, and where its trunk runs
const fieldOf = (kind, name, view = "paths") => byId(JSON.stringify({ kind, name, view }));
const valueOf = (name, view) => Number(fieldOf("number", name, view).value);
const counted = (number) => (number < 1e6 ? Number(number.toPrecision(number < 1000 ? 3 : 15)).toLocaleString("en") : `10${String(Math.round(Math.log10(number))).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])}`);
const HEROES = [
  {
    view: "paths", needs: ["depth", "beta"], strength: "beta", letter: "β", stem: 1, adds: (beta) => beta,
    told: (layers, beta) => `the light passes about ${counted(Math.round((layers * beta) / (1 + beta)))} of ${counted(layers)} layers, p β/(1+β)`,
  },
  {
    view: "tangent", needs: ["depth", "branch_scale", "branch_depth"], strength: "branch_scale", letter: "α", stem: 0, adds: (scale) => scale ** valueOf("branch_depth", "tangent"),
    told: (blocks, square) => `the squared signal of the ResNet grows ${counted((1 + square) ** blocks)} times over ${counted(blocks)} block${blocks > 1 ? "s" : ""}, (1 + α^m)^L`,
  },
];
const slidersOf = (hero) => ["depth", hero.strength].map((name) => fieldOf("range", name, hero.view));
const shareOf = (slider) => (slider.value - slider.min) / (slider.max - slider.min);
const isShown = (node) => Boolean(node) && !node.closest("[hidden]");
const setValue = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;  // the one that React hears

function moveSlider(slider, share) {
  const steps = Math.round((Math.min(1, Math.max(0, share)) * (slider.max - slider.min)) / slider.step);
  slider.focus({ preventScroll: true });
  setValue.call(slider, String(Number(slider.min) + steps * slider.step));
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}

function part(name, fields, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(fields)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function drawNetwork() {
  const frame = byId("network"), hero = HEROES.find((one) => slidersOf(one).every(isShown) && one.needs.every((name) => fieldOf("number", name, one.view)));
  if (!frame) return;
  if (!hero) { frame.replaceChildren(); return; }
  const [depth, ratio] = slidersOf(hero), { view, strength, letter } = hero;
  const layers = valueOf("depth", view), blocks = layers - hero.stem, sum = hero.adds(valueOf(strength, view));
  if (!(blocks >= 1) || !(sum >= 0)) return;
  const wide = frame.clientWidth, share = sum / (1 + sum);
  const end = 60 + (wide - 90) * (0.12 + 0.88 * shareOf(depth));
  const count = Math.max(1, Math.min(blocks, Math.floor((end - 20) / 7))), room = (end - 20) / count;
  const rise = 16 + 76 * shareOf(ratio), thick = Math.min(14, 0.45 * room);
  const top = TRUNK - rise, at = (index, along) => (20 + (index + along) * room).toFixed(1);
  const arc = (index) => `M${at(index, 0)} ${TRUNK}C${at(index, 0.26)} ${TRUNK} ${at(index, 0.18)} ${top} ${at(index, 0.5)} ${top}C${at(index, 0.82)} ${top} ${at(index, 0.74)} ${TRUNK} ${at(index, 1)} ${TRUNK}`;
  const branches = Array.from({ length: count }, (_, index) => arc(index)).join("");
  const words = hero.told(layers, sum);
  const drawn = count < blocks ? `, ${count} of ${counted(blocks)} blocks drawn` : "";
  const picture = part("svg", { class: "network", viewBox: `0 0 ${wide} ${HIGH}`, height: HIGH, role: "img", "aria-label": `A network whose shortcut and branches are as bright as what passes through them: ${words}. The sliders of depth and ${letter} move it.` });
  const middle = 20 + (Math.floor(count / 2) + 0.5) * room;
  picture.append(
    part("path", { class: "rail", d: `M${end} ${TRUNK}L${wide - 30} ${TRUNK}` }),  // how far it can be pulled
    part("path", { class: "trunk", d: `M8 ${TRUNK}L${end} ${TRUNK}`, style: `stroke-width: ${2 + 14 * (1 - share)}px; stroke-opacity: ${0.15 + 0.75 * (1 - share)}` }),
    part("path", { class: "ribbon", d: branches, style: `stroke-width: ${1 + thick * share}px; stroke-opacity: ${0.12 + 0.88 * share}` }),
  );
  for (const [name, x, y, told] of [["depth", end, TRUNK, "Pull to the side: more layers or fewer"], [strength, middle, TRUNK - rise, "Pull up or down: stronger branches or weaker"]]) {
    const handle = part("circle", { class: `handle ${name === "depth" ? "depth" : "strength"}`, cx: x, cy: y, r: 9, "data-control": name, "data-view": view });
    handle.append(part("title", {}, told));
    picture.append(handle);
  }
  const told = `Pull the dots: ${words}${drawn}.`;
  const caption = frame.querySelector("p") || element("p", "", { className: "caption" });
  if (caption.textContent !== told) caption.textContent = told;
  frame.replaceChildren(picture, caption);
}

function pull(event) {
  const { control: name, view } = event.target.dataset || {};
  if (!name || event.button) return;
  event.preventDefault();
  const frame = byId("network").getBoundingClientRect(), slider = fieldOf("range", name, view);
  const move = (moved) => moveSlider(slider, name === "depth" ? ((moved.clientX - frame.left - 60) / (frame.width - 90) - 0.12) / 0.88 : (TRUNK - (moved.clientY - frame.top) - 16) / 76);
  const done = () => { for (const kind of ["pointermove", "pointerup", "pointercancel"]) window.removeEventListener(kind, kind === "pointermove" ? move : done); };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", done);
  window.addEventListener("pointercancel", done);
}

// In theory β grows with the weights and shrinks when they decay; a training that was measured goes from step to step.
// The slider goes there by itself.
const STEPS = 20, BETWEEN = 250;  // milliseconds
let playing = 0;
const played = () => ["moment", "beta"].map((name) => fieldOf("range", name)).find(isShown);
const isTraining = () => isShown(fieldOf("range", "moment"));
function play() {
  const slider = played(), name = isTraining() ? "moment" : "beta";
  if (playing || !slider) { stop(); return; }
  const from = isTraining() && shareOf(slider) === 1 ? 0 : shareOf(slider), goal = isTraining() || from < 0.75 ? 1 : 0;
  let step = 0;
  playing = setInterval(() => {
    if (!isShown(fieldOf("range", name))) { stop(); return; }
    if (document.querySelector("#progress progress")) return;  // it is being measured
    step += 1;
    moveSlider(fieldOf("range", name), from + ((goal - from) * step) / STEPS);
    if (step === STEPS) stop();
  }, BETWEEN);
  namePlay();
}

function stop() {
  clearInterval(playing);
  playing = 0;
  namePlay();
}

function namePlay() {
  const button = byId("play"), slider = played();
  if (!button) return;
  button.hidden = !slider;
  if (!slider) return;
  const words = playing ? "Stop" : isTraining() ? "Play: let it learn" : shareOf(slider) < 0.75 ? "Play: weights grow, it gets deeper" : "Play: weights decay, it gets shallower";
  if (button.textContent !== words) button.textContent = words;
}

// The library calls boxes of a form the options of a list, which may hold nothing that can be pressed.
function nameBoxes() {
  for (const label of all("label[role=option]")) {
    const list = label.closest("[role=listbox]");
    if (list) list.removeAttribute("role");
    for (const name of ["role", "aria-selected"]) label.removeAttribute(name);
  }
}

// What belongs to one view is never seen under the title of another.
function hideOld() {
  if (!byId("main")) return;
  const chosen = document.querySelector("#navigation [aria-current] a"), shown = document.querySelector("#words [data-view]");
  byId("main").classList.toggle("stale", Boolean(chosen && shown && chosen.pathname !== `/${shown.dataset.view}`));
}

function nameSliders() {
  for (const rail of all(".rail")) {
    const slider = rail.querySelector("input[type=range]");
    if (!slider) continue;
    slider.setAttribute("aria-label", `${rail.dataset.label}, slider`);
    const share = (slider.value - slider.min) / (slider.max - slider.min);
    slider.style.setProperty("--share", `${100 * share}%`);
  }
}

// The server's answer comes as new elements: what a person had opened is opened again.
const opened = new Set();
const nameOf = (details) => details.querySelector("summary").textContent;
const reopen = () => { for (const details of all("main details:not([open])")) if (opened.has(nameOf(details))) details.open = true; };

function forget(nodes) {
  for (const node of nodes) {
    if (node.querySelectorAll && window.Plotly) for (const plot of all(".js-plotly-plot", node)) Plotly.purge(plot);
  }
}

// Dash hides what its lists take the focus with from readers of the screen, so it must be no stop for the keyboard either.
const skipHidden = () => { for (const field of all(".dash-dropdown-focus-target[aria-hidden]")) field.tabIndex = -1; };

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  root.dataset.plots = "drawing";
  requestAnimationFrame(() => {
    waiting = false;
    for (const renew of [hideOld, nameLook, nameSliders, nameBoxes, drawNetwork, namePlay, skipHidden, reopen, drawChanged]) renew();
    if (!waiting && window.Plotly) root.dataset.plots = "drawn";  // and nobody asked for more meanwhile
  });
}

const isOurs = (change) => !(change.target.closest ? change.target : change.target.parentElement || root).closest(".plot, #network, #play");
new MutationObserver((changes) => {
  const ours = changes.filter(isOurs);
  for (const change of ours) forget(change.removedNodes);
  hideOld();
  if (ours.length) soon();
}).observe(document.body, { childList: true, subtree: true, characterData: true });
// A choice is said by its button: Dash says it on the label too, which is none, and says it again with every choice.
new MutationObserver((changes) => {
  for (const { target } of changes) if (target.matches("label")) target.removeAttribute("aria-selected");
}).observe(document.body, { subtree: true, attributeFilter: ["aria-selected"] });
document.addEventListener("input", () => { soon(); setTimeout(soon, 60); });  // the field beside a slider follows it

// What is typed counts when nobody types on, or when its field is left. Dash would wait by itself, also for a field that is
// gone by then, whose value it cannot read.
const TYPING = 400;  // milliseconds
let typing = 0;
document.addEventListener("input", ({ target }) => {
  clearTimeout(typing);
  if (!target.id.startsWith('{"kind":"number"')) return;
  typing = setTimeout(() => { if (target.isConnected) target.dispatchEvent(new FocusEvent("focusout", { bubbles: true })); }, TYPING);
});
document.addEventListener("pointerdown", pull);
window.addEventListener("resize", () => { soon(); setTimeout(soon, 300); });  // when plots have been drawn anew

function setLook(name) {
  root.dataset.theme = name;
  nameLook();
  drawAll();
  for (const frame of all("iframe.report")) tellLook(frame);
  soon();
}

// A page in a frame is one of its own, which is told what it should look like.
const tellLook = (frame) => frame.contentWindow.postMessage({ look: root.dataset.theme }, "*");
document.addEventListener("load", ({ target }) => { if (target.matches && target.matches("iframe.report")) tellLook(target); }, true);

function nameLook() {
  const button = byId("theme");
  const other = root.dataset.theme === "dark" ? "Light" : "Dark";
  if (!button || button.textContent === other) return;
  button.textContent = other;
  button.setAttribute("aria-label", `${other} look`);
}

document.addEventListener("click", (event) => {
  if (event.target.closest("a.skip")) {  // by hand: a change of the address would open the view anew
    event.preventDefault();
    byId("panel").focus();
  }
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "hold") hold();
  if (button.id === "copy-card") copyCard();
  if (button.id === "play") play();
  if (button.id === "theme") {
    setLook(root.dataset.theme === "dark" ? "light" : "dark");
    sessionStorage.setItem("look", root.dataset.theme);
  }
  if (button.classList.contains("copy")) copy(button, tableText(button.parentElement.querySelector("table")));
  if (button.classList.contains("copy-code")) copy(button, button.nextElementSibling.textContent);
});
document.addEventListener("toggle", (event) => {
  if (event.target.matches("details")) opened[event.target.open ? "add" : "delete"](nameOf(event.target));
  if (event.target.matches("details.numbers")) fillNumbers(event.target, plotOf(event.target));
}, true);
document.addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  if (!sessionStorage.getItem("look")) setLook(event.matches ? "dark" : "light");
});
window.addEventListener("load", soon);  // plotly.js has come by then
