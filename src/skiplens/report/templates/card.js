// The drawing as a picture of 1200 × 630 pixels with name and verdict, made here and offered as a file.

const CARD = { width: 1200, height: 630, margin: 60 };

function inlined(node) {
  const copy = node.cloneNode(true);
  const parts = [...node.querySelectorAll("path, text, rect")];
  [...copy.querySelectorAll("path, text, rect")].forEach((part, index) => {
    const style = getComputedStyle(parts[index]);
    for (const name of ["fill", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family"]) {
      part.setAttribute(name, style.getPropertyValue(name));
    }
  });
  return copy;
}

function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if ((lines.at(-1) + " " + word).length > most && lines.at(-1)) lines.push("");
    lines[lines.length - 1] = (lines.at(-1) + " " + word).trim();
  }
  return lines.slice(0, 4);
}

function svgElement(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function cardSvg() {
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const { width, height, margin } = CARD;
  const card = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  const words = (size, weight, fill, y) => ({ x: margin, y, fill, "font-size": size, "font-weight": weight, "font-family": "system-ui, sans-serif" });
  card.append(svgElement("rect", { width, height, fill: colour("--paper") }));
  card.append(svgElement("text", words(44, 700, colour("--ink"), 100), document.querySelector("h1").textContent.slice(0, 44)));
  wrapped(document.querySelector(".verdict p").textContent, 84).forEach((line, index) => {
    card.append(svgElement("text", words(26, 400, colour("--ink"), 155 + 36 * index), line));
  });
  const hero = inlined(byId("hero"));
  const scale = Math.min((width - 2 * margin) / Number(hero.getAttribute("width")), 1.2);
  const group = svgElement("g", { transform: `translate(${margin} ${310}) scale(${scale})` });
  group.append(...hero.childNodes);
  card.append(group, svgElement("text", words(20, 400, colour("--soft"), height - 30), "made with skiplens inspect"));
  return new XMLSerializer().serializeToString(card);
}

function saveCard() {
  const image = new Image();
  image.onload = () => {
    const canvas = element("canvas", "", { width: CARD.width, height: CARD.height });
    canvas.getContext("2d").drawImage(image, 0, 0);
    element("a", "", { href: canvas.toDataURL("image/png"), download: "skiplens-card.png" }).click();
    say("The card was saved.");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(cardSvg())}`;
}
