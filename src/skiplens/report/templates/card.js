// The drawing as a picture of 1200 × 630 pixels with name and verdict, made here and offered as a file.

const CARD = { width: 1200, height: 630, margin: 60 };

function inlined(node) {
  const copy = node.cloneNode(true);
  const parts = [...node.querySelectorAll("path, text, rect")];
  [...copy.querySelectorAll("path, text, rect")].forEach((part, index) => {
    const style = getComputedStyle(parts[index]);
    for (const name of ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family"]) {
      part.setAttribute(name, style.getPropertyValue(name));
    }
    if (parts[index].closest(".folded .block, .folded > .trunk, svg:not(.folded) .stage, .leaves")) part.remove();
  });
  return copy;
}

const pen = document.createElement("canvas").getContext("2d");

function widthOf(text, weight, size) {
  pen.font = `${weight} ${size}px system-ui, sans-serif`;
  return pen.measureText(text).width;
}

// The first lines of the text that are no wider than the card.
function wrapped(text, weight, size, most) {
  const lines = [""], wide = CARD.width - 2 * CARD.margin;
  for (const word of text.split(/\s+/)) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (widthOf(longer, weight, size) > wide && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines.length > most ? [...lines.slice(0, most - 1), `${lines[most - 1]} …`] : lines;
}

function svgElement(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function wholeDrawing() {
  stretch(1);
  const parts = [hero, byId("spectrum")].filter(Boolean).map(inlined);
  fit();
  const group = svgElement("g", { transform: `translate(${CARD.margin - 8} 290) scale(${(CARD.width - 2 * CARD.margin + 8) / 1040})` });
  for (const part of parts) group.append(...part.childNodes);
  return group;
}

// The network as it was on the left, the changed one on the right; or the first two of several that are compared.
const isChanged = () => all(".pair .network").length > 0;
const twoDrawings = () => (isChanged() ? all(".pair .network") : all(".wide > .hero > .network:not(.spectrum)").slice(0, 2));

function halfDrawing(drawing, index) {
  const wide = (CARD.width - 2 * CARD.margin - 40) / 2, left = CARD.margin + index * (wide + 40);
  const fill = getComputedStyle(root).getPropertyValue("--soft").trim();
  const words = isChanged() ? ["As it was", "Changed"][index] : drawing.closest("section").querySelector("h2").textContent.slice(0, 40);
  const name = svgElement("text", { x: left, y: 318, fill, "font-size": 22, "font-weight": 650, "font-family": "system-ui, sans-serif" }, words);
  const group = svgElement("g", { transform: `translate(${left} 330) scale(${Math.min(wide / drawing.viewBox.baseVal.width, 0.9)})` });
  group.append(...inlined(drawing).childNodes);
  for (const beside of all(".bar, .axis, .caption", group)) beside.remove();  // there is no room for the spectrum
  return [name, group];
}

function cardSvg() {
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const { width, height, margin } = CARD;
  const card = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  const words = (size, weight, fill, y) => ({ x: margin, y, fill, "font-size": size, "font-weight": weight, "font-family": "system-ui, sans-serif" });
  card.append(svgElement("rect", { width, height, fill: colour("--paper") }));
  card.append(svgElement("text", words(24, 400, colour("--soft"), 76), document.querySelector("h1").textContent.slice(0, 80)));
  const [headline, ...rest] = all(".verdict p").map((part) => part.textContent);
  const cause = document.querySelector(".finding h3")?.lastChild.textContent || "";
  const size = Math.min(52, (52 * (width - 2 * margin)) / widthOf(headline, 700, 52)), large = size > 36;
  wrapped(headline, 700, large ? size : 30, large ? 1 : 2).forEach((line, index) => {
    card.append(svgElement("text", words(large ? size : 30, 700, colour("--ink"), 136 + 38 * index), line));
  });
  wrapped([...rest, cause].join(" "), 400, 23, 3).forEach((line, index) => {
    card.append(svgElement("text", words(23, 400, colour("--ink"), (large ? 184 : 214) + 32 * index), line));
  });
  card.append(...(hero ? [wholeDrawing()] : twoDrawings().flatMap(halfDrawing)));
  const verb = hero ? "inspect" : isChanged() ? "improve" : "compare";
  const end = { x: width - margin, "text-anchor": "end" };
  card.append(svgElement("text", { ...words(20, 400, colour("--soft"), height - 24), ...end }, `made with skiplens ${verb}`));
  return new XMLSerializer().serializeToString(card);
}

function save(address, name) {
  element("a", "", { href: address, download: name }).click();
  say("The card was saved.");
}

function saveCard(kind) {
  const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(cardSvg())}`;
  if (kind === "svg") { save(address, "skiplens-card.svg"); return; }
  const image = new Image();
  image.onload = () => {
    const canvas = element("canvas", "", { width: CARD.width, height: CARD.height });
    canvas.getContext("2d").drawImage(image, 0, 0);
    save(canvas.toDataURL("image/png"), "skiplens-card.png");
  };
  image.src = address;
}
