// The drawing of the network fills the width that there is: it is stretched along the trunk and never in height.

const hero = byId("hero");
const WHOLE = hero ? hero.viewBox.baseVal.width : 0;
const [TOP, TALL] = hero ? [hero.viewBox.baseVal.y, hero.viewBox.baseVal.height] : [0, 0];
const NARROW = 22;  // pixels between two numbers under the trunk
const [MIDDLE, FLOW, STEEP] = [176, 22, 0.3];  // where the trunk runs, how thick it is at most, and of what share of a block
const APART = 6;  // pixels of a block below which stages stand for blocks
const stageButtons = all("#hero .stage");
let zoom = 1;

// What lies within the trunk gets thicker by `thick`, all else keeps its height.
const alongX = (path, by, thick = 1) => path.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x, y) => `${(x * by).toFixed(1)} ${Math.abs(y - MIDDLE) > FLOW ? y : (MIDDLE + thick * (y - MIDDLE)).toFixed(1)}`);

function stretched(node, name, change) {
  const kept = `data-own-${name}`;
  if (!node.hasAttribute(kept)) node.setAttribute(kept, node.getAttribute(name));
  node.setAttribute(name, change(node.getAttribute(kept)));
}

function stretch(by) {
  hero.classList.toggle("folded", stageButtons.length > 0 && roomOfBlock() * by < APART);
  hero.setAttribute("viewBox", `0 ${TOP} ${WHOLE * by} ${TALL}`);
  hero.style.width = `${WHOLE * by}px`;
  const [flows, flowed] = [by, 1].map((scale) => Math.min(FLOW, STEEP * roomOfBlock() * scale)), thick = flows / flowed;
  for (const path of all("path", hero)) {
    const small = path.matches(".mark, .alarm") && path.closest(".block, .stage");  // these keep their form and move
    stretched(path, small ? "transform" : "d", (own) => (small ? `translate(${(by - 1) * middleOf(path)} 0)` : alongX(own, by, isFlow(path) ? thick : 1)));
    if (isFlow(path)) stretched(path, "stroke-width", (own) => Math.max(1, own * thick).toFixed(1));
  }
  for (const text of all("text", hero)) stretched(text, "x", (own) => (text.getAttribute("text-anchor") === "middle" ? own * by : own));
  for (const rect of all("rect", hero)) for (const name of ["x", "width"]) stretched(rect, name, (own) => own * by);
  for (const text of all(".stage .number", hero)) {
    const count = text.textContent.split(" ")[0];
    text.textContent = Number(text.parentElement.querySelector(".hit").getAttribute("width")) < 5 * NARROW ? count : `${count} blocks`;
  }
  thinNumbers();
}

const isFlow = (path) => path.matches(".trunk, .ribbon") && !path.closest(".stage");

function middleOf(path) {
  const places = [...path.getAttribute("d").matchAll(/(-?[\d.]+) -?[\d.]+/g)].map((pair) => Number(pair[1]));
  return (Math.min(...places) + Math.max(...places)) / 2;
}

function thinNumbers() {
  const texts = all("#hero > .number"), [first, second] = texts.map((text) => Number(text.getAttribute("x")));
  const room = Math.max(NARROW, 6 + 7 * (texts.at(-1)?.textContent.length || 0));
  const step = STRIDES.find((size) => !(size * (second - first) < room));
  texts.forEach((text, index) => { text.style.display = (index + 1) % step || Number(text.getAttribute("x")) + room / 2 > hero.viewBox.baseVal.width ? "none" : ""; });
}

// Of an outermost block in the drawing as it is made.
const roomOfBlock = () => WHOLE / Math.max(1, all("#hero .block:not(.nested)").length);

// A stage that is pressed comes near enough for its blocks to be seen; the first of them has the keyboard then.
function unfold(stage) {
  const blocks = stage.dataset.blocks.split(" ").map((block) => blockButtons[block]);
  const frame = hero.parentElement;
  const wanted = Math.max((2 * APART * WHOLE) / roomOfBlock(), (0.9 * frame.clientWidth * WHOLE) / (blocks.length * roomOfBlock()));
  fit(wanted / frame.clientWidth / zoom);
  const ends = [blocks[0], blocks.at(-1)].map((block) => block.querySelector(".hit").getBBox());
  frame.scrollLeft = (ends[0].x + ends[1].x + ends[1].width - frame.clientWidth) / 2;
  for (const button of blockButtons) button.setAttribute("tabindex", button === blocks[0] ? "0" : "-1");
  blocks[0].focus({ preventScroll: true });
  say(`${blocks.length} blocks are shown one by one.`);
}

function fit(change = 1) {
  if (!hero) return;
  const frame = hero.parentElement;
  const middle = (frame.scrollLeft + frame.clientWidth / 2) / frame.scrollWidth;
  zoom = change ? Math.min(Math.max(32, (8 * APART) / roomOfBlock()), Math.max(1, zoom * change)) : 1;
  if (frame.clientWidth) stretch((zoom * frame.clientWidth) / WHOLE);
  frame.scrollLeft = middle * frame.scrollWidth - frame.clientWidth / 2;
}

// The mouse takes hold of the drawing and pulls it.
function pan(event) {
  const frame = event.currentTarget;
  if (event.pointerType !== "mouse" || frame.scrollWidth <= frame.clientWidth) return;
  const [from, start] = [event.clientX, frame.scrollLeft];
  const move = (moved) => { frame.scrollLeft = start - (moved.clientX - from); };
  const swallow = (click) => click.stopPropagation();  // who pulls a block does not choose it
  const end = (up) => {
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", end);
    if (Math.abs(up.clientX - from) < 4) return;
    window.addEventListener("click", swallow, true);
    setTimeout(() => window.removeEventListener("click", swallow, true), 0);
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", end);
}

// What is known of a block stands where one points at it, or where the keyboard is.
const tip = element("div", "", { id: "tip", hidden: true });

function showTip(event) {
  const block = event.target.closest?.(".block, .stage");
  tip.hidden = !block;
  if (!block) return;
  const [, name, rest] = block.getAttribute("aria-label").match(/^(.*?): (.*)$/s) || ["", block.getAttribute("aria-label"), ""];
  tip.replaceChildren(element("b", name), ...rest.split(/, (?=[a-z])/).map((line) => element("span", line)));
  const [box, room] = [block.getBoundingClientRect(), document.documentElement.clientWidth];
  tip.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, room - tip.offsetWidth - 8)) + scrollX}px`;
  tip.style.top = `${box.bottom + 6 + scrollY}px`;
}

if (hero) {
  document.body.append(tip);
  tip.setAttribute("aria-hidden", "true");  // the block's own name says the same
  for (const kind of ["pointerover", "focusin"]) hero.addEventListener(kind, showTip);
  for (const kind of ["pointerleave", "focusout"]) hero.addEventListener(kind, () => { tip.hidden = true; });
  hero.parentElement.addEventListener("pointerdown", pan);
  window.addEventListener("resize", () => fit());
  fit();
}
